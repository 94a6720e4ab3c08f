package ptx

import "unsafe"

func loads[T integer](a access, d []int) exec {
	if len(d) == 1 {
		return loads1[T](a, d[0])
	}
	return func(w *warp, m uint32) { loadVectors[T](w, &a, d, m) }
}

//go:norace
//go:nocheckptr
func loadVectors[T integer](w *warp, a *access, d []int, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			p := w.at(a, l)
			if p == nil {
				return
			}
			for k, r := range d {
				w.r[r][l] = uint64(*(*T)(unsafe.Add(p, k*a.size)))
			}
		}
	}
}

// loads1 has the ways that most accesses take written out, for kernels spend much of their time
// here.
func loads1[T integer](a access, d int) exec {
	switch a.space {
	case global:
		return func(w *warp, m uint32) { loadGlobal[T](w, &a, d, m) }
	case shared:
		return func(w *warp, m uint32) { loadShared[T](w, &a, d, m) }
	}
	return func(w *warp, m uint32) { loadLanes[T](w, &a, d, m) }
}

//go:norace
//go:nocheckptr
func loadGlobal[T integer](w *warp, a *access, d int, m uint32) {
	n := uint64(a.size)
	D, A, last := &w.r[d], &w.r[a.reg], w.last
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		q := A[l] + a.off
		if o := q - last.base; o < last.size && q&(n-1) == 0 && n <= last.size-o {
			D[l] = uint64(*(*T)(unsafe.Pointer(&last.mem[o])))
			continue
		}
		p := w.at(a, l)
		if p == nil {
			return
		}
		last = w.last
		D[l] = uint64(*(*T)(p))
	}
}

//go:norace
//go:nocheckptr
func loadShared[T integer](w *warp, a *access, d int, m uint32) {
	n, b := uint64(a.size), w.b
	D, A := &w.r[d], &w.r[a.reg]
	epoch, first, mem, cells, shift := b.epoch, b.first, b.shared, b.cells, b.shift&31
	one := n == 1<<shift
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		if q := A[l] + a.off; one && q < uint64(len(mem)) && q&(n-1) == 0 {
			c := &cells[q>>shift] // many have read what is there already: there is no more to see
			if c.read == epoch && c.reader == manyReaders && c.written != epoch && c.written >= first {
				D[l] = uint64(*(*T)(unsafe.Pointer(&mem[q])))
				continue
			}
		}
		p := w.at(a, l)
		if p == nil {
			return
		}
		D[l] = uint64(*(*T)(p))
	}
}

//go:norace
//go:nocheckptr
func loadLanes[T integer](w *warp, a *access, d int, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			p := w.at(a, l)
			if p == nil {
				return
			}
			w.r[d][l] = uint64(*(*T)(p))
		}
	}
}

func stores[T integer](a access, v []int) exec {
	return func(w *warp, m uint32) { storeLanes[T](w, &a, v, m) }
}

//go:norace
//go:nocheckptr
func storeLanes[T integer](w *warp, a *access, v []int, m uint32) {
	n := uint64(a.all)
	A, races := &w.r[a.reg], w.b.proc.races
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		var p unsafe.Pointer
		q := A[l] + a.off
		if o := q - w.last.base; a.space == global && o < w.last.size && q&(n-1) == 0 && n <= w.last.size-o && !w.last.readOnly && !races {
			p = unsafe.Pointer(&w.last.mem[o])
		} else if p = w.at(a, l); p == nil {
			return
		}
		for k, r := range v {
			*(*T)(unsafe.Add(p, k*a.size)) = at[T](&w.r[r], l)
		}
	}
}
