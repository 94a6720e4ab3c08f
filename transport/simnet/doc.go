// Package simnet is a network in memory that can delay, drop and cut, for tests of what is built on
// package transport.
//
// A [Net] joins hosts by name; [Net.Host] gives a host's transport.Network. Links are those of
// package transport, streams and flow control included: only the connection below them is
// simulated. All tensors travel within their messages.
//
// Every chunk arrives after a random delay. Chunks of one stream stay in order, and those of
// different streams overtake each other. A delay depends on the seed and on which chunk of which
// stream of which link it is, so that a run does not depend on how goroutines are scheduled.
//
// There is no I/O, and time passes in timers, so a Net made inside a testing/synctest bubble runs
// on the bubble's clock. Each end of a link has a goroutine that reads until the link has ended.
//
// A Net and all that comes from it are safe for concurrent use, by the rules of package transport.
package simnet
