// Package cuda is a GPU: what one can do ([Driver]), and a device over it ([GPU]).
//
// Two drivers implement it: package native calls NVIDIA's (build tag gpu), and package ptx runs the same PTX kernels on the host's
// processor, so that everything above is tested where there is no GPU. Nothing here or above knows which it has.
//
// Kernels run on one stream, Compute, in the order in which they were submitted; so memory that was released may be used again
// at once, by later work. Uploads go through pinned memory on Compute, and wait only for that. Downloads run on a stream of their own, after all that had been
// submitted before, so that later kernels do not wait for them; the host waits for the bytes.
//
// Kernels report what they find wrong (an index out of range) in the GPU's fault record, which every download reads, in the order of Compute, and
// clears: the next download, of whatever it is, fails (as does Check, for bytes that leave by another way) with a [FaultError]. What was computed between the fault and that is not to be used; kernels that
// replace what lives on (an optimizer's) look at the record, and do nothing. A fault of the machine itself (a wild address) loses the device: all that
// follows fails with [device.ErrLost].
//
// Bytes for another GPU of the process go straight, where the driver says that the two reach one another ([Neighbor]): on a stream of their own, after
// what was submitted to either before. The host waits for them, and looks at the source's fault record.
//
// Drivers and GPUs are safe for concurrent use.
package cuda
