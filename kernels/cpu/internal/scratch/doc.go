// Package scratch is memory for the time of one run. What one run gives back the next one takes,
// whatever instruction it computes, so that it stays in the cache. Who takes memory frees it, once.
// It holds anything when it is taken. Everything is safe for concurrent use.
package scratch
