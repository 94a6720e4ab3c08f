// Package thresholds knows the sizes at which the code takes another way: for larger values other
// memory, for longer sums other loops, for more work more threads. Random tests draw sizes around
// each of them; a test compares the list with the constants in the source, so that a new threshold
// is in the list, and so is drawn around, or the tests fail.
package thresholds
