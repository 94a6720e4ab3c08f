// Package counts counts the calls of each function: how many are under way, how they ended, and how
// long they took. Finding a function's counts neither locks nor allocates. The number of functions
// that are told apart is bounded.
package counts
