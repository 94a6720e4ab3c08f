package vec

import (
	"fmt"
	"reflect"
	"testing"
)

// BenchmarkLoops runs every loop over rows in the first-level cache; ns/elem is what to compare.
func BenchmarkLoops(b *testing.B) {
	benchLoops[float32](b)
	benchLoops[float64](b)
}

func benchLoops[T Float](b *testing.B) {
	const n = 1000 // no multiple of a vector
	rows := [4][]T{}
	for k := range rows {
		rows[k] = make([]T, n)
		for j := range rows[k] {
			rows[k][j] = T(j%97)/97*T(k+1) + 0.01
		}
	}
	acc := make([]float64, n)
	for _, l := range All[T]() {
		v := reflect.ValueOf(l).Elem()
		for k := range v.NumField() {
			run := call(v.Field(k).Interface(), rows, acc)
			if run == nil {
				continue
			}
			b.Run(fmt.Sprintf("fn=%s/type=%T/impl=%s", v.Type().Field(k).Name, *new(T), l.Name), func(b *testing.B) {
				for range b.N {
					run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/elem")
			})
		}
	}
}

// call gives a run of one loop of any kind over the rows.
func call[T Float](f any, r [4][]T, acc []float64) func() {
	switch f := f.(type) {
	case func(o, a []T):
		return func() { f(r[0], r[1]) }
	case func(o, a, b []T):
		return func() { f(r[0], r[1], r[2]) }
	case func(o, a, b, c []T):
		return func() { f(r[0], r[1], r[2], r[3]) }
	case func(o, a []T, c T):
		return func() { f(r[0], r[1], 0.5) }
	case func(o, a, b []T, c T):
		return func() { f(r[0], r[1], r[2], 0.5) }
	case func(o, a []T, m, s float64):
		return func() { f(r[0], r[1], 0.5, 2) }
	case func(x []T) float64:
		return func() { f(r[1]) }
	case func(a, b []T) float64:
		return func() { f(r[1], r[2]) }
	case func(o, p, g []T, lr, scale, decay T):
		return func() { f(r[0], r[1], r[2], 0.1, 1, 0) }
	case func(po, ao, p, g, a []T, s MomentumStep[T]):
		return func() { f(r[0], r[3], r[1], r[2], r[3], MomentumStep[T]{LR: 0.1, Scale: 1, Momentum: 0.9, Damp: 1}) }
	case func(po, mo, vo, xo, p, g, m, v, x []T, s AdamStep[T]):
		return func() {
			f(r[0], r[0], r[3], nil, r[1], r[2], r[0], r[3], nil, AdamStep[T]{Scale: 1, Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01, Size: 0.1, Correct: 1, Eps: 1e-8, Keep: 1})
		}
	case func(a []T, m float64) float64:
		return func() { f(r[1], 0.5) }
	case func(x []T) T:
		return func() { f(r[1]) }
	case func(acc []float64, x []T):
		return func() { f(acc, r[1]) }
	case func(acc []float64, a, b []T):
		return func() { f(acc, r[1], r[2]) }
	case func(o, x []T, m T) float64:
		return func() { f(r[0], r[1], 1) }
	}
	return nil
}
