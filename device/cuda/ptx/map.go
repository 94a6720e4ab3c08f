package ptx

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
