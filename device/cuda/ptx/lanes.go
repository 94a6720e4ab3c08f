package ptx

import "unsafe"

// lanes is one register of a warp. A value lies in its low bytes; what is above them is not defined, but after loads and conversions, which
// extend to 64 bits.
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

// full is every lane.
const full = ^uint32(0)

func map1[R, T scalar](d, a int, f func(T) R) exec {
	return func(w *warp, m uint32) {
		D, A := &w.r[d], &w.r[a]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, f(at[T](A, l)))
			}
		}
	}
}

func map2[T scalar](d, a, b int, f func(x, y T) T) exec {
	return func(w *warp, m uint32) {
		D, A, B := &w.r[d], &w.r[a], &w.r[b]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, f(at[T](A, l), at[T](B, l)))
			}
		}
	}
}

func map3[T scalar](d, a, b, e int, f func(x, y, z T) T) exec {
	return func(w *warp, m uint32) {
		D, A, B, C := &w.r[d], &w.r[a], &w.r[b], &w.r[e]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, f(at[T](A, l), at[T](B, l), at[T](C, l)))
			}
		}
	}
}

// The loops that kernels spend their time in are written out.

func add[T scalar](d, a, b int) exec {
	return func(w *warp, m uint32) {
		D, A, B := &w.r[d], &w.r[a], &w.r[b]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, at[T](A, l)+at[T](B, l))
			}
		}
	}
}

func sub[T scalar](d, a, b int) exec {
	return func(w *warp, m uint32) {
		D, A, B := &w.r[d], &w.r[a], &w.r[b]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, at[T](A, l)-at[T](B, l))
			}
		}
	}
}

func mul[T scalar](d, a, b int) exec {
	return func(w *warp, m uint32) {
		D, A, B := &w.r[d], &w.r[a], &w.r[b]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, at[T](A, l)*at[T](B, l))
			}
		}
	}
}

// mad is a*b+c of integers.
func mad[T integer](d, a, b, e int) exec {
	return func(w *warp, m uint32) {
		D, A, B, C := &w.r[d], &w.r[a], &w.r[b], &w.r[e]
		for l := range 32 {
			if m>>l&1 != 0 {
				set(D, l, at[T](A, l)*at[T](B, l)+at[T](C, l))
			}
		}
	}
}

// copy64 moves whole registers.
func copy64(d, a int) exec {
	return func(w *warp, m uint32) {
		D, A := &w.r[d], &w.r[a]
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
}
