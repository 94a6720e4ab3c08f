package soak

// few is how many cases a quarter is not taken of.
const few = 20

// Cases is how many random cases a test should run where n keeps it quick.
func Cases(n int) int { return max(min(n, few), n*times/of) }
