package ptx

import (
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheMathematicsLibraryOfTheCompilerRunsWithItsSlowPaths(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["math"])
	x := append(normal(500, 2), normal(500, 1e4)...)
	for range 500 { // any number at all: huge ones take the slow path of sin and cos
		x = append(x, math.Float32frombits(rand.Uint32()))
	}
	x = append(x, -6.9661236e+11, -6.9798265e+11) // near multiples of π, where math.Sin is wrong from the 12th digit on
	x = append(x, 0, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.SmallestNonzeroFloat32, math.MaxFloat32)
	wide := make([]float64, len(x))
	for k, v := range x {
		wide[k] = float64(v) * 1.0000001
	}
	n := len(x)
	px, pw, po := up(r, x), up(r, wide), up(r, wide)
	for name, f := range map[string]func(float64) float64{"exp": math.Exp, "log": math.Log, "sin": sine, "cos": cosine,
		"tan":  func(v float64) float64 { return sine(v) / cosine(v) },
		"tanh": math.Tanh, "erf": math.Erf, "log1p": math.Log1p, "expm1": math.Expm1, "cbrt": math.Cbrt,
		"pow": func(v float64) float64 { return math.Pow(math.Abs(v), float64(float32(1.7))) }} {
		require.NoError(t, r.launch("f_"+name, (n+127)/128, 128, 0, px, po, n))
		for k, got := range down[float32](r, po, n) {
			want := f(float64(x[k]))
			require.True(t, alike(float64(got), want, float64(float32(want)), 2e-6), "%s(%v) is %v, expected %v", name, x[k], got, want)
		}
	}
	for name, f := range map[string]func(float64) float64{"exp": math.Exp, "log": math.Log, "sin": sine, "tanh": math.Tanh, "erf": math.Erf,
		"div": func(v float64) float64 { return 1/v + math.Sqrt(math.Abs(v))/3 }} {
		require.NoError(t, r.launch("d_"+name, (n+127)/128, 128, 0, pw, po, n))
		for k, got := range down[float64](r, po, n) {
			want := f(wide[k])
			require.True(t, alike(got, want, want, 1e-13), "%s(%v) is %v, expected %v", name, wide[k], got, want)
		}
	}
}

// sine and cosine bring their argument to [−π/2, π/2] exactly first, which is right for any float32
// and what is near. Package math loses digits where results are small.
func sine(v float64) float64   { return quarters(v, 0) }
func cosine(v float64) float64 { return quarters(v, 1) }

const prec = 512

// halfTurn is π.
var halfTurn = sync.OnceValue(func() *big.Float { return machin(prec) })

// quarters is the sine of v and n quarters of a turn.
func quarters(v float64, n int64) float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return math.NaN()
	}
	num := func() *big.Float { return new(big.Float).SetPrec(prec) }
	half := halfTurn()
	x := num().SetFloat64(v)
	x.Add(x, num().Mul(half, big.NewFloat(float64(n)/2)))
	turns := num().Quo(x, half)
	whole, _ := turns.Add(turns, big.NewFloat(math.Copysign(0.5, v))).Int(nil)
	rest, _ := x.Sub(x, num().Mul(num().SetInt(whole), half)).Float64()
	if whole.Bit(0) == 1 {
		return -math.Sin(rest)
	}
	return math.Sin(rest)
}

// machin is π, by Machin's formula: 4·(4·atan 1/5 − atan 1/239).
func machin(prec uint) *big.Float {
	one := new(big.Int).Lsh(big.NewInt(1), prec+16)
	atan := func(n int64) *big.Int {
		term := new(big.Int).Quo(one, big.NewInt(n))
		sum := new(big.Int).Set(term)
		for k := int64(3); term.Sign() != 0; k += 2 {
			term.Quo(term, big.NewInt(-n*n))
			sum.Add(sum, new(big.Int).Quo(term, big.NewInt(k)))
		}
		return sum
	}
	a := atan(5)
	a.Sub(a.Lsh(a, 2), atan(239)).Lsh(a, 2)
	f := new(big.Float).SetPrec(prec).SetInt(a)
	return f.SetMantExp(f, -int(prec+16))
}

// alike allows a relative error, and a small one near zero.
func alike(got, want, rounded, tol float64) bool {
	return got == rounded || math.IsNaN(got) && math.IsNaN(want) || math.Abs(got-want) <= tol*max(math.Abs(want), 1e-30)
}

func TestCallsTablesLocalMemoryAndVectorsWork(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["math"])
	const n = 777
	x := normal(n, 1)
	px, po := up(r, x), up(r, make([]float32, 4*n))
	require.NoError(t, r.launch("mixed", 7, 128, 0, px, po, n))
	power := func(v float32, n int) float32 {
		out := float32(1)
		for range n {
			out *= v
		}
		return out
	}
	table := []float32{1, -2, 3.5, 4, 5, 6, 7, 8e3}
	want := make([]float64, n)
	for i, v := range x {
		w := power(v, i%7) + table[i%8]
		if i%3 == 0 {
			w += v * float32(i%16)
		} else if i%5 == 0 {
			w -= power(v*float32(i*7%16), 2)
		}
		want[i] = float64(w)
	}
	near(t, want, down[float32](r, po, n), 1e-5)
	require.NoError(t, r.launch("counts", 1, 32, 0, po))
	require.Equal(t, []int32{10 + 195, 20 + 194, 30 + 194, 194}, down[int32](r, po, 4), "a module's variables keep their values")

	a, b := normal(4*n, 1), make([]float64, 2*n)
	for k := range b {
		b[k] = rand.NormFloat64()
	}
	require.NoError(t, r.launch("vectors", 7, 128, 0, up(r, a), up(r, b), po, n))
	for i := range n {
		want[i] = float64(a[4*i+2] * 2)
	}
	got := down[float32](r, po, 4*n)
	for i := range n {
		require.Equal(t, []float32{a[4*i+3] + float32(b[2*i]), a[4*i+2] - float32(b[2*i+1]), a[4*i+1] * 2, a[4*i]}, got[4*i:4*i+4])
	}
}

func TestIntegersAreComputedAsInGo(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["math"])
	const n = 1000
	a, b := make([]int32, n), make([]int64, n)
	for k := range n {
		a[k], b[k] = int32(rand.Uint32()), int64(rand.Uint64())
		if k%3 == 0 {
			a[k] >>= 20
			b[k] >>= 40
		}
	}
	po := up(r, b)
	require.NoError(t, r.launch("integers", 8, 128, 0, up(r, a), up(r, b), po, n))
	for k, got := range down[int64](r, po, n) {
		require.Equal(t, integersOracle(a[k], b[k]), got, "%d %d", a[k], b[k])
	}
}

func integersOracle(x int32, y int64) int64 {
	u := uint32(x)
	mulhi := func(a, b int64) int64 {
		h, _ := bits.Mul64(uint64(a), uint64(b))
		return int64(h) - a>>63&b - b>>63&a
	}
	ffs := int32(0)
	if x != 0 {
		ffs = int32(bits.TrailingZeros32(u)) + 1
	}
	first := int32(bits.OnesCount32(u)) + int32(bits.LeadingZeros32(u))
	r := int64(uint32(first)+bits.Reverse32(u)%1000+uint32(ffs)+uint32(int32(int64(x)*12345>>32))) + mulhi(y, 987654321987654321)
	r += y/int64(x|1) + y%1000003 + int64(x/7) + int64(u/10) + int64(x>>3) + int64(u>>5) + y<<3 + y>>9
	perm := uint32(0)
	for k, sel := range []uint{1, 7, 3, 4} {
		perm |= uint32(byte((uint64(^u)<<32|uint64(u))>>(8*sel))) << (8 * k)
	}
	left := uint32((uint64(u*3)<<32 | uint64(u)) << 9 >> 32)
	right := uint32((uint64(u*5)<<32 | uint64(u)) >> (u & 31))
	r ^= int64(perm + left + right)
	r += int64(min(x, 17)+max(x, -12)+max(x, -x)+int32(int8(x))+int32(int16(y))+int32(uint8(x))+int32(bits.OnesCount64(uint64(y)))) + int64(bits.LeadingZeros64(uint64(y)))
	switch {
	case x > 0 && y < 0:
		r += 5
	case x == 3 || y != 9:
		r += 6
	default:
		r += 7
	}
	return r
}
