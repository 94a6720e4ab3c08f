// Package fakenccl builds a libnccl.so.2 whose GPUs are this process, for tests of package nccl and
// of what stands on it. It needs a C compiler, and no GPU.
//
// Ranks are of one process, each on a GPU that its thread names. A GPU does one thing at a time, in
// the order in which it was submitted, and a collective operation is done when all its ranks have
// come so far: where ranks submit in different orders nothing is done any more, as on GPUs. What is
// done is computed, in the memory of the process. All submissions are recorded.
//
// Any call can be had to fail or to hang ([Fake.Plant]), and a library of any version can be built,
// which lacks what that version lacked.
package fakenccl
