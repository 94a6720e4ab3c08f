package fold

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
)

// The oracle folds one element after another.
func oracle[T device.Number](o Op, in [][]T, i int) T {
	f := T(o.Factor)
	at := func(r int) T {
		if o.Fn == Scaled {
			return in[r][i] * f
		}
		return in[r][i]
	}
	acc := at(0)
	for r := 1; r < len(in); r++ {
		x := at(r)
		switch o.Fn {
		case Sum, Mean, Scaled:
			acc += x
		case Prod:
			acc *= x
		case Min:
			acc = min(acc, x)
		case Max:
			acc = max(acc, x)
		case And:
			acc = T(int64(acc) & int64(x))
		case Or:
			acc = T(int64(acc) | int64(x))
		case Xor:
			acc = T(int64(acc) ^ int64(x))
		}
	}
	if o.Fn == Mean {
		acc /= T(len(in))
	}
	return acc
}

func compare[T device.Number](t *testing.T, r *rand.Rand, draw func() T) {
	d := device.DtypeOf[T]()
	for range soak.Cases(60) {
		o := Op{Fn: Fn(1 + r.IntN(int(Scaled))), Factor: r.NormFloat64()}
		if Check(o, d) != nil {
			continue
		}
		n := []int{0, 1, 7, block - 1, block, block + 1, 3*block + 5}[r.IntN(7)]
		in := make([][]T, 1+r.IntN(9))
		raw := make([][]byte, len(in))
		for k := range in {
			in[k] = make([]T, n)
			for i := range in[k] {
				in[k][i] = draw()
			}
			raw[k] = device.Bytes(in[k])
		}
		want := make([]T, n)
		for i := range want {
			want[i] = oracle(o, in, i)
		}
		out := make([]T, n)
		to := device.Bytes(out)
		if r.IntN(2) == 0 { // in place
			to = raw[0]
		}
		Into(to, o, d, raw...)
		require.Equal(t, device.Bytes(want), to, "%v of %v, %d arrays of %d", o, d, len(in), n)
	}
}

func TestEveryOperationOnEveryDtypeIsElementByElementInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 1))
	compare(t, r, func() float32 { return zeros[float32](r, float32(r.NormFloat64())) })
	compare(t, r, func() float64 { return zeros(r, r.NormFloat64()) })
	compare(t, r, func() int32 { return int32(r.Uint32()) })
	compare(t, r, func() int64 { return r.Int64() })
}

// zeros is x, or now and then a zero of either sign.
func zeros[T float32 | float64](r *rand.Rand, x T) T {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return T(math.Copysign(0, -1))
	}
	return x
}

func TestANaNIsKept(t *testing.T) {
	nan := math.NaN()
	for _, in := range [][][]float64{{{nan}, {1}}, {{1}, {nan}}} {
		for fn := Sum; fn <= Max; fn++ {
			out := make([]float64, 1)
			Into(device.Bytes(out), Op{Fn: fn}, device.Float64, device.Bytes(in[0]), device.Bytes(in[1]))
			require.True(t, math.IsNaN(out[0]), "%v", Op{Fn: fn})
		}
	}
}

func TestWhatADtypeCannotDoIsRefused(t *testing.T) {
	require.ErrorContains(t, Check(Op{Fn: Mean}, device.Int32), "Mean of int32; expected float32 or float64")
	require.ErrorContains(t, Check(Op{Fn: Xor}, device.Float32), "Xor of float32; expected int32 or int64")
	require.ErrorIs(t, Check(Op{Fn: 77}, device.Float32), ErrOp)
	require.ErrorIs(t, Check(Op{Fn: Sum}, device.BFloat16), ErrOp)
	require.NoError(t, Check(Op{Fn: Sum}, device.Int64))
}
