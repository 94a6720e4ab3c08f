// Package store keeps the few keys and values by which the workers of a job find one another: who takes part, at
// which address, and when everybody is there.
//
// There are four stores behind one interface, [Store]:
//
//   - [Memory] lives in this process.
//   - [File] is an append-only log that the processes of one machine, or of a shared file system, have open together,
//     in the format of PyTorch's FileStore.
//   - [Client] talks to a [Server] over TCP in PyTorch's TCPStore protocol, in the dialect of PyTorch 1.13.
//   - [Prefix] is a view of any of them in which every key starts with a prefix.
//
// [Open] makes one from a rendezvous URL: env://, tcp:// or file://.
//
// # How it is built
//
// What a store does is one state machine (state.go) without I/O, clock or goroutine: a command in, replies out.
// Memory and Server are shells around it. wire.go turns commands and replies into bytes and back.
//
// # Contract
//
// Every store is safe for concurrent use, and every operation is atomic: when a call returns without an error,
// every later call of any client sees its effect. Values are copied on the way in and on the way out; nothing that is
// passed or returned is shared.
//
// The deadline of an operation is that of its context; where there is none the store's own timeout applies, 300 s
// unless configured. An operation that is cancelled or times out leaves nothing behind and harms no other. A mutation
// that failed with [ErrTimeout], [ErrUnreachable] or a cancellation may nevertheless have happened: the answer was
// lost, not necessarily the question.
//
// [Store.Wait] ends when each of its keys has been seen to exist; a key that is deleted after it was seen is not
// awaited again.
//
// Keys are any non-empty bytes. Their lengths, those of values, and the number of keys in one call are bounded by
// [Limits]. Numbers are stored as decimal text, so Add and Get see the same value.
//
// Every error is an [Error] that names the operation, the key and, over TCP, the server, and wraps one of the
// sentinels in errors.go or the context's cause.
//
// # What it does not do
//
// The protocol has neither authentication nor encryption: who reaches the port can read and write every key. The
// server therefore listens on loopback unless it is given another address, and on no address but that. It keeps
// nothing on disk and ends with its process.
package store
