//go:build goexperiment.simd && amd64

package transpose

import (
	"simd/archsimd"
	"unsafe"
)

// squares turns as many rows and columns as whole vectors hold, and says how many. Distances are in
// bytes. No pointer leaves the matrices.
func squares(size, rows, n int, o unsafe.Pointer, row int, x unsafe.Pointer, step int) (r, k int) {
	if !archsimd.X86.AVX2() {
		return 0, 0
	}
	if size == 4 {
		r, k = rows&^3, n&^7
		turn32(r, k, o, row, x, step)
	} else {
		r, k = rows&^1, n&^3
		turn64(r, k, o, row, x, step)
	}
	archsimd.ClearAVXUpperBits()
	return r, k
}

// turn32 turns 8 columns into 4 rows at a time: the columns 4 apart share a vector, so that nothing
// has to cross its halves.
func turn32(rows, n int, o unsafe.Pointer, row int, x unsafe.Pointer, step int) {
	for k := 0; k < n; k += 8 {
		for r := 0; r < rows; r += 4 {
			from, to := unsafe.Add(x, k*step+4*r), unsafe.Add(o, r*row+4*k)
			far := unsafe.Add(from, 4*step)
			a, b := pair32(from, far), pair32(unsafe.Add(from, step), unsafe.Add(far, step))
			c, d := pair32(unsafe.Add(from, 2*step), unsafe.Add(far, 2*step)), pair32(unsafe.Add(from, 3*step), unsafe.Add(far, 3*step))
			l0, h0 := a.InterleaveLoGrouped(b).AsUint64x4(), a.InterleaveHiGrouped(b).AsUint64x4()
			l1, h1 := c.InterleaveLoGrouped(d).AsUint64x4(), c.InterleaveHiGrouped(d).AsUint64x4()
			store(to, l0.InterleaveLoGrouped(l1))
			store(unsafe.Add(to, row), l0.InterleaveHiGrouped(l1))
			store(unsafe.Add(to, 2*row), h0.InterleaveLoGrouped(h1))
			store(unsafe.Add(to, 3*row), h0.InterleaveHiGrouped(h1))
		}
	}
}

// turn64 turns 4 columns into 2 rows at a time.
func turn64(rows, n int, o unsafe.Pointer, row int, x unsafe.Pointer, step int) {
	for k := 0; k < n; k += 4 {
		for r := 0; r < rows; r += 2 {
			from, to := unsafe.Add(x, k*step+8*r), unsafe.Add(o, r*row+8*k)
			far := unsafe.Add(from, 2*step)
			a, b := pair64(from, far), pair64(unsafe.Add(from, step), unsafe.Add(far, step))
			store(to, a.InterleaveLoGrouped(b))
			store(unsafe.Add(to, row), a.InterleaveHiGrouped(b))
		}
	}
}

func pair64(lo, hi unsafe.Pointer) archsimd.Uint64x4 {
	var v archsimd.Uint64x4
	return v.SetLo(archsimd.LoadUint64x2((*[2]uint64)(lo))).SetHi(archsimd.LoadUint64x2((*[2]uint64)(hi)))
}

func pair32(lo, hi unsafe.Pointer) archsimd.Uint32x8 { return pair64(lo, hi).AsUint32x8() }

func store(p unsafe.Pointer, v archsimd.Uint64x4) { v.Store((*[4]uint64)(p)) }
