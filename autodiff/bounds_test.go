package autodiff

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// warnings collects what the default logger says meanwhile.
func warnings(t *testing.T) *bytes.Buffer {
	var said bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return &said
}

func TestEverNewShapesAreABoundedNumberOfProgramsAndOneWarning(t *testing.T) {
	said := warnings(t)
	builds := 0
	f := Define("growing", func(g *Graph, x node) node { builds++; return g.Neg(x) })
	for i := range maxCompiled {
		require.NoError(t, f.Call(Zeros(device.Float32, i)).Err())
	}
	require.Empty(t, said.String(), "as many as are kept are no reason")
	for i := range 2 * maxCompiled {
		require.NoError(t, f.Call(Zeros(device.Float32, 7)).Err())
		require.NoError(t, f.Call(Zeros(device.Float32, maxCompiled+i)).Err())
		require.LessOrEqual(t, f.kept.Len(), maxCompiled)
	}
	require.Equal(t, 3*maxCompiled, builds, "the shape that is used stays")
	require.Equal(t, 1, strings.Count(said.String(), "\n"), said)
	require.Contains(t, said.String(), "level=WARN")
	require.Contains(t, said.String(), "function=growing")
	require.Contains(t, said.String(), "bounds_test.go", "it names the user's line")
}

func TestEverNewParametersAreABoundedNumberOfFunctionsAndOneWarning(t *testing.T) {
	said := warnings(t)
	x := New([]float32{1, 2})
	for i := range 2*maxPrimitives + 10 {
		c := float64(i) + 0.125
		require.Equal(t, []float64{c, 2 * c}, numbers(t, Scale(x, c)))
		require.LessOrEqual(t, withParameters.kept.Len(), maxPrimitives)
		require.NoError(t, Run(kernels.Unary{Fn: kernels.Shift, C: c}, x).Err())
		require.LessOrEqual(t, instructions.kept.Len(), maxPrimitives)
	}
	require.LessOrEqual(t, strings.Count(said.String(), "op=Scale"), 1, "-count may have been there before")
	require.LessOrEqual(t, strings.Count(said.String(), "\n"), 1, said)
}

func TestAWarningMayComputeWithTheFunctionThatItIsAbout(t *testing.T) {
	f := Define("neg", func(g *Graph, x node) node { return g.Neg(x) })
	was := slog.Default()
	defer slog.SetDefault(was)
	called := 0
	slog.SetDefault(slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		called++
		return len(p), f.Call(Zeros(device.Float64, 3, 3, 3)).Err()
	}), nil)))
	for i := range maxCompiled + 2 {
		require.NoError(t, f.Call(Zeros(device.Float32, i)).Err())
	}
	require.Equal(t, 1, called)
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestParametersAreToldApart(t *testing.T) {
	x := New([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
	for range 2 { // made, and found
		require.Equal(t, []float64{5, 7, 9}, numbers(t, Sum(x, 0)))
		require.Equal(t, []float64{6, 15}, numbers(t, Sum(x, 1)))
		require.Equal(t, []float64{6, 15}, numbers(t, Sum(x, -1)))
		require.Equal(t, []float64{21}, numbers(t, Sum(x)))
		require.Equal(t, []float64{21}, numbers(t, Sum(x, 0, 1)))
		require.Equal(t, []float64{3.5}, numbers(t, Mean(x)))
		require.Equal(t, []float64{0, 0, 0, 0, 0, 0}, numbers(t, Scale(x, 0)))
		require.Equal(t, []float64{2, 5}, numbers(t, Slice(x, 1, 1, 2)))
		require.Equal(t, []float64{1, 2, 3}, numbers(t, Slice(x, 0, 0, 1)))
		require.Equal(t, device.Shape{3, 2}, Reshape(x, 3, -1).Shape())
		require.Equal(t, device.Shape{6}, Reshape(x, -1).Shape())
		require.Equal(t, device.Int64, Cast(x, device.Int64).Dtype())
	}
	require.ErrorIs(t, Sum(x, make([]int, device.MaxRank+1)...).Err(), device.ErrBadShape)
}

// TestManyGoroutinesMayCallOneFunctionAtOnce computes the same small step serially and sixteen
// times at once, forward and backward, with shapes that come and go.
func TestManyGoroutinesMayCallOneFunctionAtOnce(t *testing.T) {
	f := Define("step", func(g *Graph, x, w node) node { return g.Tanh(g.Mul(g.Add(x, w), w)) })
	w := RandFrom(rand.New(rand.NewPCG(1, 1)), 3, 1).RequireGrad()
	step := func(t *testing.T, i int) []float64 {
		x := RandFrom(rand.New(rand.NewPCG(uint64(i), 2)), 3, 1+i%7)
		y := Scale(Mul(f.Call(x, w), x), 1+float64(i%3))
		g, err := Backward(Sum(y))
		require.NoError(t, err)
		return append(numbers(t, y), numbers(t, g.Of(w))...)
	}
	const steps = 40
	var want [steps][]float64
	for i := range want {
		want[i] = step(t, i)
	}
	f = Define("step", func(g *Graph, x, w node) node { return g.Tanh(g.Mul(g.Add(x, w), w)) }) // to be compiled meanwhile
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range want {
				if got := step(t, i); !slices.Equal(want[i], got) {
					t.Errorf("step %d differs", i)
				}
			}
		})
	}
	wg.Wait()
}

func TestEmptyAndSingleExtentsComputeAndPullBackAsAnyOther(t *testing.T) {
	f := Define("f", func(g *Graph, x, y node) node { return g.Sum(g.Mul(g.Add(x, y), x), 0) })
	for _, s := range [][2]device.Shape{{{0, 3}, {0, 3}}, {{0, 3}, {1, 3}}, {{1, 3}, {0, 1}}, {{1, 1}, {1, 1}}, {{1, 3}, {4, 1}}, {{4, 0}, {1}}, {{3}, {}}} {
		x, y := Ones(device.Float64, s[0]...).RequireGrad(), Full(device.Float64, 2, s[1]...).RequireGrad()
		for range 2 { // compiled, and found
			eager, whole := Sum(Mul(Add(x, y), x), 0), f.Call(x, y)
			require.NoError(t, eager.Err(), s)
			require.Equal(t, numbers(t, eager), numbers(t, whole), s)
			require.Equal(t, eager.Shape(), whole.Shape(), s)
			a, err := Backward(Sum(eager))
			require.NoError(t, err, s)
			b, err := Backward(Sum(whole))
			require.NoError(t, err, s)
			for _, p := range []*Tensor{x, y} {
				require.Equal(t, p.Type(), a.Of(p).Type(), s)
				require.Equal(t, numbers(t, a.Of(p)), numbers(t, b.Of(p)), s)
			}
		}
	}
}
