// Package kerneltest is the suite that every kernel backend passes: each instruction against an
// oracle that computes it by its definition, over random shapes and dtypes, and the ways in which a
// run must be refused.
//
// A backend's test calls [Run] (or [RunFew]) with a function that gives a device. [Check] compares
// one case, and [Case] and [Wild] draw cases.
//
// The oracle's loops are not instrumented for the race detector (go:norace): they run on one
// goroutine, over values of their own, and took half of the suite's time under it. The backends'
// are.
package kerneltest
