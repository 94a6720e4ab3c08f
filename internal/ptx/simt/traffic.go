package simt

import "math/bits"

// Traffic is what a kernel's launches asked of memory, counted as GPUs since sm_70 do it: an
// instruction of a warp asks global memory for whole sectors of 32 bytes, each once, and goes to
// shared memory as often as different words of four bytes lie in one of its 32 banks (NVIDIA, CUDA
// C++ Programming Guide, "Device Memory Accesses" and "Shared Memory"). Caches are not looked at:
// what a warp asks for twice counts twice. Atomic operations on one word count once, which a GPU
// may do one after the other.
type Traffic struct {
	Launches int64
	Steps    int64 // instructions of warps
	Products int64 // of those, products of matrices
	Loads    Sectors
	Stores   Sectors // atomic operations, too
	Shared   Wavefronts
	Operands int64 // bytes of factors in shared memory that products of four warps read, each once for the four
	Local    int64 // bytes of threads' own memory: spilled registers are not among them, for PTX has as many as it likes
}

// Sectors are accesses to global memory.
type Sectors struct {
	Requests int64 // instructions of warps
	Sectors  int64
	Bytes    int64 // that lanes asked for, each once in a request: less than the sectors have, where those are not used wholly
}

// Wavefronts are accesses to shared memory.
type Wavefronts struct {
	Least int64 // were there no conflicts: one for 32 lanes of up to four bytes, 16 of eight, or 8 of sixteen
	Taken int64
}

// Meter is where a warp's kernel counts; nil where nobody wants to know.
func (w *Warp) Meter() *Traffic { return w.b.meter }

// Count adds an access of a warp. Lanes of one instruction are in one space.
func (t *Traffic) Count(a *Access, at *Lanes, m uint32) {
	if m == 0 {
		return
	}
	q := at[bits.TrailingZeros32(m)] + a.Off
	space := a.Space
	if space == Generic {
		space = SpaceAt(q)
	}
	switch {
	case space == Shared:
		t.Shared.count(a, at, m)
	case space == Local:
		t.Local += int64(bits.OnesCount32(m) * a.All)
	case space == Global && a.Write:
		t.Stores.count(a, at, m)
	case space == Global:
		t.Loads.count(a, at, m)
	}
}

func (s *Sectors) count(a *Access, at *Lanes, m uint32) {
	var places, sectors distinct
	for l := range 32 {
		if m>>l&1 != 0 {
			q := at[l] + a.Off // aligned: within one sector
			places.add(q)
			sectors.add(q >> 5)
		}
	}
	s.Requests++
	s.Sectors += int64(sectors.n)
	s.Bytes += int64(places.n * a.All)
}

func (s *Wavefronts) count(a *Access, at *Lanes, m uint32) {
	together := 32 // lanes whose words fit in the banks
	if a.All > 4 {
		together = 128 / a.All
	}
	for first := 0; first < 32; first += together {
		var words distinct
		var banks [32]int
		most := 0
		for l := first; l < first+together; l++ {
			if m>>l&1 == 0 {
				continue
			}
			q := uint64(uint32(at[l] + a.Off))
			for word := q >> 2; word <= (q+uint64(a.All)-1)>>2; word++ {
				if words.add(word) {
					banks[word&31]++
					most = max(most, banks[word&31])
				}
			}
		}
		s.Taken += int64(most)
		s.Least += int64(min(most, 1))
	}
}

// distinct is a set of as many numbers as a warp's request has.
type distinct struct {
	all [64]uint64
	n   int
}

// add says whether a number is new.
func (d *distinct) add(v uint64) bool {
	for k := d.n - 1; k >= 0; k-- { // neighbours mostly ask for the same
		if d.all[k] == v {
			return false
		}
	}
	d.all[d.n] = v
	d.n++
	return true
}
