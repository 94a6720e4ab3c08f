// Package store keeps the few keys and values by which the workers of a job find one another: who
// takes part, at which address, and when everybody is there.
//
// There are five stores behind one interface, [Store]. [Memory] lives in this process. [File] is a
// log that processes have open together, in the format of PyTorch's FileStore. [Client] talks to a
// [Server], or to one of PyTorch, in PyTorch's TCPStore protocol. Package store/etcd has one in an
// etcd cluster. [Prefix] is a view of any of them. [Open] makes one from a rendezvous URL: env://,
// tcp://, file://, or a scheme of the caller's own.
//
// # Contract
//
// Every store is safe for concurrent use. Every operation is atomic, on several keys too: results
// are those of a map under one lock. (A Client of PyTorch's server promises less, see there.) After
// a call without an error, every later call of any client sees its effect. Values are copied on the
// way in and out.
//
// A context's deadline bounds an operation, or else the store's own timeout, 300 s by default. One
// that is cancelled or times out leaves nothing behind: such a Pop has taken nothing. To have
// arrived at a Barrier counts, though.
//
// A change that failed has not happened, unless its error matches [ErrUncertain]: then its answer
// was lost. A Client that loses its connection makes a new one until the deadline. It repeats what
// does no harm twice (what reads, Set, MultiSet, Delete) and renews a Watch; a Delete may then say
// that there was no key, though it removed it itself. A Pop or Barrier that waits goes on. All else
// fails unless nothing of it was sent.
//
// Wait ends when each of its keys has been seen; one that is deleted after that is not awaited
// again. Whatever creates a key wakes who waits for it. In a queue each value goes to one Pop: in
// Memory to the one that waits longest; in a Server that one is called, and has the value unless
// one that has not waited comes first. A [Watch] tells every change in order and never holds up the
// store.
//
// Keys are any non-empty bytes. [Limits] bounds keys, values, keys in one call, and all memory; the
// values of one MultiGet have up to four times the longest value. Numbers are decimal text, so Add
// and Get see the same; the count of a Barrier is such a number, under its key.
//
// Every error is an [Error] and wraps one of the sentinels here, or the context's cause.
package store
