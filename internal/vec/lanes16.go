//go:build goexperiment.simd && amd64

package vec

import (
	"simd/archsimd"
	"unsafe"
)

type (
	f32x16 = archsimd.Float32x16
	i32x16 = archsimd.Int32x16
	f64x8  = archsimd.Float64x8
	mask16 = archsimd.Mask32x16
)

// width16 is how many float32 are in a vector, width8 how many float64.
const width16, width8 = 16, 8

func hasAVX512() bool { return archsimd.X86.AVX512() }

func (l *lanes) x16() f32x16 { return archsimd.LoadFloat32x16((*[16]float32)(l)) }

// at16 points to the vector at x[i:]. Only what lies in x may be touched there.
//
//go:nocheckptr
func at16(x []float32, i int) *[16]float32 {
	return (*[16]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 4*i))
}

//go:nocheckptr
func at8(x []float32, i int) *[8]float32 {
	return (*[8]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 4*i))
}

//go:nocheckptr
func at64x8(x []float64, i int) *[8]float64 {
	return (*[8]float64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 8*i))
}

// first16 is a mask of the first n lanes. A branch in it would cost more than everything else.
func first16(n int) mask16 {
	return archsimd.Mask32x16FromBits(uint16(uint32(1)<<(uint(min(n, 16))&31) - 1))
}

func all16(c float32) f32x16 { return archsimd.BroadcastFloat32x16(c) }

func all64x8(c float64) f64x8 { return archsimd.BroadcastFloat64x8(c) }

func allInt16(c int32) i32x16 { return archsimd.BroadcastInt32x16(c) }

func load16(x []float32, i int) f32x16 { return archsimd.LoadFloat32x16(at16(x, i)) }

func loadFirst16(x []float32, i int, m mask16) f32x16 {
	return archsimd.LoadMaskedFloat32x16(at16(x, i), m)
}

func loadWide8(x []float32, i int) f64x8 { return archsimd.LoadFloat32x8(at8(x, i)).ConvertToFloat64() }

func load64x8(x []float64, i int) f64x8 { return archsimd.LoadFloat64x8(at64x8(x, i)) }

// scale16 is p·2ⁿ for whole n, rounded once.
func scale16(p, n f32x16) f32x16 { return p.Scale(n) }

// total8 adds up the lanes in a fixed order. Like every function that comes back to numbers, it
// first clears the upper halves of the vector registers: the first scalar instruction would wait 70
// ns otherwise.
func total8(v f64x8) float64 {
	var s [8]float64
	v.Store(&s)
	archsimd.ClearAVXUpperBits()
	return (s[0] + s[4] + (s[2] + s[6])) + (s[1] + s[5] + (s[3] + s[7]))
}
