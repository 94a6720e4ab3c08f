// Package soak lets one random test be both a quick check and a long one: the number of cases it asks for grows under
// the build tag "soak" (make soak).
package soak

// Cases is how many random cases a test should run where n keeps it quick.
func Cases(n int) int { return n * factor }
