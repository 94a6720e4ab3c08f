// Package simt executes compiled kernels as a GPU does: blocks of threads, in warps of 32 lanes
// that do one instruction together, with shared memory, barriers and shuffles. A [Processor] has
// memory, and a [Runner] runs a [Kernel] on it, one block after another.
//
// It checks every access and every barrier. The first mistake of a kernel stops it and is returned
// as a [Fault]. A processor is not safe for concurrent use.
package simt
