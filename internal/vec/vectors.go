//go:build goexperiment.simd && amd64

package vec

func vectors32() (l []*Loops[float32]) {
	if hasAVX512() {
		l = append(l, table16("avx512"))
	}
	if hasAVX2() {
		l = append(l, table8("avx2"))
	}
	return l
}

func vectors64() (l []*Loops[float64]) {
	if hasAVX512() {
		l = append(l, table64("avx512"))
	}
	return l
}
