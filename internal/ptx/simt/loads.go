package simt

import "unsafe"

// Loads gives the load of the elements of a vector of T, or of one, into registers. It extends each
// to 64 bits.
func Loads[T Integer](a Access, d []int) Exec {
	if len(d) == 1 {
		return loads1[T](a, d[0])
	}
	return func(w *Warp, m uint32) { loadVectors[T](w, &a, d, m) }
}

//go:norace
//go:nocheckptr
func loadVectors[T Integer](w *Warp, a *Access, d []int, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			p := w.LaneBytes(a, l)
			if p == nil {
				return
			}
			for k, r := range d {
				w.Regs[r][l] = uint64(*(*T)(unsafe.Add(p, k*a.Size)))
			}
		}
	}
}

// loads1 has the ways that most accesses take written out, for kernels spend much of their time
// here.
func loads1[T Integer](a Access, d int) Exec {
	switch a.Space {
	case Global:
		return func(w *Warp, m uint32) { loadGlobal[T](w, &a, d, m) }
	case Shared:
		return func(w *Warp, m uint32) { loadShared[T](w, &a, d, m) }
	}
	return func(w *Warp, m uint32) { loadLanes[T](w, &a, d, m) }
}

//go:norace
//go:nocheckptr
func loadGlobal[T Integer](w *Warp, a *Access, d int, m uint32) {
	n := uint64(a.Size)
	D, A, last := &w.Regs[d], &w.Regs[a.Reg], w.last
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		q := A[l] + a.Off
		if o := q - last.Base; o < last.Size && q&(n-1) == 0 && n <= last.Size-o {
			D[l] = uint64(*(*T)(unsafe.Pointer(&last.Mem[o])))
			continue
		}
		p := w.LaneBytes(a, l)
		if p == nil {
			return
		}
		last = w.last
		D[l] = uint64(*(*T)(p))
	}
}

//go:norace
//go:nocheckptr
func loadShared[T Integer](w *Warp, a *Access, d int, m uint32) {
	n, b := uint64(a.Size), w.b
	D, A := &w.Regs[d], &w.Regs[a.Reg]
	epoch, first, mem, cells, shift := b.epoch, b.first, b.shared, b.cells, b.shift&31
	one := n == 1<<shift
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		if q := A[l] + a.Off; one && q < uint64(len(mem)) && q&(n-1) == 0 {
			c := &cells[q>>shift] // many have read what is there already: there is no more to see
			if c.read == epoch && c.reader == manyReaders && c.written != epoch && c.written >= first {
				D[l] = uint64(*(*T)(unsafe.Pointer(&mem[q])))
				continue
			}
		}
		p := w.LaneBytes(a, l)
		if p == nil {
			return
		}
		D[l] = uint64(*(*T)(p))
	}
}

//go:norace
//go:nocheckptr
func loadLanes[T Integer](w *Warp, a *Access, d int, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			p := w.LaneBytes(a, l)
			if p == nil {
				return
			}
			w.Regs[d][l] = uint64(*(*T)(p))
		}
	}
}

// Stores gives the store of the elements of a vector of T, or of one, from registers.
func Stores[T Integer](a Access, v []int) Exec {
	return func(w *Warp, m uint32) { storeLanes[T](w, &a, v, m) }
}

//go:norace
//go:nocheckptr
func storeLanes[T Integer](w *Warp, a *Access, v []int, m uint32) {
	n := uint64(a.All)
	A, races := &w.Regs[a.Reg], w.b.proc.Races
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		var p unsafe.Pointer
		q := A[l] + a.Off
		if o := q - w.last.Base; a.Space == Global && o < w.last.Size && q&(n-1) == 0 && n <= w.last.Size-o && !w.last.ReadOnly && !races {
			p = unsafe.Pointer(&w.last.Mem[o])
		} else if p = w.LaneBytes(a, l); p == nil {
			return
		}
		for k, r := range v {
			*(*T)(unsafe.Add(p, k*a.Size)) = At[T](&w.Regs[r], l)
		}
	}
}
