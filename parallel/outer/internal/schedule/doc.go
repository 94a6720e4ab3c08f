// Package schedule says when a worker exchanges which fragment of its parameters, and when it
// applies the result. It is pure: no I/O, no clock, no numbers of the parameters.
//
// A [Machine] is one worker's. Each inner step is an event, and answers with what to do, in order.
// Exchanges are numbered; number k is of fragment k modulo the number of fragments, and a worker
// has one under way at most. So workers whose machines hear the same make the same exchanges in the
// same order.
//
// The paper for it is Douillard et al., "Streaming DiLoCo with overlapping communication", 2025
// (arXiv 2501.18512), algorithm 2; that workers of different speed call one another is ours.
package schedule
