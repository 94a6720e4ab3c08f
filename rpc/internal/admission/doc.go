// Package admission decides which calls of its peers a worker runs now, which wait, and which it
// refuses, and keeps the goroutines that run them.
//
// A [Gate] bounds the calls that run and those that wait. Peers take turns, each with its oldest
// call first. Where all places to wait are taken, the peer with the longest queue loses its
// youngest call. The decisions are a state machine without clocks; the Gate adds the lock.
//
// A [Pool] keeps goroutines that have worked for the next piece of work: their stacks have grown
// already. All that it starts is counted in the worker's WaitGroup.
package admission
