// Package ptxtest gives tests GPUs that are package ptx's machines, with a library for products
// where they want one, and looks at their end whether something was left there.
package ptxtest
