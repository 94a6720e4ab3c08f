// Package state is the store as a state machine: a [Command] of a client in, replies out, some of
// them for clients that have been waiting. It holds values, queues, who waits for what, and who
// watches.
//
// It has no I/O, no clock and no goroutine, and it locks nothing. Its owners (Memory, File, Server)
// are shells around it: they hold the lock, they number the clients, and they carry the replies.
// State.Changed hears of each change as a command that repeats it, which is what a journal and a
// file keep. A command that fails has changed nothing.
//
// Who waits stands in a line of its key (wait.go). A queue calls the first in its line, and the
// value is that one's own unless one that has not waited comes first (queue.go). A barrier is a
// number and a line (barrier.go).
package state
