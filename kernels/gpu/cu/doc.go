// Package cu holds kernels in CUDA C++ (*.cu) and the PTX that NVRTC 11.8 makes of them for compute capability 7.5 (8.0 where a kernel needs
// it), which programs embed. After a change of a source, `go run ./kernels/gpu/cu/build` makes the PTX anew; with -check it compares.
//
// A kernel's name ends in the dtype that it computes in (softmax_f32). Sizes are 32-bit numbers of elements or rows, addresses those of the
// first element; a kernel that can meet an index out of range has the address of the fault record and a code as its last two parameters
// (package device/cuda), reports it, and goes on without reading or writing there.
package cu
