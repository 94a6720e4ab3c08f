// Package cpu computes instructions on the CPU: a [kernels.Backend] for every device that launches
// Go code ([device.Launcher]), the host among them.
//
// [Backend] compiles an instruction to a function over the memory of its results and operands.
// Large work is cut into pieces by size, never by the number of threads, so a result does not
// depend on how many there are. All programs of a process share one pool of helpers, [Threads]
// threads in all. Runs allocate nothing once pools are warm.
//
// Matrix products go to OpenBLAS where that library can be opened at run time, else to this
// module's own kernels on vectors in builds with GOEXPERIMENT=simd on processors with AVX2, else to
// gonum; the smallest to a loop. WEFT_BLAS=openblas, go or gonum forces one. [BLAS] tells which it
// is and why. Convolutions with few channels are added up tap by tap on the same processors'
// vectors; others are products with blocks of columns. [Vectors] names the vectors in use.
//
// What it is made of lies below internal: elementwise (maps and folds), images (convolutions and
// pooling), blas (products), and under these vec, gemm, conv and transpose (loops on vectors),
// parallel and scratch.
package cpu
