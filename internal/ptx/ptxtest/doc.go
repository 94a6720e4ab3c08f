// Package ptxtest gives tests GPUs that are package ptx's machines, and looks at their end whether
// something was left there.
package ptxtest
