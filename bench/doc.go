// Package bench holds the benchmarks of whole jobs: calls, passes and training steps between two
// processes of one machine. Benchmarks of one room alone stand in that room. README.md says what
// each measures and how to compare.
package bench
