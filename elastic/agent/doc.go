// Package agent starts the workers of one node and keeps them running.
//
// Run meets the other nodes of the job (package rdzv): they agree on their ranks, and on who goes
// on when a node is lost, leaves or comes. It gives each worker its place in the environment
// variables that torchrun sets, tells it each later place (package elastic), and shows its output
// line by line with the rank in front, or keeps it in files, as Spec.Logs says.
//
// A worker that fails is started again in its place while the restarts of the job last, and the
// others hear of it; or all workers of all nodes are, as Spec.Policy says. A worker that called
// elastic.Join hears of its new place and goes on. One that never asked is started again when the
// nodes become others; that costs no restart. So is one that has ended well when a new round starts
// that counts on it, and one that ends well before it has read its latest place. A round starts
// when every node of it has ended such workers of older rounds, so that no two of them are ever in
// two worlds. Only Linux can tell who has asked; elsewhere RestartGroup is for programs that do not
// call Join.
//
// When no restart is left the job ends: the others get SIGTERM, after Spec.Grace SIGKILL, and Run's
// error names the worker that failed first after the last restart, its last words on stderr, and
// its error file. Cancelling Run's context ends this node's part, and the other nodes go on without
// it.
//
// The workers of a round meet in a store that the node with rank 0 hosts; each round has a new one.
// The nodes meet in another, which the node that Spec.Endpoint names hosts: that node's end is the
// end of the job, unless it is started again within a minute, or four times Spec.Silence, or
// Spec.Meet opens a store that outlives it, such as etcd's.
//
// Each worker leads a process group of its own. What it leaves running in that group is killed when
// the worker is gone; what has left the group is killed when the job ends, where this process
// inherits it (Spec.Adopts). On Linux the workers also die with the process that called Run.
//
// A state machine without I/O or clock decides (node.go), and Run is its shell; stage.go lists the
// stages of an agent, and what a signal does in each. When Run returns, no process within reach,
// goroutine, file or listener of it is left but what Spec.Logs asks for. Calls of Run are
// independent and may overlap.
package agent
