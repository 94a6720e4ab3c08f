// Package device says where bytes live: on the host's processor, on a CUDA device, or on a
// simulated accelerator whose memory the host cannot see.
//
// A [Device] hands out [Buffer]s. A buffer is reference counted: whoever calls [Device.Alloc] owns
// one reference, [Buffer.Retain] adds one and [Buffer.Release] drops one; with the last reference
// the bytes go back to the device's pool. Nothing waits for the garbage collector, except where the
// owner says so with [Buffer.Disown].
//
// Only a host device shows its bytes ([Buffer.Host]). The bytes of any other device are reached by
// copying ([Upload], [Download], [Copy]) or by code that runs on the device ([Launcher]); a missing
// transfer is therefore an error and never a silent read of the wrong memory.
//
// Where the system can do it (Linux), each large buffer of the host lies in memory of its own that
// other processes can map for reading, and cannot write ([Buffer.Segment], [Buffer.Show]), and a
// buffer may lie in another process's ([Foreign]): then nobody here can write it. That memory is
// not of Go's heap. A slice of it does not keep it alive: its user keeps the Buffer reachable, as
// every method of this package does. At most half of the machine's memory is shared, in as many
// pieces as a quarter of the descriptors and mappings that a process may have; what comes beyond is
// of the heap, as elsewhere.
//
// Devices, buffers and sets are safe for concurrent use; the bytes inside a buffer are not: who
// writes them must be alone. Every failure is an [Error] that names the device and wraps one of
// this package's sentinels.
package device
