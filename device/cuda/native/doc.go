// Package native is a [cuda.Driver] over NVIDIA's. With the build tag gpu (and cgo) it opens
// libcuda.so.1, or what LIBCUDA_PATH names, when it is first asked for something; a program that
// never asks, or runs where there is no driver, pays nothing and loses nothing. Without the tag all
// functions say so, in an error that wraps [cuda.ErrNoDriver].
//
// Devices, their properties, the primary context, memory, streams, events and modules are
// gorgonia.org/cu's. Its calls want the context on the calling thread, so they are made with the
// goroutine bound to its thread, which is right for what happens rarely. Our own calls, a line of C
// each, set the context themselves: those that package cu lacks (pinned memory, graphs, memory of
// other processes, a log of what is wrong with PTX), and those that training makes all the time
// (copies, events, lists of launches), which must neither bind goroutines nor allocate. A list is
// one call of C, whatever its length.
//
// The primary context is used, which libraries share; it is given back by Close. Memory is
// cuMemAlloc's and not a stream-ordered pool's: it can be exported to other processes, and who
// allocates is package device's pool, so it happens rarely. Freeing it waits for the GPU. Streams
// do not wait for the default one; only timers measure time. The driver is told of 16 queues
// (CUDA_DEVICE_MAX_CONNECTIONS, unless the environment has it), as with its 8 some of the streams
// would stand behind others. Recording a graph is relaxed: other goroutines allocate, load and
// submit to other streams meanwhile, but what anybody submits to the recording stream is recorded.
//
// Launches are checked before the first of a list is submitted. What is found later (a wild
// address) loses the device for this process: every call then fails with [device.ErrLost], on this
// GPU alone, but for those that give something back: nothing is left of it.
//
// Products are cuBLASLt's, version 11 to 13, opened by the first call of Product: WEFT_CUBLASLT
// names it, or it is where the loader, CUDA_HOME, /usr/local/cuda or a Python installation has it,
// that of the python3 in PATH among them. The newest is taken that the driver serves.
//
// To build it needs a C compiler, and include/ in CGO_CFLAGS (make gpu), as package cu includes
// cuda.h too. Nothing of CUDA is linked: every driver function is a jump through a table that is
// filled when the library is opened.
package native
