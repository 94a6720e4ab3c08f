// Package ptx is a GPU without a GPU: a [Machine] runs kernels of PTX text on the host's processor,
// one instruction of 32 threads at a time, and is a [cuda.Driver]. What is tested on it is the text
// that a GPU runs.
//
// It is slower than a GPU by a factor of ten thousand, and tells what a GPU keeps to itself: every
// access is within a live allocation and aligned; what threads of a block share they pass on by a
// barrier; lanes named by a shuffle come to it; barriers are reached by all; no kernel runs for
// ever; host memory of transfers is pinned. Who breaks this gets a [Fault], which names the kernel,
// the line of text, the block and the thread, and the machine is lost, as a GPU would be:
// everything after fails with [device.ErrLost] and the fault, only Free and Close do their work.
//
// Streams do their work when it is submitted, or with [Config.Late] as late as they may and in an
// order drawn by chance, so that a missing Wait, or pinned memory that is changed too early, shows
// as a wrong result. [Machine.Hold] keeps some of them back, so that a Wait too many shows, too.
//
// How fast a GPU would be it does not know, but with [Config.Traffic] it counts what kernels ask of
// memory, as a GPU does: sectors that are not used wholly, conflicts in shared memory, and
// instructions ([Machine.Traffic]).
//
// What a GPU approximates (ex2, sin, rsqrt, …) is off here by as much as it may be there, in
// float32. Blocks run one after another, in order: a block that waits for a later one never ends,
// which is a fault after [Config.Steps]. A call puts the function in its place, so functions that
// call themselves, or are called by address, are refused, as every instruction is that is not
// understood, when the module is loaded.
//
// A machine is safe for concurrent use: one thing happens at a time.
package ptx
