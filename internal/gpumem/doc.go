// Package gpumem is a device over a driver of package device/cuda ([GPU]): the memory of a GPU, its
// streams, and the order of what goes on them. Package kernels/gpu puts what computes on top.
//
// Kernels run on a few streams (4 unless [Config] says otherwise), so that programs which have
// nothing in common run side by side. The unit is the block that Take gave: of each the GPU knows
// the last write, and the reads since, as points in streams; what comes later, on another stream,
// waits for those by an event. A block that was given to a pool keeps its history, so it may be
// used again at once. Who calls [GPU.Run] says which buffers the work reads and writes. order.go
// decides which stream work goes on, and does no I/O.
//
// So that a program need not wait for memory that another's work still uses, the pool makes more
// blocks than are in use at once: up to 16 of a size, and an eighth of the GPU's memory in all.
// With that used up work waits, on the GPU.
//
// Uploads go through pinned memory on a stream of their own, or, where the memory is still in use,
// behind that, on its stream. The host waits for no upload, but where pinned memory is full.
// Downloads have two streams, and wait for what wrote the bytes alone.
//
// Kernels report what they find wrong (an index out of range) in the GPU's fault record, which
// every download reads, once what it waits for is done; so does [GPU.Check], for bytes that leave
// by another way. A record that tells of something is read again when all that was submitted is
// done, and cleared before anything else is submitted: so it is whole, and no two looks take a
// fault from one another.
//
// The record tells of one fault, and of the runs that met one. Values that came of such a run, and
// what comes of those later, are spoiled: whoever asks for one gets a [FaultError], and steps by
// one are refused, until all of it is written anew. Nobody else is told, and nothing of others is
// left out. tell.go decides this, and does no I/O. A fault of the machine itself (a wild address)
// loses the device: all that follows fails with [device.ErrLost].
//
// Copies to and from memory that other processes see ([GPU.Pass]) have a stream of their own, and
// begin when what they copy is there: a gradient does not stand behind the rest of the backward,
// nor behind another one that is not there yet.
//
// Bytes for another GPU of the process go straight, where the two reach one another
// ([cuda.Neighbor]).
//
// GPUs are safe for concurrent use.
package gpumem
