// Package gpu computes on GPUs: a [kernels.Backend] over a [cuda.Driver], whichever that is.
//
// An instruction is lowered to launches of kernels. Those that go element by element (maps, folds,
// moves) are written for the case at hand, as PTX, by package gen; the others are CUDA C++ of
// package cu, compiled beforehand. Products are the driver's library's, where it has one, and a
// kernel's otherwise: where the library has none, lacks it, fails, or has no memory for its
// workspace. [kernels.Surveyor] says how often that was, and why; it counts what is made ready, not
// runs. Where they are those of bfloat16 ([Precision]), operands that are not that already
// ([kernels.Narrow]) are copied first, once for all that read the same memory of a routine before
// it is written. In FP8 large products are the library's, of copies in e4m3 with a scale for each
// 128 terms of a sum: where GPU, library or sizes do not allow it they are BF16's. A routine is one
// list of launches, submitted at once; one that runs again on the same memory is replayed as a
// graph.
//
// Runs return when their work is submitted. What goes wrong on the GPU is told by the next download
// of what came of it, or by whoever lets bytes leave it otherwise ([kernels.IndexError] for ids and
// labels, with the lines that lately asked for the instruction; other faults lose the device).
// Results of a bad id or label are NaN, nothing outside of them is written, and until the download
// has told of it optimizers' instructions leave what they would step as it is.
//
// Results are deterministic on one GPU: the order of sums depends on shapes alone. Folds of float32
// add up in float64, products in float32.
//
// What is not finite touches what depends on it alone, as everywhere; what e4m3 cannot hold, an
// infinite factor, is NaN there.
package gpu
