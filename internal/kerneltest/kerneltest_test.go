package kerneltest

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// verdict is a testing.TB that remembers a failure instead of failing.
type verdict struct {
	testing.TB
	failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) FailNow()              { v.failed = true; runtime.Goexit() }

// fails says whether fn fails its test.
func fails(t *testing.T, fn func(t testing.TB)) bool {
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(v)
	}()
	<-done
	return v.failed
}

// liar is a device that spoils the n-th download.
type liar struct {
	device.Launcher
	n int
}

func (l *liar) Download(dst []byte, src *device.Buffer, off int) error {
	err := l.Launcher.Download(dst, src, off)
	if l.n--; l.n == 0 {
		for k := len(dst) - 1; k >= 0; k -= 4 {
			dst[k] ^= 0x08 // in the exponent
		}
	}
	return err
}

func TestCheckFailsWhenAnythingItReadsIsWrong(t *testing.T) {
	x := New(device.Float32, device.Shape{3}, 1, 2, 3)
	check := func(n int) bool {
		return fails(t, func(t testing.TB) {
			Check(t, &liar{device.NewSim(device.SimConfig{}), n}, kernels.Binary{Fn: kernels.Add}, x, x)
		})
	}
	require.False(t, check(0), "an honest device must pass")
	for n := 1; n <= 6; n++ { // two runs: two operands, then the result
		require.True(t, check(n), "download %d was spoiled", n)
	}
	require.False(t, check(7), "there are but six downloads")
}

func TestCheckRoutineFailsWhenTheArenaIsWrong(t *testing.T) {
	downloads := 0
	check := func(n int) bool {
		l := &liar{device.NewSim(device.SimConfig{}), n}
		failed := fails(t, func(t testing.TB) { CheckRoutine(t, l, rand.New(rand.NewPCG(2, 5)), 8) })
		downloads = n - l.n
		return failed
	}
	require.False(t, check(0), "an honest device must pass")
	for last := range 4 { // two runs: what was given, then the arena
		require.True(t, check(downloads-last))
		check(0)
	}
}

func TestCheckFailsWithoutTheIndexError(t *testing.T) {
	table, bad := New(device.Float32, device.Shape{2, 1}, 1), New(device.Int32, device.Shape{1}, 5)
	require.False(t, fails(t, func(t testing.TB) { Check(t, device.Host(), kernels.Gather{}, table, bad) }))
	require.True(t, errors.Is(outOfRange(bad, 5), kernels.ErrIndex))
	require.NoError(t, outOfRange(bad, 6))
}

func TestDifferAllowsRoundingAndNothingElse(t *testing.T) {
	one := func(d device.Dtype, v float64) Tensor { return New(d, nil, v) }
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		d         device.Dtype
		got, want float64
		same      bool
	}{
		{device.Float32, 1, 1 + 1e-7, true}, {device.Float32, 1, 1 + 1e-4, false}, {device.Float64, 1, 1 + 1e-10, false},
		{device.Float32, nan, nan, true}, {device.Float32, nan, 1, false}, {device.Float32, 1, nan, false},
		{device.Float64, inf, inf, true}, {device.Float64, -inf, inf, false}, {device.Float64, 1, inf, false},
		{device.Int32, 2, 2.9, true}, {device.Int64, 2, 3, false},
	} {
		require.Equal(t, c.same, Differ(kernels.Unary{}, one(c.d, c.got), one(c.d, c.want)) < 0, "%+v", c)
	}
}

// TestTheOracleKnowsKnownNumbers holds the oracle itself to values computed by hand or published.
func TestTheOracleKnowsKnownNumbers(t *testing.T) {
	vec := func(v ...float64) Tensor { return New(device.Float64, device.Shape{len(v)}, v...) }
	for _, c := range []struct {
		i    kernels.Instr
		in   []Tensor
		want []float64
	}{
		{kernels.Unary{Fn: kernels.Gelu}, []Tensor{vec(1, -1)}, []float64{0.8413447460685429, -0.15865525393145707}},
		{kernels.Unary{Fn: kernels.Sigmoid}, []Tensor{vec(0, 1)}, []float64{0.5, 0.7310585786300049}},
		{kernels.Softmax{}, []Tensor{vec(0, 0, math.Log(2))}, []float64{0.25, 0.25, 0.5}},
		{kernels.MatMul{}, []Tensor{New(device.Float64, device.Shape{2, 2}, 1, 2, 3, 4), New(device.Float64, device.Shape{2, 2}, 5, 6, 7, 8)},
			[]float64{19, 22, 43, 50}},
		{kernels.MatMul{TransA: true}, []Tensor{New(device.Float64, device.Shape{2, 2}, 1, 2, 3, 4), New(device.Float64, device.Shape{2, 2}, 5, 6, 7, 8)},
			[]float64{26, 30, 38, 44}},
		{kernels.MaxGrad{}, []Tensor{vec(3, 1, 3), New(device.Float64, nil, 3), New(device.Float64, nil, 1)}, []float64{0.5, 0, 0.5}},
		{kernels.Normalize{}, []Tensor{vec(1, 3)}, []float64{-1, 1}},
		{kernels.LayerNorm{}, []Tensor{vec(1, 3), vec(2, 3), vec(1, 1)}, []float64{-1, 4}},
		// The first step of Adam moves by the learning rate, whatever the gradient's size.
		{kernels.Update{Rule: kernels.Adam, LR: 0.1, Beta1: 0.9, Beta2: 0.999, Step: 1}, []Tensor{vec(1, 1), vec(5, -0.01), vec(0, 0), vec(0, 0)}, []float64{0.9, 1.1}},
		{kernels.Update{Rule: kernels.AdamW, LR: 0.1, Beta1: 0.9, Beta2: 0.999, Step: 1, WeightDecay: 0.5},
			[]Tensor{vec(2), vec(5), vec(0), vec(0)}, []float64{2*0.95 - 0.1}},
		// p - lr·(g + wd·p + momentum·buf), buf = momentum·1 + (g + wd·p)
		{kernels.Update{Rule: kernels.SGD, Step: 2, LR: 0.1, Momentum: 0.5, WeightDecay: 0.5, Nesterov: true}, []Tensor{vec(2), vec(3), vec(1)}, []float64{2 - 0.1*(4+0.5*4.5)}},
		{kernels.Update{Rule: kernels.SGD, Step: 2, LR: 0.1, Momentum: 0.5}, []Tensor{vec(2), vec(3), vec(1)}, []float64{2 - 0.1*3.5}},
	} {
		out, err := c.i.Infer(types(c.in))
		require.NoError(t, err)
		got, err := Oracle(c.i, c.in, out)
		require.NoError(t, err)
		require.InDeltaSlice(t, c.want, got[0].V, 1e-12, "%v", c.i)
	}
}

// TestPhiloxGivesThePublishedWords takes the known answers of Random123, the authors' own library.
func TestPhiloxGivesThePublishedWords(t *testing.T) {
	ones := ^uint64(0)
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, Philox(0, 0, 0))
	require.Equal(t, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, Philox(ones, ones, ones))
	require.Equal(t, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		Philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88))
}

// TestGradientsAgreeWithFiniteDifferences holds each gradient instruction to its forward one: both
// as kernels.
func TestGradientsAgreeWithFiniteDifferences(t *testing.T) {
	g := gen{Rand: rand.New(rand.NewPCG(5, 5))}
	s := device.Shape{3, 4}
	labels := New(device.Int64, device.Shape{3}, 2, 0, 3)
	gamma := New(device.Float64, device.Shape{4}, 1, -2, 0.5, 3)
	w := kernels.Window{Kernel: [2]int{3, 2}, Stride: [2]int{2, 1}, Before: [2]int{1, 0}, After: [2]int{0, 1}, Dilation: [2]int{1, 2}}
	conv, filter, key := kernels.Conv2d{Window: w}, g.filled(device.Float64, device.Shape{3, 2, 3, 2}, g.NormFloat64), New(device.Int64, device.Shape{2}, 5, 6)
	apply := func(i kernels.Instr, in ...Tensor) Tensor {
		out, err := i.Infer(types(in))
		require.NoError(t, err)
		got, err := RunOn(t, device.Host(), i, out, in)
		require.NoError(t, err)
		return got[0]
	}
	type pair struct {
		fwd   kernels.Instr
		extra []Tensor // operands after x
		grad  func(x, y, gy Tensor) Tensor
	}
	ofX := func(i kernels.Instr) func(x, y, gy Tensor) Tensor {
		return func(x, _, gy Tensor) Tensor { return apply(i, x, gy) }
	}
	ofY := func(i kernels.Instr) func(x, y, gy Tensor) Tensor {
		return func(_, y, gy Tensor) Tensor { return apply(i, y, gy) }
	}
	for _, p := range []pair{
		{kernels.Unary{Fn: kernels.Tanh}, nil, ofY(kernels.Binary{Fn: kernels.TanhGrad})},
		{kernels.Unary{Fn: kernels.Sigmoid}, nil, ofY(kernels.Binary{Fn: kernels.SigmoidGrad})},
		{kernels.Unary{Fn: kernels.Relu}, nil, ofX(kernels.Binary{Fn: kernels.ReluGrad})},
		{kernels.Unary{Fn: kernels.Gelu}, nil, ofX(kernels.Binary{Fn: kernels.GeluGrad})},
		{kernels.Softmax{Axis: 0}, nil, ofY(kernels.SoftmaxGrad{Axis: 0})},
		{kernels.Softmax{Axis: 1, Log: true}, nil, ofY(kernels.SoftmaxGrad{Axis: 1, Log: true})},
		{kernels.Normalize{Eps: 1e-3}, nil, ofX(kernels.NormalizeGrad{Eps: 1e-3})},
		{kernels.LayerNorm{Eps: 1e-3}, []Tensor{gamma, gamma}, func(x, _, gy Tensor) Tensor { return apply(kernels.LayerNormGrad{Eps: 1e-3}, x, gamma, gy) }},
		{kernels.Reduce{Fn: kernels.Max, Axes: []int{1}}, nil,
			func(x, y, gy Tensor) Tensor { return apply(kernels.MaxGrad{Axes: []int{1}}, x, y, gy) }},
		{kernels.CrossEntropy{}, []Tensor{labels},
			func(x, _, gy Tensor) Tensor { return apply(kernels.CrossEntropyGrad{}, x, labels, gy) }},
		{kernels.Slice{Axis: 1, Start: 1, Stop: 3}, nil,
			func(_, _, gy Tensor) Tensor { return apply(kernels.Pad{Axis: 1, Before: 1, After: 1}, gy) }},
		{conv, []Tensor{filter}, func(_, _, gy Tensor) Tensor {
			return apply(kernels.Conv2dGradX{Window: w, Height: 4, Width: 5}, filter, gy)
		}},
		{kernels.MaxPool2d{Window: w}, nil, ofX(kernels.MaxPool2dGrad{Window: w})},
		{kernels.AvgPool2d{Window: w}, nil, func(_, _, gy Tensor) Tensor {
			return apply(kernels.AvgPool2dGrad{AvgPool2d: kernels.AvgPool2d{Window: w}, Height: 4, Width: 5}, gy)
		}},
		{kernels.Im2col{Window: w}, nil, func(_, _, gy Tensor) Tensor {
			return apply(kernels.Col2im{Im2col: kernels.Im2col{Window: w}, Channels: 2, Height: 4, Width: 5}, gy)
		}},
		{kernels.Dropout{P: 0.3}, []Tensor{key}, func(_, _, gy Tensor) Tensor { return apply(kernels.Dropout{P: 0.3}, gy, key) }},
		{kernels.Gather{}, []Tensor{labels}, func(_, _, gy Tensor) Tensor { return apply(kernels.ScatterAdd{Rows: 4}, labels, gy) }},
	} {
		shape := s
		switch p.fwd.(type) {
		case kernels.Gather:
			shape = device.Shape{4, 2}
		case kernels.Conv2d, kernels.MaxPool2d, kernels.AvgPool2d, kernels.Im2col:
			shape = device.Shape{2, 2, 4, 5}
		}
		x := g.filled(device.Float64, shape, g.NormFloat64)
		y := apply(p.fwd, append([]Tensor{x}, p.extra...)...)
		gy := g.filled(device.Float64, y.Shape, g.NormFloat64)
		grad := p.grad(x, y, gy)
		for k := range x.V {
			const h = 1e-6
			at := func(d float64) (loss float64) {
				moved := Tensor{x.Type, append([]float64{}, x.V...)}
				moved.V[k] += d
				for j, v := range apply(p.fwd, append([]Tensor{moved}, p.extra...)...).V {
					loss += v * gy.V[j]
				}
				return loss
			}
			require.InDelta(t, (at(h)-at(-h))/(2*h), grad.V[k], 1e-7, "%v, element %d", p.fwd, k)
		}
	}
}

func TestADeviceThatTellsOfBadIndicesLatePassesTheSuite(t *testing.T) {
	d := NewLate(device.CUDA(0))
	RunFew(t, func(*testing.T) device.Device { return d })
}
