// Package program is the compiler: it takes a function as a list of instructions over values,
// rewrites it, plans its memory and runs it.
//
// A [Unit] is the list. It comes from a graph, one instruction per op, and each pass (a file of its
// own) rewrites it without changing what it computes, but for rounding: a pass takes a valid unit
// and leaves a valid one. [Optimize] runs them in order: dead, fold, layout and same until nothing
// changes, then fuse, view and order. testdata has units before and after each. [Compile] plans
// where every value lies and hands the whole to the device's backend as one routine; [Program.Run]
// runs it.
//
// A unit belongs to whoever builds it, one user at a time. A program is immutable and may run any
// number of times at once; the memory of a run comes from the device and goes back to it, except
// the results, which are the caller's. Wrong units are [ErrUnit]; errors of a run name the
// instruction. No panic gets out.
package program
