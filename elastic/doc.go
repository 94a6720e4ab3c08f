// Package elastic decides who takes part in a job and keeps the workers running.
//
// Run starts the workers of one node and watches them. Where the job has several nodes it first
// meets the others (package rdzv): they agree on their ranks, and on who goes on when one of them
// is lost, leaves or comes. It gives each worker its place in the environment variables that
// torchrun sets, and shows their output line by line with the rank in front, or keeps it in files,
// as Spec.Logs says.
// Output that cannot be written stalls nobody, and is Run's error at the end ([ErrOutput]). Local rank 0 reads Spec.Stdin.
//
// TORCHELASTIC_RESTART_COUNT counts starts of the whole group, as torch takes it, and
// [RestartsVariable] those of single workers too.
//
// A worker that fails is started again in its place while the restarts of the job last, and the
// others hear of it; or all workers of all nodes are, as Spec.Policy says. A worker that is of the
// program's own making learns every place that it gets by Join, and goes on without being started
// again: [Place.Over] says when to form anew, and [Membership.Each] is the loop for that. One that
// never asked is started again when the nodes become others, as torchrun does it; that costs no
// restart. A round starts when every node of it has ended such workers of older rounds, so that no
// two of them are ever in two worlds. (Who has asked is seen on Linux alone; elsewhere RestartGroup
// is for such programs. A node that is cut off ends its workers when it hears that it was lost.)
// When no restart is left the job ends: the others get SIGTERM, after Spec.Grace SIGKILL, and Run's
// error names the worker that failed first after the last restart, how it ended, its last words on
// stderr, and what it wrote into its error file (TORCHELASTIC_ERROR_FILE, as PyTorch's @record and
// [WriteError] do). Cancelling Run's context ends this node's part, and the other nodes go on
// without it.
//
// The workers of a round meet in a store that the node with rank 0 hosts; each round has a new one.
// The nodes meet in another, which the node that Spec.Endpoint names hosts: that node's end is the
// end of the job, unless it is started again within a minute, or four times Spec.Silence, or
// Spec.Meet opens a store that outlives it, such as etcd's. A node that waits for the others, or
// for that store, says so on Spec.Stderr after 3 seconds, and then ever more rarely.
//
// A worker that cannot be started has failed, as one that ends with a code does: [Failure] has the
// system's reason.
//
// Each worker is the leader of a process group of its own, and ends with it: what a worker leaves
// running in that group is killed when the worker is gone. What has left the group is out of reach,
// but where this process inherits it (Spec.Adopts): then it is killed when the job ends. On Linux
// the workers also die with the process that called Run, even if that is killed; what they have
// started then goes on (a worker that is a shell script leaves its program), and is to be ended by
// whatever killed it. Where there are as many as cores, or more, their timers may be a millisecond
// late, so that Go's runtime does not keep looking after each of them on cores that they all want.
//
// What to do about an exit, a place, a cancellation or a passed deadline is decided by a state
// machine without I/O or clock (node.go); Run is its shell. The stages of an agent, and what a
// signal does in each, are in stage.go. Run owns all it starts: when it returns, no process within
// reach, goroutine, file or listener of it is left but what Spec.Logs asks for. Calls of Run are
// independent of each other and may overlap.
package elastic
