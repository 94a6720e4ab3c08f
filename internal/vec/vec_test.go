package vec

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBestIsTheFirstOfAllAndPlainTheLast(t *testing.T) {
	require.Same(t, All[float32]()[0], Best[float32]())
	require.Equal(t, "plain", Plain[float64]().Name)
	require.Same(t, Plain[float64](), Plain[float64]())
}

func TestTheMaximumIsNaNWhereThereIsOneAndMinusInfinityOfNothing(t *testing.T) {
	for _, l := range All[float32]() {
		nan := float32(math.NaN())
		for n := range 40 {
			x := make([]float32, 40)
			x[n] = nan
			require.True(t, math.IsNaN(float64(l.Max(x))), "%v at %d", l.Name, n)
		}
		require.True(t, math.IsInf(float64(l.Max(nil)), -1))
	}
}

func TestComparisonsAreExactAlsoOfEqualsZerosInfinitiesAndNaN(t *testing.T) {
	testComparisons[float32](t)
	testComparisons[float64](t)
}

func testComparisons[T Float](t *testing.T) {
	special := []T{0, T(math.Copysign(0, -1)), 1, -1, 1.5, T(math.Inf(1)), T(math.Inf(-1)), T(math.NaN())}
	var a, b []T
	for _, x := range special {
		for _, y := range special {
			a, b = append(a, x), append(b, y)
		}
	}
	o := make([]T, len(a))
	for _, l := range All[T]() {
		for name, c := range map[string]struct {
			loop func(o, a, b []T)
			want func(a, b T) T
		}{
			"Less":      {l.Less, func(a, b T) T { return truth[T](a < b) }},
			"LessEqual": {l.LessEqual, func(a, b T) T { return truth[T](a <= b) }},
			"Equal":     {l.Equal, func(a, b T) T { return truth[T](a == b) }},
			"Maximum":   {l.Maximum, func(a, b T) T { return max(a, b) }},
			"Minimum":   {l.Minimum, func(a, b T) T { return min(a, b) }},
		} {
			c.loop(o, a, b)
			for k := range o {
				w := c.want(a[k], b[k])
				require.True(t, o[k] == w && 1/o[k] == 1/w || w != w && o[k] != o[k], "%s.%s(%v, %v) is %v", l.Name, name, a[k], b[k], o[k]) // also of two zeros
			}
		}
	}
}

func TestEveryLoopIsThePlainOneOnRowsOfEveryLengthAndPlace(t *testing.T) {
	testAgainstPlain[float32](t, 5e-6)
	testAgainstPlain[float64](t, 1e-14)
}

func testAgainstPlain[T Float](t *testing.T, tol float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, l := range All[T]() {
		for name, f := range ordered(loops(l)) {
			for n := range 70 {
				a := randomArgs[T](rng, n)
				want := a.clone().run(loops(Plain[T]())[name])
				got := a.run(f)
				require.Len(t, got, len(want))
				for k := range want {
					if !near(got[k], want[k], tol) { // require takes long, element by element
						require.Fail(t, "not near", "%s.%s of %d: result %d is %v, want %v",
							l.Name, name, n, k, got[k], want[k])
					}
				}
			}
		}
	}
}

// Functions of elements give each the same bits, wherever it lies, and also in place.
func TestWhatAnElementBecomesDoesNotDependOnWhereItsRowIsCut(t *testing.T) {
	testCuts[float32](t)
	testCuts[float64](t)
}

func testCuts[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, l := range All[T]() {
		for name, f := range ordered(loops(l)) {
			for range 50 {
				a := randomArgs[T](rng, 1+rng.IntN(100))
				n, cut := len(a.o), rng.IntN(len(a.o))
				b, c := a.clone(), a.clone()
				if !a.runRows(f, 0, n) {
					continue
				}
				b.runRows(f, 0, cut)
				b.runRows(f, cut, n)
				require.True(t, slices.EqualFunc(a.all(), b.all(), same[T]), "%s.%s of %d, cut at %d", l.Name, name, n, cut)
				if strings.HasPrefix(name, "Accumulate") || name == "Adam" {
					continue
				}
				c.o = c.x
				c.runRows(f, 0, n)
				require.True(t, slices.EqualFunc(a.o, c.o, same[T]), "%s.%s in place", l.Name, name)
			}
		}
	}
}

func TestLoopsDoNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, l := range All[float32]() {
		for name, f := range ordered(loops(l)) {
			a := randomArgs[float32](rng, 37)
			if name == "Adam" {
				continue // its arguments are made for it
			}
			require.Zero(t, testing.AllocsPerRun(10, func() { a.runRows(f, 0, 37) }), "%s.%s", l.Name, name)
		}
	}
}

// The errors of float32 functions are counted in units of the last place of the exact value, over
// all magnitudes and signs, infinities and NaN.
func TestFunctionsOfFloat32AreWithinAFewUnitsOfTheLastPlace(t *testing.T) {
	const step = 32771 // prime, so that all mantissas occur
	for _, l := range All[float32]() {
		ones := slices.Repeat([]float32{1}, 1024)
		for _, f := range []struct {
			name string
			of   func(o, x []float32)
			want func(float64) float64
			ulps float64
		}{
			{"Exp", l.Exp, math.Exp, 1},
			{"Log", l.Log, math.Log, 1},
			{"Sqrt", l.Sqrt, math.Sqrt, 0.51},
			{"Tanh", l.Tanh, math.Tanh, 1.5},
			{"Sigmoid", l.Sigmoid, sigmoid, 2.5},
			{"Gelu", l.Gelu, gelu, 5}, // below −5, where most compute 0; 2 where it is not small
			{"GeluGrad", func(o, x []float32) { l.GeluGrad(o, x, ones) }, geluGrad, math.Inf(1)},
		} {
			x, o := make([]float32, 1024), make([]float32, 1024)
			for bits := uint64(0); bits < 1<<32; {
				for k := range x {
					x[k] = math.Float32frombits(uint32(bits))
					bits += step
				}
				f.of(o, x)
				for k := range x {
					w := f.want(float64(x[k]))
					require.True(t, same(o[k], float32(w)) || math.Abs(float64(o[k])-w) <= f.ulps*unit(w) && math.Abs(float64(o[k])-w) <= 1.5e-7*max(1, math.Abs(w)),
						"%s.%s(%g) is %g, want %g", l.Name, f.name, x[k], o[k], w)
				}
			}
		}
	}
}

// unit is the unit of the last place of a float32 near w.
func unit(w float64) float64 {
	_, e := math.Frexp(w)
	return math.Ldexp(1, max(e-24, -149))
}

func near[T Float](got, want T, tol float64) bool {
	return same(got, want) || math.Abs(float64(got-want)) <= tol*(1+math.Abs(float64(want)))
}

// same holds NaN the same as NaN, and 0 as −0.
func same[T Float](a, b T) bool { return a == b || a != a && b != b }

// loops lists the functions of a set by name.
func loops[T Float](l *Loops[T]) map[string]any {
	m := map[string]any{}
	v := reflect.ValueOf(l).Elem()
	for k := range v.NumField() {
		if v.Field(k).Kind() == reflect.Func {
			m[v.Type().Field(k).Name] = v.Field(k).Interface()
		}
	}
	return m
}

// ordered goes through a map in the order of its keys.
func ordered(m map[string]any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// args are operands of any loop, each with guards at both ends.
type args[T Float] struct {
	whole         [][]T
	o, x, y, z    []T
	acc, accWhole []float64
	c             T
}

const guard = 12345

func randomArgs[T Float](rng *rand.Rand, n int) *args[T] {
	a := &args[T]{c: T(rng.NormFloat64()), accWhole: make([]float64, n+20)}
	special := []float64{0, math.Copysign(0, -1), 1e-40, -1e-40, 20, -20, 100, -100, math.NaN(), math.Inf(1), math.Inf(-1)}
	wild := rng.IntN(3) == 0
	for range 4 {
		w := make([]T, n+20)
		for k := range w {
			w[k] = T(rng.NormFloat64() * 3)
			if wild && rng.IntN(8) == 0 {
				w[k] = T(special[rng.IntN(len(special))])
			}
		}
		a.whole = append(a.whole, w)
	}
	off := rng.IntN(17)
	a.slice(off, n)
	for _, w := range a.whole {
		for k := range w {
			if k < off || k >= off+n {
				w[k] = guard
			}
		}
	}
	for k := range a.accWhole {
		a.accWhole[k] = rng.NormFloat64()
	}
	return a
}

func (a *args[T]) slice(off, n int) {
	r := [4][]T{}
	for k := range r {
		r[k] = a.whole[k][off : off+n]
	}
	a.o, a.x, a.y, a.z = r[0], r[1], r[2], r[3]
	a.acc = a.accWhole[off : off+n]
}

func (a *args[T]) clone() *args[T] {
	b := &args[T]{c: a.c, accWhole: slices.Clone(a.accWhole)}
	for _, w := range a.whole {
		b.whole = append(b.whole, slices.Clone(w))
	}
	b.slice(cap(a.whole[0])-cap(a.o), len(a.o))
	return b
}

// decays is no decay in half of the cases.
func decays[T Float](c T) T { return max(0, c) }

// from64 and to64 make a row of squares of acc, which no other loop writes with it.
func from64[T Float](acc []float64) []T {
	v := make([]T, len(acc))
	for k := range v {
		v[k] = T(acc[k] * acc[k])
	}
	return v
}

func to64[T Float](acc []float64, v []T) {
	for k := range v {
		acc[k] = float64(v[k])
	}
}

// all is everything that a loop could have written.
func (a *args[T]) all() []T {
	all := slices.Concat(a.whole...)
	for _, v := range a.accWhole {
		all = append(all, T(v))
	}
	return all
}

// run runs a loop of any kind and gives what it wrote, with the number that it returned.
func (a *args[T]) run(f any) []T {
	var r float64
	switch f := f.(type) {
	case func(x []T) float64:
		r = f(a.x)
	case func(a, b []T) float64:
		r = f(a.x, a.y)
	case func(x []T, m float64) float64:
		r = f(a.x, float64(a.c))
	case func(x []T) T:
		r = float64(f(a.x))
	case func(o, x []T, m T) float64:
		r = f(a.o, a.x, a.c)
	case func(acc []float64, x []T, rows int):
		n := len(a.acc) / 3
		f(a.acc[:n], a.x[:3*n], 3)
	default:
		if !a.runRows(f, 0, len(a.o)) {
			panic(fmt.Sprintf("no such kind of loop: %T", f))
		}
	}
	return append(a.all(), T(r))
}

// runRows runs a function of elements on a part of the rows, and says whether it is one.
func (a *args[T]) runRows(f any, from, to int) bool {
	o, x, y, z, acc := a.o[from:to], a.x[from:to], a.y[from:to], a.z[from:to], a.acc[from:to]
	switch f := f.(type) {
	case func(o, x []T):
		f(o, x)
	case func(o, x, y []T):
		f(o, x, y)
	case func(o, x, y, z []T):
		f(o, x, y, z)
	case func(o, x []T, c T):
		f(o, x, a.c)
	case func(o, x, y []T, c T):
		f(o, x, y, a.c)
	case func(o, x []T, m, s float64):
		f(o, x, float64(a.c), 1.25)
	case func(o, p, g []T, lr, scale, decay T):
		f(o, x, y, 0.1, 0.5, decays(a.c))
	case func(po, ao, p, g, m []T, s MomentumStep[T]):
		f(o, z, x, y, z, MomentumStep[T]{LR: 0.1, Scale: 0.5, Decay: decays(a.c), Momentum: 0.9, Damp: 0.7, Nesterov: a.c > 1})
	case func(po, mo, vo, xo, p, g, m, v, x []T, s AdamStep[T]):
		v := from64[T](acc)
		f(o, z, v, nil, x, y, z, v, nil, AdamStep[T]{Scale: 0.5, Decay: decays(a.c), Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01, Size: 0.1, Correct: 3, Eps: 1e-8, Keep: 0.99})
		to64(acc, v)
	case func(acc []float64, x []T):
		f(acc, x)
	case func(acc []float64, x, y []T):
		f(acc, x, y)
	default:
		return false
	}
	return true
}
