// Package elastic decides who takes part in a job and keeps the workers running.
//
// Run starts the workers of one node and watches them: it hosts the job's store, gives each worker its place in the
// environment variables that torchrun sets, and shows their output line by line with the rank in front. The first
// worker that fails ends the job: the others get SIGTERM, after Spec.Grace SIGKILL, and Run's error names the worker,
// how it ended, and its last words. Cancelling Run's context ends the job in the same way.
//
// Each worker is the leader of a process group of its own, and ends with it: what a worker leaves running is killed
// when the worker is gone. On Linux the workers also die with the process that called Run.
//
// What to do about an exit, a cancellation or a passed deadline is decided by a state machine without I/O or clock
// (group.go); Run is its shell. Run owns all it starts: when it returns, no process, goroutine, file or listener of it
// is left. Calls of Run are independent of each other and may overlap.
package elastic
