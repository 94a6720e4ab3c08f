// Package parallel cuts work into pieces and runs them on the goroutines of one pool.
//
// [For] uses the calling goroutine and the helpers that are idle; it allocates nothing once its
// pools are warm. Its cuts depend on sizes alone, never on the number of threads. OMP_NUM_THREADS
// or GOMAXPROCS bounds the threads of a process, which all of its programs share. Everything is
// safe for concurrent use, also from within a piece.
package parallel
