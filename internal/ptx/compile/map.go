package compile

import "github.com/weft-project/weft/internal/ptx/simt"

func map1[R, T simt.Scalar](d, a int, f func(T) R) simt.Exec {
	return func(w *simt.Warp, m uint32) { map1Lanes[R, T](&w.Regs[d], &w.Regs[a], m, f) }
}

//go:norace
//go:nocheckptr
func map1Lanes[R, T simt.Scalar](D, A *simt.Lanes, m uint32, f func(T) R) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, f(simt.At[T](A, l)))
		}
	}
}

func map2[T simt.Scalar](d, a, b int, f func(x, y T) T) simt.Exec {
	return func(w *simt.Warp, m uint32) { map2Lanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m, f) }
}

//go:norace
//go:nocheckptr
func map2Lanes[T simt.Scalar](D, A, B *simt.Lanes, m uint32, f func(x, y T) T) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, f(simt.At[T](A, l), simt.At[T](B, l)))
		}
	}
}

func map3[T simt.Scalar](d, a, b, e int, f func(x, y, z T) T) simt.Exec {
	return func(w *simt.Warp, m uint32) { map3Lanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], &w.Regs[e], m, f) }
}

//go:norace
//go:nocheckptr
func map3Lanes[T simt.Scalar](D, A, B, C *simt.Lanes, m uint32, f func(x, y, z T) T) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, f(simt.At[T](A, l), simt.At[T](B, l), simt.At[T](C, l)))
		}
	}
}

func add[T simt.Scalar](d, a, b int) simt.Exec {
	return func(w *simt.Warp, m uint32) { addLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }
}

//go:norace
//go:nocheckptr
func addLanes[T simt.Scalar](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)+simt.At[T](B, l))
		}
	}
}

func sub[T simt.Scalar](d, a, b int) simt.Exec {
	return func(w *simt.Warp, m uint32) { subLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }
}

//go:norace
//go:nocheckptr
func subLanes[T simt.Scalar](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)-simt.At[T](B, l))
		}
	}
}

func mul[T simt.Scalar](d, a, b int) simt.Exec {
	return func(w *simt.Warp, m uint32) { mulLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }
}

//go:norace
//go:nocheckptr
func mulLanes[T simt.Scalar](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)*simt.At[T](B, l))
		}
	}
}

// mad is a*b+c of integers.
func mad[T simt.Integer](d, a, b, e int) simt.Exec {
	return func(w *simt.Warp, m uint32) { madLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], &w.Regs[e], m) }
}

//go:norace
//go:nocheckptr
func madLanes[T simt.Integer](D, A, B, C *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)*simt.At[T](B, l)+simt.At[T](C, l))
		}
	}
}

// copy64 moves whole registers.
func copy64(d, a int) simt.Exec {
	return func(w *simt.Warp, m uint32) { copy64Lanes(&w.Regs[d], &w.Regs[a], m) }
}

//go:norace
//go:nocheckptr
func copy64Lanes(D, A *simt.Lanes, m uint32) {
	if m == simt.Full {
		*D = *A
		return
	}
	for l := range 32 {
		if m>>l&1 != 0 {
			D[l] = A[l]
		}
	}
}
