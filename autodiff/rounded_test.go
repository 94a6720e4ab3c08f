package autodiff

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

// twoProducts reads both weights in its backward, and a bias.
var twoProducts = Define("two products", func(g *Graph, x, w, b, v node) node {
	return g.MatMul(g.Tanh(g.Linear(g.Tanh(g.MatMul(x, w)), w, b)), v)
})

// copiesOf are the rounded copies that a call has saved for its backward.
func copiesOf(y *Tensor) []*device.Buffer {
	n := y.edge.Node
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.keeps()
	return append([]*device.Buffer(nil), all[len(all)-len(n.fn.Factors):]...)
}

// hasCopy says whether somebody has saved a rounded copy of what a parameter is now.
func hasCopy(p *Tensor) bool {
	b := p.rounded(p.buf)
	if b != nil {
		_ = b.Release()
	}
	return b != nil
}

func TestOnAGPUCallsThatWaitShareTheCopiesOfTheirWeightsAndNobodyKeepsThemLonger(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	in := movedTo(dev, []*Tensor{narrowTensor(1, 4, 8), narrowTensor(2, 8, 8), narrowTensor(3, 8), narrowTensor(4, 8, 3)})
	in[0] = in[0].Detach()
	first := twoProducts.Call(in...)
	copies := copiesOf(first)
	require.Len(t, copies, 2, "not the bias, nor the input, which is no parameter")
	second := twoProducts.Call(in...)
	require.Equal(t, copies, copiesOf(second))
	other := Define("other", func(g *Graph, x, v node) node { return g.MatMul(g.Tanh(g.MatMul(x, v)), g.Transpose(v, 1, 0)) })
	third := other.Call(in[1], in[3])
	require.Contains(t, copiesOf(third), copies[1], "another function's too")

	for n, y := range []*Tensor{first, second, third} {
		require.True(t, hasCopy(in[3]), "before backward %d", n)
		_, err := BackwardWith(Options{Grads: []*Tensor{y.Detach()}}, y)
		require.NoError(t, err)
	}
	for _, w := range in[1:] {
		require.False(t, hasCopy(w))
	}
	require.NotSame(t, copies[0], copiesOf(twoProducts.Call(in...))[0])
}

func TestOnAGPUACallThatIsForgottenKeepsNoCopyAlive(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	in := movedTo(dev, []*Tensor{narrowTensor(1, 4, 8), narrowTensor(2, 8, 8), narrowTensor(3, 8), narrowTensor(4, 8, 3)})
	require.NoError(t, twoProducts.Call(in...).Err())
	for range 100 {
		if runtime.GC(); !hasCopy(in[1]) {
			return
		}
	}
	require.Fail(t, "the collector finds it in use")
}

// What is compared with has parameters of its own for each call, so that nothing is shared.
func TestOnAGPUEveryCallIsPulledBackWithTheWeightsItReadWhateverIsSharedAndStepped(t *testing.T) {
	shared := 0
	for seed := range soak.Cases(4) {
		r := rand.New(rand.NewPCG(uint64(seed), 91))
		dev, err := gpu.Config{Precision: gpu.BF16}.On(ptxtest.New(ptx.Config{Late: rand.New(rand.NewPCG(uint64(seed), 92)), Races: true}), device.CUDA(0))
		require.NoError(t, err)
		params := movedTo(dev, []*Tensor{narrowTensor(2, 8, 8), narrowTensor(3, 8), narrowTensor(4, 8, 3)})
		type waiting struct{ y, alone *Tensor }
		var calls []waiting
		call := func() {
			x := narrowTensor(r.Uint64(), 4, 8).Detach()
			alone := []*Tensor{To(x, dev)}
			for _, p := range params {
				alone = append(alone, To(To(p.Detach(), device.Host()), dev).RequireGrad())
			}
			c := waiting{twoProducts.Call(append([]*Tensor{To(x, dev)}, params...)...), twoProducts.Call(alone...)}
			for _, old := range calls {
				if copiesOf(old.y)[0] == copiesOf(c.y)[0] {
					shared++
					break
				}
			}
			calls = append(calls, c)
		}
		pull := func() {
			at := r.IntN(len(calls))
			c := calls[at]
			calls = append(calls[:at], calls[at+1:]...)
			require.Equal(t, floats(t, c.alone), floats(t, c.y), "seed %d", seed)
			want, got := pulled(t, c.alone), pulled(t, c.y)
			require.Equal(t, want, got, "seed %d", seed)
		}
		for range 12 {
			switch r.IntN(4) {
			case 0, 1:
				call()
			case 2:
				if len(calls) > 0 {
					pull()
				}
			case 3:
				p := params[r.IntN(3)]
				require.NoError(t, Apply(kernels.Unary{Fn: kernels.Scale, C: 1.25}, []*Tensor{p}, 0))
			}
		}
		for len(calls) > 0 {
			pull()
		}
		require.NoError(t, dev.Close())
	}
	require.Greater(t, shared, 2*soak.Cases(4), "too little is shared to show anything")
}

func floats(t *testing.T, x *Tensor) []float32 {
	t.Helper()
	v, err := Values[float32](x)
	require.NoError(t, err)
	return v
}

// pulled are the gradients of a call's inputs.
func pulled(t *testing.T, y *Tensor) (all [][]float32) {
	t.Helper()
	node := y.edge.Node
	grads, err := node.PullWith([]*Tensor{y.Detach()}, Pull{})
	require.NoError(t, err)
	for _, g := range grads {
		if g == nil {
			all = append(all, nil)
			continue
		}
		all = append(all, floats(t, g))
	}
	Release(grads...)
	return all
}

// Each of some goroutines calls and pulls back, while one steps the weight. A call may read any
// version, and must be pulled back with that.
func TestOnAGPUCallsAtOnceShareCopiesOfOneVersionOfAWeight(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	in := movedTo(dev, []*Tensor{narrowTensor(1, 4, 8), narrowTensor(2, 8, 8), narrowTensor(3, 8), narrowTensor(4, 8, 3)})
	in[0] = in[0].Detach()
	const versions = 6
	double := func(w *Tensor) error { return Apply(kernels.Unary{Fn: kernels.Scale, C: 1.5}, []*Tensor{w}, 0) }
	outcome := func(in []*Tensor) string {
		y := twoProducts.Call(in...)
		if err := y.Err(); err != nil {
			return err.Error()
		}
		return fmt.Sprint(floats(t, y), pulled(t, y))
	}
	want := map[string]int{}
	own := movedTo(dev, in)
	own[0] = own[0].Detach()
	for k := range versions {
		want[outcome(own)] = k
		require.NoError(t, double(own[1]))
	}
	require.Len(t, want, versions)
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			for last := 0; last < versions-1; {
				got := outcome(in)
				k, known := want[got]
				if !known || k < last {
					t.Errorf("a call is of no version from %d on: %s", last, got)
					return
				}
				last = k
			}
		})
	}
	for range versions - 1 {
		require.NoError(t, double(in[1]))
		runtime.Gosched()
	}
	calls.Wait()
}

// A call may hold a value that is stepped before it has made its copy, or a checkpoint's second run
// one from before.
func TestOnAGPUACopyOfWhatAParameterWasIsNobodyElses(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	w := movedTo(dev, []*Tensor{narrowTensor(2, 8, 8)})[0]
	alloc := func() *device.Buffer {
		b, err := dev.Alloc(2 * 8 * 8)
		require.NoError(t, err)
		return b
	}
	was, err := w.acquire()
	require.NoError(t, err)
	of := w.shareRounded(was, alloc())
	require.True(t, hasCopy(w))
	require.NoError(t, Apply(kernels.Unary{Fn: kernels.Scale, C: 2}, []*Tensor{w}, 0))
	require.False(t, hasCopy(w), "the value is another")
	late := w.shareRounded(was, alloc())
	require.False(t, hasCopy(w))
	require.Nil(t, w.rounded(was))
	is := w.shareRounded(w.buf, alloc())
	require.True(t, hasCopy(w))
	require.Nil(t, w.rounded(was))
	second := alloc()
	require.Same(t, is, w.shareRounded(w.buf, second), "who was first")
	require.Error(t, second.Release(), "it is given back")
	releaseAll([]*device.Buffer{was, of, late, is, is})
	require.False(t, hasCopy(w))
}

func TestOnAGPUACheckpointsSecondRunReadsTheWeightsOfTheFirst(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	run := func(step bool) [][]float32 {
		in := movedTo(dev, []*Tensor{narrowTensor(1, 4, 8), narrowTensor(2, 8, 8), narrowTensor(3, 8), narrowTensor(4, 8, 3)})
		y := Checkpoint(func(x ...*Tensor) []*Tensor { return []*Tensor{twoProducts.Call(x[0], in[1], in[2], in[3])} }, in[0])[0]
		other := twoProducts.Call(in...) // which shares what it rounds
		if step {
			for _, w := range in[1:] {
				require.NoError(t, Apply(kernels.Unary{Fn: kernels.Scale, C: 2}, []*Tensor{w}, 0))
			}
		}
		next := twoProducts.Call(in...)
		g, err := BackwardWith(Options{Grads: []*Tensor{y.Detach()}}, y)
		require.NoError(t, err)
		require.NoError(t, other.Err())
		require.NoError(t, next.Err())
		var grads [][]float32
		for _, x := range in {
			grads = append(grads, floats(t, g.Of(x)))
		}
		return grads
	}
	require.Equal(t, run(false), run(true))
}
