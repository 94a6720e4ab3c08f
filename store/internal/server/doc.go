// Package server is the store's server: connections around one state machine, or two where there
// are guests.
//
// A connection is let in by package door (admit.go) and then read by one goroutine (serve.go). A
// command is applied under the server's lock; its replies go to the queues of the clients that they
// are for (peer.go) and are written when the journal has what they depend on (journal.go). Nobody
// waits for another client's socket: a reply is written at once where the socket takes it, and by a
// goroutine of its own where it does not.
//
// # Who is served
//
// PyTorch's protocol has neither authentication nor encryption. With TLS, who completes the
// handshake is a member. Who speaks plain text, told by the first byte on the same port, is a
// guest. Guests have a key space of their own (space.go): they neither see nor change anything of
// the members', nor take their memory. Plain text is taken from this host's processes of the
// server's own user, and of root, unless [Plain] says otherwise. Loopback alone proves nothing, as
// any user of a host can connect to it. Without TLS, a server that listens beyond loopback takes
// everybody.
//
// Who connects and proves nothing, by a whole command or a handshake, is closed after five seconds
// if it is none of the server's own user's, and before that if its place is needed. So silent
// connections keep nobody out. Strangers cause a few lines in the log, and then one a second.
//
// Who speaks plain text where TLS is a must, or TLS where there is none, is told so before it is
// closed: its client does not try again, and says what to give.
//
// # Dialects
//
// A server tells PyTorch 2.2 and later from those before by their first bytes. Whether the others
// are 1.13 and 2.0, which speak alike, or 2.1, bytes cannot tell, so [Config] says it.
package server
