package median

import "slices"

// Of is the median of what is not empty.
func Of(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[n/2] + v[(n-1)/2]) / 2
}
