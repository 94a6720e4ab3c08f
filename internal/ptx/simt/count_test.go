package simt

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// sectorsOf and wavefrontsOf are what Sectors and Wavefronts count, of places of so many bytes.
func sectorsOf(at []uint64, size int) (sectors, bytes int) {
	all, each := map[uint64]bool{}, map[uint64]bool{}
	for _, q := range at {
		for k := range size {
			each[q+uint64(k)] = true
			all[(q+uint64(k))/32] = true
		}
	}
	return len(all), len(each)
}

func wavefrontsOf(at []uint64, size int) (turns int) {
	in := map[uint64]map[uint64]bool{}
	for _, q := range at {
		for k := range size {
			word := (q + uint64(k)) / 4
			if in[word%32] == nil {
				in[word%32] = map[uint64]bool{}
			}
			in[word%32][word] = true
			turns = max(turns, len(in[word%32]))
		}
	}
	return turns
}

func TestTrafficIsWhatADumbCountOfEveryByteSays(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 1))
	for range 20_000 {
		size := 1 << r.IntN(5)
		a := &Access{All: size, Off: uint64(size * r.IntN(4))}
		var reg Lanes
		stride, m := uint64(size*(1+r.IntN(9))), r.Uint32()|r.Uint32()
		for l := range reg {
			reg[l] = 1<<20 + uint64(l)*stride
			if r.IntN(3) == 0 {
				reg[l] = 1<<20 + uint64(size*r.IntN(200))
			}
		}
		var s Sectors
		var w Wavefronts
		s.count(a, &reg, m)
		w.count(a, &reg, m)
		var all []uint64
		taken, least := 0, 0
		group := min(32, 128/size)
		for first := 0; first < 32; first += group {
			var some []uint64
			for l := first; l < first+group; l++ {
				if m>>l&1 == 1 {
					some = append(some, reg[l]+a.Off)
				}
			}
			all = append(all, some...)
			taken += wavefrontsOf(some, size)
			least += min(1, len(some))
		}
		sectors, bytes := sectorsOf(all, size)
		require.Equal(t, Sectors{1, int64(sectors), int64(bytes)}, s, "%d bytes by %d lanes at %v", size, bits.OnesCount32(m), reg)
		require.Equal(t, Wavefronts{int64(least), int64(taken)}, w, "%d bytes by %d lanes at %v", size, bits.OnesCount32(m), reg)
	}
}
