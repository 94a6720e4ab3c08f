// Compile measures how long functions take to compile, forward and gradient, by the number of ops
// in their graphs, prints a table and draws it.
//
//	go run ./bench/compile [-max 20000] [-rounds 3] [-o docs/compile-time.svg]
//
// The time is the processor's for a function's first call and first backward less that for its
// second ones, which only run. Of several rounds the least counts.
package main
