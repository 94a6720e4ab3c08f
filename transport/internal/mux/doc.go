// Package mux carries the streams of a link over one [lane.Conduit].
//
// A [Session] is one end. What travels on the conduit are chunks: parts of messages, credit,
// resets, and words of the lanes' channels. One goroutine reads, and never waits for who uses the
// streams. Senders write themselves where the conduit takes it at once.
//
// Large tensors do not travel here. A Session asks its channels, in order of preference, which one
// takes them; the message then carries a ticket.
package mux
