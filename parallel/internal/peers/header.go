package peers

import "slices"

// HeaderLen is how many elements a header has in front of its lists.
const HeaderLen = 2

// Header is what a rank tells of a step, for a sum over all ranks: its rows, whether it could do
// its part, and some lists.
func Header(rows int, failed error, lists ...[]float32) []float32 {
	header := [HeaderLen]float32{float32(rows), 0}
	if failed != nil {
		header = [HeaderLen]float32{0, 1}
	}
	return append(header[:], slices.Concat(lists...)...)
}

// ReadHeader is what the sum says: the rows of all ranks, whether any has failed, and the lists.
func ReadHeader(sum []float32) (rows float64, failed bool, lists []float32) {
	return float64(sum[0]), sum[1] > 0, sum[HeaderLen:]
}
