// Package simnet is a network in memory that can delay, drop and cut, for tests of what is built on
// package transport.
//
// A [Net] joins hosts by name; [Net.Host] gives a host's transport.Network. Every message passes
// through the real frame codec and arrives after a random delay: messages of one stream stay in
// order, messages of different streams overtake each other. Delays come from the seed and from
// which message of which stream of which link it is, so that a run does not depend on how
// goroutines are scheduled. There is no I/O and no goroutine that waits: time passes in timers, so
// a Net made inside a testing/synctest bubble runs on the bubble's clock, and a bubble can end once
// all that its test started has ended.
//
// A Net and all that comes from it are safe for concurrent use, by the rules of package transport.
package simnet
