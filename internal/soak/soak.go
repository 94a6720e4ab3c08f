package soak

// Cases is how many random cases a test should run where n keeps it quick.
func Cases(n int) int { return n * factor }
