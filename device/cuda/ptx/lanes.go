package ptx

import "unsafe"

// lanes is one register of a warp. A value lies in its low bytes; what is above them is not
// defined, but after loads and conversions, which extend to 64 bits.
type lanes [32]uint64

// exec does an instruction for the lanes of a mask.
type exec func(w *warp, m uint32)

type integer interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64
}

type float interface{ float32 | float64 }

type scalar interface{ integer | float }

// at is a lane as a value of a type. The host is little-endian, as the GPU is.
func at[T scalar](r *lanes, l int) T { return *(*T)(unsafe.Pointer(&r[l&31])) }

func set[T scalar](r *lanes, l int, v T) { *(*T)(unsafe.Pointer(&r[l&31])) = v }

// What goes through the lanes is not instrumented for the race detector (go:norace), nor are its
// pointers (go:nocheckptr): it took more than half of the time of all tests that run on a machine.
// It is registers, and memory of kernels, which are the machine's, and that does one thing at a
// time; and at looks at every address itself. What crosses to other goroutines is instrumented:
// streams, copies to and from pinned memory, the tables of what is allocated.

// full is every lane.
const full = ^uint32(0)

func map1[R, T scalar](d, a int, f func(T) R) exec {
	return func(w *warp, m uint32) { map1Lanes[R, T](&w.r[d], &w.r[a], m, f) }
}

//go:norace
//go:nocheckptr
func map1Lanes[R, T scalar](D, A *lanes, m uint32, f func(T) R) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, f(at[T](A, l)))
		}
	}
}

func map2[T scalar](d, a, b int, f func(x, y T) T) exec {
	return func(w *warp, m uint32) { map2Lanes[T](&w.r[d], &w.r[a], &w.r[b], m, f) }
}

//go:norace
//go:nocheckptr
func map2Lanes[T scalar](D, A, B *lanes, m uint32, f func(x, y T) T) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, f(at[T](A, l), at[T](B, l)))
		}
	}
}

func map3[T scalar](d, a, b, e int, f func(x, y, z T) T) exec {
	return func(w *warp, m uint32) { map3Lanes[T](&w.r[d], &w.r[a], &w.r[b], &w.r[e], m, f) }
}

//go:norace
//go:nocheckptr
func map3Lanes[T scalar](D, A, B, C *lanes, m uint32, f func(x, y, z T) T) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, f(at[T](A, l), at[T](B, l), at[T](C, l)))
		}
	}
}

// The loops that kernels spend their time in are written out.

func add[T scalar](d, a, b int) exec {
	return func(w *warp, m uint32) { addLanes[T](&w.r[d], &w.r[a], &w.r[b], m) }
}

//go:norace
//go:nocheckptr
func addLanes[T scalar](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)+at[T](B, l))
		}
	}
}

func sub[T scalar](d, a, b int) exec {
	return func(w *warp, m uint32) { subLanes[T](&w.r[d], &w.r[a], &w.r[b], m) }
}

//go:norace
//go:nocheckptr
func subLanes[T scalar](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)-at[T](B, l))
		}
	}
}

func mul[T scalar](d, a, b int) exec {
	return func(w *warp, m uint32) { mulLanes[T](&w.r[d], &w.r[a], &w.r[b], m) }
}

//go:norace
//go:nocheckptr
func mulLanes[T scalar](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)*at[T](B, l))
		}
	}
}

// mad is a*b+c of integers.
func mad[T integer](d, a, b, e int) exec {
	return func(w *warp, m uint32) { madLanes[T](&w.r[d], &w.r[a], &w.r[b], &w.r[e], m) }
}

//go:norace
//go:nocheckptr
func madLanes[T integer](D, A, B, C *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)*at[T](B, l)+at[T](C, l))
		}
	}
}

// copy64 moves whole registers.
func copy64(d, a int) exec {
	return func(w *warp, m uint32) { copy64Lanes(&w.r[d], &w.r[a], m) }
}

//go:norace
//go:nocheckptr
func copy64Lanes(D, A *lanes, m uint32) {
	if m == full {
		*D = *A
		return
	}
	for l := range 32 {
		if m>>l&1 != 0 {
			D[l] = A[l]
		}
	}
}
