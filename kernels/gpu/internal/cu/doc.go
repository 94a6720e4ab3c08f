// Package cu holds kernels in CUDA C++ (*.cu), the PTX that NVRTC 11.8 makes of them for compute
// capability 7.5 (8.0 where a kernel needs it), and what ptxas 12.9 makes of that for GPUs of two
// generations: an archive for each (*.zip), which programs embed. Attention by what compute
// capability 9.0 has and no other (attention_h*.cu) is made by NVRTC 12.9, and for that alone.
// After a change of a source, `go run ./kernels/gpu/internal/cu/build` makes them anew; -check
// compares. The PTX's first line is a hash of what it was made of, and each cubin has one of its
// PTX beside it, which tests compare where there is no compiler. What a source wants NVRTC to be
// told, it says in lines that begin with "// nvrtc: ".
//
// A kernel's name ends in the dtype that it computes in (softmax_f32), or where that is float32 and
// memory is bfloat16 in a letter for the operand and one for the result: b for bfloat16, f for
// float32 (entropy_grad_bf; norm_grad_fbf has the gradient of the result between). Sizes are 32-bit
// numbers of elements or rows, 64-bit ones where a kernel goes element by element; addresses are
// those of the first element, and multiples of 16. A kernel that can meet an index out of range has
// the address of the fault record and a code as its last two parameters (package device/cuda),
// reports it, and goes on without reading there: what it gives for it is NaN. Of several such
// indices the record comes to name the first. Those that step parameters have the record's address
// last, and leave them as they are where it tells of something.
//
// Kernels read a row of numbers once, where a block has shared memory for it. Nothing depends on
// the order in which threads run: what many blocks add to is laid down in parts, which one block
// adds up, and equal ids are sorted. Updates of optimizers come to the bits of the host's.
package cu
