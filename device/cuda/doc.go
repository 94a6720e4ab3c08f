// Package cuda is a GPU: what one can do ([Driver]), and a device over it ([GPU]).
//
// Two drivers implement it: package native calls NVIDIA's (build tag gpu), and package ptx runs the same PTX kernels on the host's
// processor, so that everything above is tested where there is no GPU. Nothing here or above knows which it has.
//
// A GPU has three streams. Kernels run on Compute, in the order in which they were submitted; so memory that was released may be used again
// at once, by later work. Uploads go through pinned memory on Compute. Downloads run on a stream of their own, after all that had been
// submitted before, so that later kernels do not wait for them; they are the only place where the host waits.
//
// Kernels report what they find wrong (an index out of range) in the GPU's fault record, which every download reads and clears
// ([GPU.Faults]); results computed after such a fault are undefined and in bounds. A fault of the machine itself (a wild address) loses the
// device: all that follows fails with [device.ErrLost].
//
// Drivers and GPUs are safe for concurrent use.
package cuda
