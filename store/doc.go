// Package store keeps the few keys and values by which the workers of a job find one another: who
// takes part, at which address, and when everybody is there.
//
// There are five stores behind one interface, [Store]:
//
//   - [Memory] lives in this process.
//   - [File] is an append-only log that the processes of one machine, or of a shared file system,
//     have open together, in the format of PyTorch's FileStore: processes of PyTorch and of Weft
//     may share one file.
//   - [Client] talks to a [Server], or to one of PyTorch, over TCP in PyTorch's TCPStore protocol.
//   - package store/etcd has one in an etcd cluster, which outlives the loss of a machine.
//   - [Prefix] is a view of any of them in which every key starts with a prefix.
//
// [Open] makes one from a rendezvous URL: env://, tcp://, file://, or a scheme of the caller's own.
//
// # How it is built
//
// What a store does is one state machine (state.go) without I/O, clock or goroutine: a command in,
// replies out, some of them for clients that have been waiting. Memory and Server are shells around
// it. It also tells each of its changes as a command that repeats it, which is what a journal and a
// file keep. dialect.go says which bytes mean which command, wire.go and its neighbours turn
// commands and replies into bytes and back.
//
// # Contract
//
// Every store is safe for concurrent use, and every operation is atomic, those on several keys
// included: results are those of a map under one lock. (What a Client cannot promise with a server
// of PyTorch, its comment says.) When a call returns without an error, every later call of any
// client sees its effect. Values are copied on the way in and on the way out; nothing that is
// passed or returned is shared.
//
// The deadline of an operation is that of its context; where there is none the store's own timeout
// applies, 300 s unless configured. An operation that is cancelled or times out leaves nothing
// behind and harms no other: such a Pop has taken nothing. To have arrived at a Barrier counts,
// though.
//
// A change that failed has not happened, unless its error matches [ErrUncertain]: then its answer
// was lost, and not necessarily the change. What can be repeated without harm (Get, MultiGet,
// Check, Wait, NumKeys, ListKeys, Len, Set, MultiSet, Delete) is repeated over a new connection
// until its deadline when a Client loses its own, and a Watch is renewed; a Delete that was
// repeated may say that there was no key though it has removed it itself. The others (Add,
// CompareSet, Append, Push, Pop, TryPop, Barrier) fail unless nothing of them had been sent. A Pop
// that waits has taken nothing yet, and a Barrier that waits has been told that it has arrived:
// these go on, too.
//
// [Store.Wait] ends when each of its keys has been seen to exist; a key that is deleted after it
// was seen is not awaited again. [Store.MultiGet] returns what was there at one moment. Who waits
// is woken by every operation that creates a key. In a queue each value goes to one Pop, in Memory
// to the one that has waited longest. In a Server that one is called, and the value is its own
// unless one that has not waited comes first; whoever does not come when called has left it to the
// next. A [Watch] tells every change in order; it never holds up the store, and its reader learns
// how many changes it missed.
//
// Keys are any non-empty bytes. Their lengths, those of values, the number of keys in one call, and
// the memory that all of them take are bounded by [Limits]; the values of one MultiGet by four
// times the longest value. Numbers are stored as decimal text, so Add and Get see the same value.
// The count of a Barrier is such a number, under its key.
//
// Every error is an [Error] that names the operation, the key and, over TCP, the server, and wraps
// one of the sentinels in errors.go or the context's cause.
//
// # The protocol
//
// PyTorch's releases speak it in mutually incompatible ways, see [Dialect]. A Server tells PyTorch
// 2.2 and later from those before by their first bytes; whether the others are 1.13 and 2.0, which
// speak alike, or 2.1, bytes cannot tell, so [ServerConfig] says it. A Client tries that of the
// later ones first. Our own client asks our own server for a mode of its own, in which errors are
// told instead of ending the connection, Get takes one round trip, as Pop does where it need not
// wait, and one connection carries all Watches of a client. No client of PyTorch can come into that
// mode, and against a server of PyTorch our client does with what is there: it waits and then gets,
// and what that server has not is [ErrUnsupported].
//
// Where a client of PyTorch could notice, the Server does as PyTorch's. It differs on purpose in
// these points:
//
//   - a client that sends half a command, or reads no replies, delays nobody else;
//   - lengths, counts and memory are bounded before anything is allocated;
//   - it listens on the address it is given and on no other, and on loopback serves processes of
//     its own user only;
//   - a COMPARE_SET that creates a key wakes those who wait for it, in every dialect, and one that
//     fails wakes nobody;
//   - a MULTI_SET is applied once and as a whole, and a MULTI_GET sees one moment;
//   - VALIDATE is required, in whatever pieces it comes, and a wrong one ends the connection;
//   - a BARRIER ends when as many have come as it asks for; no SET, ADD or smaller BARRIER ends it;
//   - who watches a key twice gets its news once.
//
// An oversized or unknown command, a command that would exceed the memory, an ADD to what is no
// number and, before PyTorch 2.2, a GET of a missing key close that client's connection, as
// PyTorch's protocol has no way to say more.
//
// # Safety
//
// PyTorch's protocol has neither authentication nor encryption. What a [Server] does about that
// depends on its configuration:
//
//   - With TLS, who completes the handshake is a member. Who speaks plain text, told by the first
//     byte on the same port, is a guest. Guests have keys of their own: they neither see nor change
//     anything of the members', nor take their memory.
//   - Plain text is taken from this host's processes of the server's own user, and of root, unless
//     [Plain] says otherwise. Loopback alone proves nothing, as any user of a host can connect to
//     it. The kernel says who does, on Linux; elsewhere it does not, and all processes of the host
//     are taken.
//   - Without TLS, a server that listens beyond loopback takes everybody: who reaches the port can
//     read and write every key.
//
// A [Client] without TLS refuses a server on this host of another user, see [ClientConfig]. With
// TLS each end proves itself by its certificate.
//
// Who connects and proves nothing, by a whole command or a handshake, is closed after five seconds
// if it is none of the server's own user's, and before that if its place is needed: the oldest goes
// first, of the newcomer's own user or network if that has as many as others. So silent connections
// keep nobody out. Strangers cause a few lines in the log, and then one a second.
//
// # What outlives the process
//
// A Server keeps its keys in memory and they end with it, unless it is given a journal, see
// [JournalConfig]: then whatever anybody has heard of a change is in the journal first, and a
// Server started anew with that file has it, after a crash of the machine too if the journal is so
// strict. Clients connect again, and their waits go on, those of Pop and Barrier too; who waited or
// watched is not in it.
package store
