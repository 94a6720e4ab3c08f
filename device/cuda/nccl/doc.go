// Package nccl is NVIDIA's library of collective operations on GPUs, opened when the program runs.
// It needs neither cgo nor a header, and builds everywhere; it opens on Linux alone, on amd64 and
// arm64. The library itself needs no GPU to be opened, to tell its version and to make ids.
//
// [Open] takes what WEFT_NCCL names; else libnccl.so.2 where the loader finds it, in NCCL_HOME,
// where toolkits are installed, or where Python's packages have it (pip's nvidia-nccl-cu12 and
// -cu13). It must be 2.18 or later. Functions that came after 2.18 are optional: who calls one that
// is missing gets [ErrMissing], and reads which version has it.
//
// A [Comm] is one rank of a communicator, on one GPU. Rank 0 makes an [ID], which is an address and
// a secret at once, and its process must live until all have joined. NCCL checks nothing between
// ranks: all must make the same calls in the same order, and where several communicators are on one
// GPU, those of all in one order. Package collective/gpus sees to that.
//
// Communicators do not block: a call returns when NCCL has taken the work, and whoever waits polls.
// One goroutine at a time may call a Comm; Abort, Revoke and Async may be called from any, at any
// time. Abort lets a call under way return, and ends with its communicator also where NCCL does
// not let go of the thread: Go's other goroutines do not need it.
//
// Addresses and streams are the driver's, as numbers. What lies at them is not kept alive here.
package nccl
