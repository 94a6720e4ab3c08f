package parallel

import (
	"math/bits"

	"github.com/weft-project/weft/collective"
)

// Rows says which rows of the data are taken at a step. Every pass over the data takes each row
// once, in an order of its own. A batch may begin in one pass and end in the next.
type Rows struct {
	Seed  uint64
	N     int // rows of the data
	Batch int // rows of a step, on all ranks together
}

// Of gives the rows of a rank of so many. It depends on nothing else, so training can go on at any
// step, with any number of ranks. Their parts differ by one row at most, and may be empty.
func (r Rows) Of(step uint64, rank, size int) []int {
	if r.N <= 0 {
		return nil
	}
	lo, hi := collective.Share(max(r.Batch, 0), size, rank)
	rows := make([]int, 0, hi-lo)
	for k := lo; k < hi; k++ {
		high, low := bits.Mul64(step, uint64(r.Batch))
		low, carry := bits.Add64(low, uint64(k), 0)
		pass, at := bits.Div64((high+carry)%uint64(r.N), low, uint64(r.N))
		rows = append(rows, r.shuffled(pass, at))
	}
	return rows
}

// shuffled is where a pass has a row: a permutation of the N numbers. It permutes as many bits as
// these need, and goes on from what is too large: that is on the way to another number.
func (r Rows) shuffled(pass, at uint64) int {
	half := (bits.Len64(uint64(r.N)-1) + 1) / 2
	mask := uint64(1)<<half - 1
	key := mixed(r.Seed ^ mixed(pass))
	for {
		left, right := at>>half, at&mask
		for round := range uint64(6) {
			left, right = right, left^mixed(key+mixed(right)+round)&mask
		}
		if at = left<<half | right; at < uint64(r.N) {
			return int(at)
		}
	}
}

// mixed is a number whose every bit depends on all bits of x (splitmix64).
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
