//go:build goexperiment.simd && amd64

package vec

import (
	"simd/archsimd"
	"unsafe"
)

type (
	f32x8 = archsimd.Float32x8
	i32x8 = archsimd.Int32x8
	f64x4 = archsimd.Float64x4
	mask8 = archsimd.Mask32x8
)

const width4 = 4

func hasAVX2() bool { return archsimd.X86.AVX2() && archsimd.X86.FMA() }

func (l *lanes) x8() f32x8 { return archsimd.LoadFloat32x8((*[8]float32)(l[:8])) }

//go:nocheckptr
func at4(x []float32, i int) *[4]float32 {
	return (*[4]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 4*i))
}

//go:nocheckptr
func at64x4(x []float64, i int) *[4]float64 {
	return (*[4]float64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 8*i))
}

func first8(n int) mask8 {
	return archsimd.BroadcastInt32x8(int32(n)).Greater(archsimd.LoadInt32x8(&k.count))
}

func all8(c float32) f32x8 { return archsimd.BroadcastFloat32x8(c) }

func all64x4(c float64) f64x4 { return archsimd.BroadcastFloat64x4(c) }

func allInt8(c int32) i32x8 { return archsimd.BroadcastInt32x8(c) }

func load8(x []float32, i int) f32x8 { return archsimd.LoadFloat32x8(at8(x, i)) }

func loadFirst8(x []float32, i int, m mask8) f32x8 { return archsimd.LoadMaskedFloat32x8(at8(x, i), m) }

func loadWide4(x []float32, i int) f64x4 { return archsimd.LoadFloat32x4(at4(x, i)).ConvertToFloat64() }

func load64x4(x []float64, i int) f64x4 { return archsimd.LoadFloat64x4(at64x4(x, i)) }

// scale8 is p·2ⁿ for whole n of up to 250 either way, in two steps of which only the second rounds.
func scale8(p, n f32x8) f32x8 {
	whole := n.ConvertToInt32()
	half := whole.ShiftAllRight(1)
	return p.Mul(power8(half)).Mul(power8(whole.Sub(half)))
}

// power8 is 2ⁿ.
func power8(n i32x8) f32x8 { return n.Add(allInt8(127)).ShiftAllLeft(23).AsFloat32x8() }

// total4 is as total8.
func total4(v f64x4) float64 {
	var s [4]float64
	v.Store(&s)
	archsimd.ClearAVXUpperBits()
	return (s[0] + s[2]) + (s[1] + s[3])
}
