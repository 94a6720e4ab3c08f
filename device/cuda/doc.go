// Package cuda is a GPU: what one can do ([Driver]), and a device over it ([GPU]).
//
// Two drivers implement it: package native calls NVIDIA's (build tag gpu), and package ptx runs the
// same PTX kernels on the host's processor, so that everything above is tested where there is no
// GPU. Nothing here or above knows which it has.
//
// Kernels run on a few streams (4 unless [Config] says otherwise), so that programs which have
// nothing in common run side by side. The unit is the block that Take gave: of each the GPU knows
// the last write, and the reads since, as points in streams; what comes later, on another stream,
// waits for those by an event. A block that was given to a pool keeps its history, so it may be
// used again at once. Who calls [GPU.Run] says which buffers the work reads and writes; Move,
// Upload and Download know. Work goes on the stream of what it depends on, where that came last
// there: so a program stays on its stream, and no event is recorded. Else it goes on a stream that
// has nothing to do, or was not used for the longest time; a few launches alone are not worth that,
// and go behind what they depend on. An event is recorded before a stream goes over to something
// else, and for a while before each run, once somebody had to wait for more than was needed.
// order.go decides this, and does no I/O.
//
// So that a program need not wait for memory that another's work still uses, the pool makes more
// blocks than are in use at once: up to 16 of a size, and an eighth of the GPU's memory in all.
// With that used up work waits, on the GPU.
//
// Uploads go through pinned memory on a stream of their own, or, where the memory is still in use,
// behind that, on its stream. Each of these streams has pinned memory of its own, up to 8 MiB that
// go round (64 MiB in all): the host waits for no upload, but where that is full, for the oldest of
// the same stream. Downloads have two streams, and wait for what wrote the bytes alone: what is
// ready never waits for what is not. The host waits for the bytes, and for nothing else.
//
// Kernels report what they find wrong (an index out of range) in the GPU's fault record, which
// every download reads, once what it waits for is done; so does [GPU.Check], for bytes that leave
// by another way. A record that tells of something is read again when all that was submitted is
// done, and cleared before anything else is submitted: so it is whole, and no two looks take a
// fault from one another.
//
// The record tells of one fault, and has the flags of all runs that met one: each run has one of 64
// in turn, or its graph's. Each block knows of which runs that may meet a fault its value came, and
// the GPU knows of which runs a look has found nothing. When the record is cleared, the values that
// came of others, whose flags are up, are spoiled, as is what comes of them later: who asks for one
// is told, with a [FaultError], each time, and steps by one are refused, until all of it is written
// anew. Kernels that replace what lives on (an optimizer's) look at the flags of the runs that they
// go by, and do nothing where one is up: so the fault does not come into what they step. That a
// step was left out is told once to who steps it next, or by it ([GPU.Known] asks before a step
// begins), and once to who reads it, unless somebody was told who depends on the same run. Who has
// nothing to do with a fault is not told, whoever finds it, and nothing of it is left out; but
// while the record is cleared, nothing is submitted. Where two runs of which nothing is known have
// one flag, they are taken for one another: where there are more runs than flags, or more graphs of
// runs that may meet a fault than 48. tell.go decides all this, and does no I/O. Who asks of the
// whole GPU is told of each fault that nobody was told of. A fault of the machine itself (a wild
// address) loses the device: all that follows fails with [device.ErrLost].
//
// Copies to and from memory that other processes see ([GPU.Pass]) have a stream of their own, and
// begin when what they copy is there: a gradient does not stand behind the rest of the backward,
// nor behind another one that is not there yet.
//
// Bytes for another GPU of the process go straight, where the driver says that the two reach one
// another ([Neighbor]): on a stream of their own, after what wrote them, and what used the memory
// that they go to. The host waits for them, and looks at the source's fault record.
//
// Drivers and GPUs are safe for concurrent use.
package cuda
