// Package gpus gives a group whose members have a GPU each a communicator of NCCL, and has it
// reduce buffers on GPUs there.
//
// [Open] is called by all members. They first tell one another, over the group's own links, whether
// they have NCCL, which version, and which GPU; so a library that is missing, another version, or
// two members on one GPU are told to all before NCCL is called. Then the first member makes the id,
// which travels over the same links, which are encrypted; what NCCL itself sends is not.
//
// [Comm.Run] submits operations to a stream, on addresses of the GPU. Before NCCL sees them, all
// members have said what they call: who calls something else fails it on all, with both calls and
// their lines, and the communicator lives on. And all communicators of a [Device] are served in one
// order that is the same everywhere, whatever the order in which goroutines call: NCCL alone would
// wait for ever. That costs two messages between all members for each Run, off the GPU's path.
// [Comm.Capture] does so once for what is captured in a graph, whose launches are the caller's.
//
// Nobody waits for the dead. A communicator ends with an error of NCCL's on any member, with a
// deadline or a cancelled context, and with its group. All members hear of it, with the name of
// who was first, and abort; what was under way leaves garbage. NCCL's calls are made on threads of
// their own: one that never returns holds up neither its caller nor other communicators.
//
// # Buffers
//
// [Attach] has a group reduce buffers where they lie, by a communicator, or, on one host, by
// kernels that read memory which all members have set aside and opened for one another. Who maps
// what, who waits for what, and when memory is written again stands in docs/design.md, "Sums on
// GPUs".
package gpus
