// Package server is the store's server: connections around one state machine, or two where there
// are guests.
//
// A connection is let in by package door (admit.go) and then read by one goroutine (serve.go). A
// command is applied under the server's lock; its replies go to the queues of the clients that they
// are for (peer.go) and are written when the journal has what they depend on (journal.go). Nobody
// waits for another client's socket: a reply is written at once where the socket takes it, and by a
// goroutine of its own where it does not.
//
// Members and guests have key spaces of their own (space.go). What a client sends is bounded, and
// who breaks a rule is closed.
package server
