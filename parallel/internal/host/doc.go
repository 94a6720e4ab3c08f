// Package host is memory of the host in which parameters and gradients travel: buffers, their
// parts, and the places of several values in one buffer. Packages below parallel share it.
//
// A function that gives a buffer gives a reference to it, which the caller releases. Where one
// fails it has released what it had made.
package host
