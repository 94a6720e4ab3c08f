// Package ptx is a GPU without a GPU: a [Machine] is a [cuda.Driver] that runs kernels of PTX text
// on the host's processor, one instruction of 32 threads at a time. What is tested on it is the
// text that a GPU runs. Package syntax reads the text, package compile makes kernels of it, and
// package simt runs them.
//
// It is ten thousand times slower than a GPU, and checks what a GPU does not. Every access is
// aligned and within a live allocation. Threads of a block have a barrier between a write to shared
// memory and a read by others. All lanes that a shuffle names come to it, and all threads come to a
// barrier. No kernel runs for ever. Host memory of transfers is pinned. A kernel that breaks this
// gets a [simt.Fault], which names the kernel, the line of text, the block and the thread. The
// machine is lost then, as a GPU would be: everything after fails with [device.ErrLost] and the
// fault. Only Free and Close still work.
//
// Streams do their work when it is submitted. With [Config.Late] they do it as late as they may, in
// a random order, so that a missing Wait, or pinned memory that is changed too early, shows as a
// wrong result. [Machine.Hold] keeps some of them back, so that a Wait too many shows, too.
//
// Of compute capability 9.0 it knows what attention needs: products by four warps (wgmma) of
// bfloat16, copies of tiles (TMA), and barriers that count bytes (mbarrier). Products and copies
// are done when they are waited for, and no earlier. Registers of sums that nobody waited for hold
// no numbers, and memory that a tile is copied to counts as not written. So what is read too early
// is seen, and what is given back too early. A map of a tensor has bytes that are this package's
// own ([Machine.EncodeMap]), for NVIDIA does not tell its.
//
// It does not know how fast a GPU would be. With [Config.Traffic] it counts what kernels ask of
// memory, as a GPU does: sectors that are not used wholly, conflicts in shared memory, and
// instructions ([Machine.Traffic]).
//
// What a GPU approximates (ex2, sin, rsqrt, …) is off here by as much as it may be there, in
// float32. Blocks run one after another, in order. A block that waits for a later one never ends,
// which is a fault after [Config.Steps]. A call is replaced by the body of its function. So
// functions that call themselves, or are called by address, are refused when the module is loaded,
// as is every instruction that is not understood.
//
// Machines with the same [Config.Texts] compile a text once. What is compiled holds nothing of a
// machine: it is linked to the variables of each, and counts where a launch says.
//
// A machine is safe for concurrent use: one thing happens at a time.
package ptx
