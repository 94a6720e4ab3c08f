package nn

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// golden is what testdata/images.py wrote.
type golden struct {
	Cases []struct {
		Name string
		Args map[string]struct {
			Shape   []int
			V, Grad []float64
		}
		Shape []int
		Y     []float64
	}
	Running []struct{ Mean, Var []float64 }
}

func TestLayersOfImagesGiveTorchsNumbers(t *testing.T) {
	raw, err := os.ReadFile("testdata/images.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(raw, &g))
	three := [2]int{3, 3}
	norm := &BatchNorm{RunningMean: Zeros(device.Float64, 3), RunningVar: Ones(device.Float64, 3)}
	layers := map[string]func(w, b *autodiff.Tensor) Layer{
		"conv": func(w, b *autodiff.Tensor) Layer { return &Conv2d{W: w, B: b} },
		"conv stride pad dilation": func(w, b *autodiff.Tensor) Layer {
			return &Conv2d{W: w, B: b, Over: kernels.Window{Stride: [2]int{2, 1}, Before: [2]int{1, 2}, After: [2]int{1, 2}, Dilation: [2]int{1, 3}}}
		},
		"max pool": func(_, _ *autodiff.Tensor) Layer { return MaxPool2d{kernels.Square(2, 2, 0)} },
		"max pool of ties": func(_, _ *autodiff.Tensor) Layer {
			return MaxPool2d{kernels.Window{Kernel: three, Stride: [2]int{1, 2}, Before: [2]int{1, 1}, After: [2]int{1, 1}}}
		},
		"max pool dilated": func(_, _ *autodiff.Tensor) Layer {
			return MaxPool2d{kernels.Window{Kernel: [2]int{2, 2}, Dilation: [2]int{2, 3}}}
		},
		"avg pool":        func(_, _ *autodiff.Tensor) Layer { return AvgPool2d{Over: kernels.Square(3, 2, 1)} },
		"avg pool inside": func(_, _ *autodiff.Tensor) Layer { return AvgPool2d{Over: kernels.Square(3, 2, 1), Inside: true} },
	}
	require.Len(t, g.Cases, len(layers)+3)
	for k, c := range g.Cases {
		in := map[string]*autodiff.Tensor{}
		for name, a := range c.Args {
			in[name] = autodiff.New(a.V, a.Shape...).RequireGrad()
		}
		var l Layer = norm
		if make := layers[c.Name]; make != nil {
			l = make(in["w"], in["b"])
		} else if norm.Gamma, norm.Beta = in["gamma"], in["beta"]; c.Name == "batch norm 2" {
			Eval(Sequential{norm})
		}
		y := l.Forward(in["x"])
		require.NoError(t, y.Err(), c.Name)
		require.Equal(t, device.Shape(c.Shape), y.Shape(), c.Name)
		require.InDeltaSlice(t, c.Y, read(t, y), 1e-8, c.Name)
		gy := make([]float64, len(c.Y))
		for i := range gy {
			gy[i] = math.Sin(float64(i)*1.7) + 0.3
		}
		grads, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{autodiff.New(gy, c.Shape...)}}, y)
		require.NoError(t, err)
		for name, a := range c.Args {
			require.InDeltaSlice(t, a.Grad, read(t, grads.Of(in[name])), 1e-8, "%s: gradient of %s", c.Name, name)
		}
		if l == norm {
			want := g.Running[k-len(layers)]
			require.InDeltaSlice(t, want.Mean, read(t, norm.RunningMean), 1e-8, c.Name)
			require.InDeltaSlice(t, want.Var, read(t, norm.RunningVar), 1e-8, c.Name)
		}
	}
}

func TestTheGradientsOfAConvolutionalNetAgreeWithFiniteDifferences(t *testing.T) {
	src := rng(1)
	x := Normal(src, device.Float64, 0, 1, 4, 2, 6, 6)
	labels := autodiff.New([]int64{2, 0, 1, 1})
	net := Sequential{
		&Conv2d{W: double(src, 3, 2, 3, 3), B: double(src, 3), Over: kernels.Square(3, 1, 1)},
		&BatchNorm{Gamma: double(src, 3), Beta: double(src, 3)}, Activation(autodiff.Tanh), MaxPool2d{kernels.Square(2, 2, 0)},
		&Conv2d{W: double(src, 4, 3, 2, 2)}, Activation(autodiff.Tanh), AvgPool2d{Over: kernels.Square(2, 1, 0)},
		Flatten{}, &BatchNorm{Gamma: double(src, 4), Beta: double(src, 4)}, &Linear{W: double(src, 4, 3), B: double(src, 3)},
	}
	require.Len(t, net.Params(), 9)
	checkGradients(t, net.Params(), func() *autodiff.Tensor { return CrossEntropy(net.Forward(x), labels) })
}

func TestAConvolutionBeginsAsTorchsDoes(t *testing.T) {
	l := NewConv2d(rng(1), 8, 300, kernels.Square(3, 2, 1))
	bound := 1 / math.Sqrt(8*9)
	for _, p := range l.Params() {
		mean, variance, low, high := moments(read(t, p))
		require.InDelta(t, 0, mean, 0.05*bound)
		require.InEpsilon(t, bound*bound/3, variance, 0.1)
		require.InDelta(t, bound, max(-low, high), 0.02*bound)
		require.LessOrEqual(t, max(-low, high), bound)
		require.True(t, p.RequiresGrad())
	}
	require.Equal(t, device.Shape{2, 300, 4, 5}, l.Forward(autodiff.Rand(2, 8, 7, 9)).Shape())
	require.Equal(t, device.Shape{2, 3}, Flatten{}.Forward(autodiff.Rand(2, 3)).Shape())
	require.Equal(t, device.Shape{0, 15}, Flatten{}.Forward(autodiff.Rand(0, 3, 5)).Shape())
}

func TestImagesThatDoNotFitSurfaceAsErrorsWithBothShapesAndTheCallersLine(t *testing.T) {
	x := autodiff.Rand(2, 3, 8, 8)
	row := autodiff.Rand(1, 3)
	conv := NewConv2d(rng(1), 4, 5, kernels.Square(3, 1, 1))
	for name, c := range map[string]struct {
		bad  *autodiff.Tensor
		says []string
	}{
		"channels":       {conv.Forward(x), []string{"float32(2, 3, 8, 8)", "float32(5, 4, 3, 3)", "images of 3 channels, kernels of 4"}},
		"rank":           {conv.Forward(row), []string{"float32(1, 3)", "must be images"}},
		"bias":           {(&Conv2d{W: autodiff.Rand(4, 3, 3, 3), B: autodiff.Rand(3)}).Forward(x), []string{"float32(4, 3, 3, 3)", "float32(3)"}},
		"dtype":          {conv.Forward(autodiff.Cast(autodiff.Rand(2, 4, 8, 8), device.Float64)), []string{"float64(2, 4, 8, 8)", "float32(5, 4, 3, 3)", "cast"}},
		"too small":      {MaxPool2d{kernels.Square(9, 1, 0)}.Forward(x), []string{"float32(2, 3, 8, 8)", "9×9", "does not fit into 8"}},
		"no window":      {AvgPool2d{}.Forward(x), []string{"at least 1"}},
		"nil":            {conv.Forward(nil), nil},
		"flatten nil":    {Flatten{}.Forward(nil), nil},
		"batch norm":     {NewBatchNorm(4).Forward(x), []string{"float32(4)", "float32(2, 3, 8, 8)"}},
		"batch of one":   {NewBatchNorm(3).Forward(row), []string{"float32(1, 3)", "two or more"}},
		"running":        {wrongRunning().Forward(x), []string{"float32(3)", "float32(4)"}},
		"evaluation":     {evaluating(NewBatchNorm(4)).Forward(x), []string{"float32(4)", "float32(2, 3, 8, 8)"}},
		"a probability":  {NewDropout(rng(1), 1.5).Forward(x), []string{"a probability of 1.5"}},
		"dropout of ids": {NewDropout(rng(1), 0.5).Forward(autodiff.New([]int32{1})), []string{"int32(1)"}},
		"dropout of nil": {NewDropout(rng(1), 0.5).Forward(nil), nil},
	} {
		require.Error(t, c.bad.Err(), name)
		for _, s := range c.says {
			require.ErrorContains(t, c.bad.Err(), s, name)
		}
		if name != "dropout of nil" { // which gives nil back
			require.ErrorContains(t, c.bad.Err(), "images_test.go:", name)
		}
	}
}

func wrongRunning() *BatchNorm {
	l := NewBatchNorm(3)
	l.RunningMean = Zeros(device.Float32, 4)
	return l
}

func evaluating[L Layer](l L) L {
	Eval(l)
	return l
}

func TestABatchNormWithTotalsOfItsOwnBatchIsOneWithout(t *testing.T) {
	for _, shape := range [][]int{{5, 3}, {4, 3, 2, 2}} {
		src := rng(11)
		x := Normal(src, device.Float64, 2, 3, shape...).RequireGrad()
		norm := func(total func(*autodiff.Tensor) *autodiff.Tensor) *BatchNorm {
			src := rng(12)
			return &BatchNorm{Gamma: double(src, 3), Beta: double(src, 3), RunningMean: Zeros(device.Float64, 3), RunningVar: Ones(device.Float64, 3), Total: total}
		}
		run := func(l *BatchNorm) (all [][]float64) {
			y := l.Forward(x)
			g, err := autodiff.Backward(autodiff.Sum(autodiff.Mul(y, autodiff.Mul(y, y))))
			require.NoError(t, err)
			return [][]float64{read(t, y), read(t, l.RunningMean), read(t, l.RunningVar), read(t, g.Of(x)), read(t, g.Of(l.Gamma)), read(t, g.Of(l.Beta))}
		}
		calls := 0
		want, got := run(norm(nil)), run(norm(func(sum *autodiff.Tensor) *autodiff.Tensor { calls++; return sum }))
		require.Equal(t, 2, calls)
		for i := range want {
			require.InDeltaSlice(t, want[i], got[i], 1e-9)
		}
		evaluating(norm(func(*autodiff.Tensor) *autodiff.Tensor { panic("evaluation asks nobody") })).Forward(x)
	}
	l := NewBatchNorm(3)
	l.Total = func(sum *autodiff.Tensor) *autodiff.Tensor { return sum }
	require.ErrorContains(t, l.Forward(autodiff.New([]float32{1, 2, 3})).Err(), "no channels")
	require.ErrorContains(t, l.Forward(autodiff.New([]float32{1, 2, 3}, 1, 3)).Err(), "two or more")
	bad := errors.New("the others are gone")
	l.Total = func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(bad) }
	require.ErrorIs(t, l.Forward(autodiff.New([]float32{1, 2, 3, 4, 5, 6}, 2, 3)).Err(), bad)
}
