// Package compile makes the programs of a function for one set of input types: one forward, and one
// backward for each set of results that have a gradient.
//
// The steps, in the order in which data goes: [New] builds the body's graph (draw.go), adds the
// backward of all results to it, and decides what the forward saves for that (saved.go, and
// narrow.go where a device rounds to bfloat16); then it lists the forward and compiles it.
// [Function.Backward] and [Function.WithCopies] compile the other programs when they are first
// needed. Package program has the compiler itself; tensors, and who calls the programs, are
// package autodiff's.
package compile
