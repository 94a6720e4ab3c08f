package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 3)) }

func read(t testing.TB, x *autodiff.Tensor) []float64 {
	t.Helper()
	require.NoError(t, x.Err())
	v, err := values(x)
	require.NoError(t, err)
	return v
}

// double is a float64 parameter with the shape of a random one.
func double(src *rand.Rand, shape ...int) *autodiff.Tensor {
	return Normal(src, device.Float64, 0, 1, shape...).RequireGrad()
}

// checkGradients compares the gradients of a loss with central finite differences over every
// parameter. Parameters are changed in place by updates, as an optimizer does.
func checkGradients(t *testing.T, params []*autodiff.Tensor, loss func() *autodiff.Tensor) {
	t.Helper()
	l := loss()
	require.NoError(t, l.Err())
	g, err := autodiff.Backward(l)
	require.NoError(t, err)
	at := func() float64 {
		v, err := loss().Item()
		require.NoError(t, err)
		return v
	}
	const h = 1e-5
	for k, p := range params {
		require.NotNil(t, g.Of(p), "parameter %d", k)
		d := read(t, g.Of(p))
		for i := range d {
			push := make([]float64, len(d))
			move := func(by float64) {
				push[i] = -by
				step := autodiff.New(push, p.Shape()...)
				require.NoError(t, autodiff.Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*autodiff.Tensor{p, step}, 0))
			}
			move(h)
			up := at()
			move(-2 * h)
			down := at()
			move(h)
			want := (up - down) / (2 * h)
			require.InDelta(t, want, d[i], 1e-6*math.Max(1, math.Abs(want)), "parameter %d, element %d", k, i)
		}
	}
}

func TestTheGradientsOfLayersAndLossesAgreeWithFiniteDifferences(t *testing.T) {
	src := rng(1)
	x := Normal(src, device.Float64, 0, 1, 4, 3)
	labels := autodiff.New([]int64{2, 0, 1, 1})
	ids := autodiff.New([]int32{4, 1, 1, 0, 4, 2}, 2, 3)
	net := Sequential{
		&Linear{W: double(src, 3, 5), B: double(src, 5)}, Activation(autodiff.GELU),
		&LayerNorm{Gamma: double(src, 5), Beta: double(src, 5)}, &Linear{W: double(src, 5, 3), B: double(src, 3)},
	}
	checkGradients(t, net.Params(), func() *autodiff.Tensor { return CrossEntropy(net.Forward(x), labels) })
	target := Normal(src, device.Float64, 0, 1, 4, 3)
	checkGradients(t, net.Params(), func() *autodiff.Tensor { return MSE(net.Forward(x), target) })
	table := &Embedding{Table: double(src, 5, 2)}
	norm := &LayerNorm{Gamma: double(src, 2), Beta: double(src, 2), Eps: 0.5}
	words := Sequential{table, norm}
	for _, table.Sparse = range []bool{false, true} {
		checkGradients(t, words.Params(), func() *autodiff.Tensor {
			return autodiff.Mean(autodiff.Tanh(words.Forward(ids)))
		})
	}
}

func TestLayersComputeWhatTheySay(t *testing.T) {
	l := &Linear{W: autodiff.New([]float32{1, 2, 3, 4, 5, 6}, 2, 3), B: autodiff.New([]float32{10, 20, 30})}
	require.Equal(t, []float64{11, 22, 33, 14, 25, 36}, read(t, l.Forward(autodiff.New([]float32{1, 0, 0, 1}, 2, 2))))
	require.Equal(t, device.Shape{2, 1, 3}, l.Forward(autodiff.Zeros(device.Float32, 2, 1, 2)).Shape())
	e := &Embedding{Table: autodiff.New([]float32{1, 2, 3, 4}, 2, 2)}
	require.Equal(t, []float64{3, 4, 1, 2, 3, 4}, read(t, e.Forward(autodiff.New([]int64{1, 0, 1}))))
	y := read(t, NewLayerNorm(4).Forward(autodiff.New([]float32{1, 2, 3, 4}, 1, 4)))
	for i, want := range []float64{-1.3416355, -0.4472118, 0.4472118, 1.3416355} { // torch.nn.LayerNorm(4)
		require.InDelta(t, want, y[i], 1e-6)
	}
	loss, err := MSE(autodiff.New([]float32{1, 2}), autodiff.New([]float32{3, 5})).Item()
	require.NoError(t, err)
	require.Equal(t, 6.5, loss)
	loss, err = CrossEntropy(autodiff.New([]float64{1, 2, 3}, 1, 3), autodiff.New([]int32{2})).Item()
	require.NoError(t, err)
	require.InDelta(t, math.Log(math.Exp(1)+math.Exp(2)+math.Exp(3))-3, loss, 1e-12)
}

func TestAnMLPHasLinearLayersWithActivationsBetween(t *testing.T) {
	m := NewMLP(rng(1), autodiff.ReLU, 6, 5, 4, 3)
	require.Len(t, m, 5)
	var shapes []device.Shape
	for _, p := range m.Params() {
		require.True(t, p.RequiresGrad())
		require.True(t, p.IsLeaf())
		require.Nil(t, p.Owner())
		shapes = append(shapes, p.Shape())
	}
	require.Equal(t, []device.Shape{{6, 5}, {5}, {5, 4}, {4}, {4, 3}, {3}}, shapes)
	require.Equal(t, device.Shape{2, 3}, m.Forward(autodiff.Rand(2, 6)).Shape())
	require.Empty(t, NewMLP(rng(1), autodiff.ReLU, 6))
	x := autodiff.Rand(2, 6)
	require.Same(t, x, Sequential{}.Forward(x))
}

func TestAModelLearns(t *testing.T) {
	src := rng(5)
	m := NewMLP(src, autodiff.Tanh, 2, 8, 2)
	x := autodiff.New([]float32{0, 0, 0, 1, 1, 0, 1, 1}, 4, 2)
	labels := autodiff.New([]int32{0, 1, 1, 0})
	for range 300 {
		g, err := autodiff.Backward(CrossEntropy(m.Forward(x), labels))
		require.NoError(t, err)
		for _, p := range m.Params() {
			require.NoError(t, autodiff.Apply(kernels.Update{Rule: kernels.SGD, LR: 0.5, Step: 1}, []*autodiff.Tensor{p, g.Of(p)}, 0))
		}
	}
	share, err := Accuracy(m.Forward(x), labels)
	require.NoError(t, err)
	require.Equal(t, 1.0, share)
}

func TestAccuracyCountsTheRowsWhoseLargestLogitIsTheLabels(t *testing.T) {
	logits := []float64{1, 2, 0, 5, 4, 3, 0, 0, 1, 2, 2, 1}
	for _, labels := range []*autodiff.Tensor{autodiff.New([]int32{1, 0, 1, 0}), autodiff.New([]int64{1, 0, 1, 0})} {
		for _, l := range []*autodiff.Tensor{autodiff.New(logits, 4, 3), autodiff.Cast(autodiff.New(logits, 4, 3), device.Float32)} {
			share, err := Accuracy(l, labels)
			require.NoError(t, err)
			require.Equal(t, 0.75, share, "the first of equal ones counts")
		}
	}
}

func TestWrongShapesSurfaceAsErrorsWithTheCallersLine(t *testing.T) {
	x := autodiff.Rand(4, 3)
	y := autodiff.Rand(4)
	labels := autodiff.New([]int32{0, 1})
	for name, bad := range map[string]*autodiff.Tensor{
		"linear":         NewLinear(rng(1), 2, 5).Forward(x),
		"a net":          NewMLP(rng(1), autodiff.GELU, 4, 4, 4).Forward(x),
		"float ids":      NewEmbedding(rng(1), 2, 5).Forward(x),
		"ids too large":  NewEmbedding(rng(1), 1, 5).Forward(labels),
		"layer norm":     NewLayerNorm(2).Forward(x),
		"cross entropy":  CrossEntropy(x, labels),
		"MSE broadcast":  MSE(autodiff.Reshape(y, 4, 1), y),
		"MSE dtype":      MSE(y, autodiff.Cast(y, device.Float64)),
		"MSE of nil":     MSE(nil, y),
		"a bad layer":    NewLinear(rng(1), -1, 5).Forward(x),
		"integer weight": (&Linear{W: Normal(rng(1), device.Int32, 0, 1, 3, 3), B: y}).Forward(x),
	} {
		require.Error(t, bad.Err(), name)
		require.ErrorContains(t, bad.Err(), "nn_test.go:", name)
	}
	for name, c := range map[string][2]*autodiff.Tensor{
		"labels":     {x, labels},
		"rank":       {y, autodiff.New([]int32{0, 1, 2, 3})},
		"no rows":    {autodiff.Zeros(device.Float32, 0, 3), autodiff.Zeros(device.Int32, 0)},
		"no classes": {autodiff.Zeros(device.Float32, 2, 0), labels},
		"floats":     {x, y},
		"integers":   {autodiff.Zeros(device.Int32, 2, 2), labels},
		"failed":     {x, autodiff.Failed(device.ErrMemory)},
		"nil":        {nil, labels},
	} {
		_, err := Accuracy(c[0], c[1])
		require.Error(t, err, name)
		require.ErrorContains(t, err, "nn_test.go:", name)
	}
}

// moments are the mean, the variance, and the extremes.
func moments(v []float64) (mean, variance, low, high float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		variance += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, variance, slices.Min(v), slices.Max(v)
}

func TestInitialValuesHaveTheDistributionTheyClaim(t *testing.T) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		uniform := func(x *autodiff.Tensor, bound float64) {
			t.Helper()
			require.Equal(t, d, x.Dtype())
			mean, variance, low, high := moments(read(t, x))
			require.InDelta(t, 0, mean, 0.02*bound)
			require.InEpsilon(t, bound*bound/3, variance, 0.03)
			require.InDelta(t, -bound, low, 0.01*bound)
			require.InDelta(t, bound, high, 0.01*bound)
			require.LessOrEqual(t, max(-low, high), bound*(1+1e-7))
		}
		uniform(Uniform(rng(1), d, -2, 2, 200, 100), 2)
		uniform(KaimingUniform(rng(1), d, math.Sqrt(5), 200, 100), 1/math.Sqrt(200))
		uniform(KaimingUniform(rng(1), d, 0, 200, 100), math.Sqrt(6.0/200))
		uniform(XavierUniform(rng(1), d, 2, 200, 100), 2*math.Sqrt(6.0/300))
		mean, variance, _, _ := moments(read(t, Normal(rng(1), d, 3, 2, 20_000)))
		require.InDelta(t, 3, mean, 0.06)
		require.InEpsilon(t, 4, variance, 0.04)
		require.Equal(t, []float64{0, 0}, read(t, Zeros(d, 2)))
		require.Equal(t, []float64{1, 1}, read(t, Ones(d, 2)))
		require.Equal(t, device.Shape{}, Uniform(rng(1), d, 0, 1).Shape())
		require.Empty(t, read(t, KaimingUniform(rng(1), d, 0, 0, 4)))
	}
	l := NewLinear(rng(1), 100, 300)
	for _, p := range l.Params() {
		_, _, low, high := moments(read(t, p))
		require.InDelta(t, 0.1, max(-low, high), 0.002)
	}
}

func TestOneSeedIsOneModel(t *testing.T) {
	make := func(seed uint64) (all []float64) {
		src := rng(seed)
		m := append(NewMLP(src, autodiff.GELU, 4, 3, 2), NewEmbedding(src, 3, 2), NewLayerNorm(2))
		for _, p := range m.Params() {
			all = append(all, read(t, p)...)
		}
		return all
	}
	require.Equal(t, make(1), make(1))
	require.NotEqual(t, make(1), make(2))
	f32, f64 := read(t, Normal(rng(1), device.Float32, 0, 1, 9)), read(t, Normal(rng(1), device.Float64, 0, 1, 9))
	for i := range f32 {
		require.Equal(t, float32(f64[i]), float32(f32[i]), "the dtype changes the rounding, not the draw")
	}
}

func TestInitialValuesThatCannotBeAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		bad  *autodiff.Tensor
		want error
	}{
		"a vector":   {KaimingUniform(rng(1), device.Float32, 0, 3), device.ErrBadShape},
		"a scalar":   {XavierUniform(rng(1), device.Float32, 1), device.ErrBadShape},
		"negative":   {Uniform(rng(1), device.Float32, 0, 1, -3), device.ErrBadShape},
		"too large":  {Normal(rng(1), device.Float32, 0, 1, 1<<40), device.ErrBadShape},
		"an integer": {Normal(rng(1), device.Int64, 0, 1, 3), autodiff.ErrDtype},
		"no source":  {Uniform(nil, device.Float32, 0, 1, 3), ErrNoSource},
		"nor here":   {Normal(nil, device.Float64, 0, 1), ErrNoSource},
		"linear":     {NewLinear(nil, 2, 3).W, ErrNoSource},
		"its bias":   {NewLinear(nil, 2, 3).B, ErrNoSource},
		"embedding":  {NewEmbedding(nil, 2, 3).Table, ErrNoSource},
		"images":     {NewConv2d(nil, 1, 2, kernels.Square(3, 1, 1)).W, ErrNoSource},
		"forward":    {NewMLP(nil, autodiff.ReLU, 2, 3, 1).Forward(autodiff.Ones(device.Float32, 1, 2)), ErrNoSource},
	} {
		require.ErrorIs(t, c.bad.Err(), c.want, name)
		require.ErrorContains(t, c.bad.Err(), "nn_test.go:", name)
	}
}

func TestALayerThatIsNilIsAnErrorWithItsPlace(t *testing.T) {
	x := autodiff.Ones(device.Float32, 1, 2)
	for _, none := range []Layer{nil, (*Linear)(nil), (*Dropout)(nil), Activation(nil)} {
		s := Sequential{NewDropout(rng(1), 0.5), none}
		y := s.Forward(x)
		require.ErrorIs(t, y.Err(), autodiff.ErrFunction)
		require.ErrorContains(t, y.Err(), "layer 1 is nil")
		require.ErrorContains(t, y.Err(), "nn_test.go:")
		require.Empty(t, s.Params())
		Eval(s)
	}
	require.ErrorIs(t, NewMLP(rng(1), nil, 2, 3, 1).Forward(x).Err(), autodiff.ErrFunction)
	require.ErrorIs(t, Activation(nil).Forward(x).Err(), autodiff.ErrFunction)
	require.NoError(t, Sequential{Sequential(nil), Flatten{}}.Forward(x).Err(), "no layers are the identity")
}

func TestALayerServesManyGoroutines(t *testing.T) {
	m := NewMLP(rng(1), autodiff.GELU, 4, 8, 2)
	x := autodiff.RandFrom(rng(2), 3, 4)
	want := read(t, m.Forward(x))
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 20 {
				if got, err := values(m.Forward(x)); err != nil || !slices.Equal(want, got) {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
