package autodiff

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

var sgd = kernels.Update{Rule: kernels.SGD, LR: 0.5, Step: 1}

// bytesOf is where a tensor's value lies.
func bytesOf(t *testing.T, x *Tensor) *byte {
	t.Helper()
	b, err := x.Acquire()
	require.NoError(t, err)
	defer b.Release()
	raw, err := b.Host()
	require.NoError(t, err)
	return &raw[0]
}

func TestAnUpdateIsInPlaceWhereNobodyElseSeesTheValue(t *testing.T) {
	w := New([]float64{1, 2})
	at := bytesOf(t, w)
	require.NoError(t, Apply(sgd, []*Tensor{w, New([]float64{2, 4})}, 0))
	require.Equal(t, []float64{0, 0}, numbers(t, w))
	require.Same(t, at, bytesOf(t, w))
}

// A value that lies in another process's memory is a parameter like any other; its memory goes back
// with the first update.
func TestAnUpdateOfForeignMemoryCopiesItFirst(t *testing.T) {
	mem, gone := device.Bytes([]float64{1, 2}), 0
	buf := device.Foreign(mem, nil, func() { gone++ })
	w := Wrap(kernels.Type{Dtype: device.Float64, Shape: device.Shape{2}}, buf, nil)
	k, err := prepareUpdate(sgd, []*Tensor{w, w}, []int{0})
	require.NoError(t, err)
	require.ErrorIs(t, k.Run([]*device.Buffer{buf}, []*device.Buffer{buf, buf}), device.ErrReadOnly)
	require.NoError(t, Apply(sgd, []*Tensor{w, New([]float64{2, 4})}, 0))
	require.Equal(t, []float64{0, 0}, numbers(t, w))
	require.Equal(t, []float64{1, 2}, device.As[float64](mem))
	require.Equal(t, 1, gone)
	at := bytesOf(t, w)
	require.NoError(t, Apply(sgd, []*Tensor{w, New([]float64{2, 4})}, 0))
	require.Same(t, at, bytesOf(t, w))
}

func TestTheTapeKeepsTheOldValueOfAParameter(t *testing.T) {
	w := New([]float64{3}).RequireGrad()
	old := w.Detach()
	y := Sum(Mul(w, w))
	at := bytesOf(t, w)
	require.NoError(t, Apply(sgd, []*Tensor{w, New([]float64{2})}, 0))
	require.NotSame(t, at, bytesOf(t, w), "it was copied on write")
	require.Equal(t, []float64{2}, numbers(t, w))
	require.Equal(t, []float64{3}, numbers(t, old))
	g, err := Backward(y)
	require.NoError(t, err)
	require.Equal(t, []float64{6}, numbers(t, g.Of(w)), "the gradient is that of the value that the forward saw")
	require.Equal(t, []float64{2}, numbers(t, w))
	g, err = Backward(Sum(Mul(w, w)))
	require.NoError(t, err)
	require.Equal(t, []float64{4}, numbers(t, g.Of(w)))
}

func TestAnUpdateMayReadItsTargetTwice(t *testing.T) {
	w := New([]float64{8})
	require.NoError(t, Apply(sgd, []*Tensor{w, w}, 0))
	require.Equal(t, []float64{4}, numbers(t, w))
}

func TestAnUpdateOfSeveralTargetsWritesThemAll(t *testing.T) {
	p, g, m, v := New([]float64{1}), New([]float64{2}), New([]float64{0}), New([]float64{0})
	adam := kernels.Update{Rule: kernels.Adam, LR: 0.1, Beta1: 0.9, Beta2: 0.99, Step: 1}
	require.NoError(t, Apply(adam, []*Tensor{p, g, m, v}, 0, 2, 3))
	requireClose(t, []float64{0.9, 0.2, 0.04}, []float64{numbers(t, p)[0], numbers(t, m)[0], numbers(t, v)[0]}, 1e-9, "p, m, v")
	require.Equal(t, []float64{2}, numbers(t, g))
}

func TestARefusedUpdateChangesNothing(t *testing.T) {
	a := NewArena("pass")
	gone := owned(t, a, device.Host(), 2)
	a.Free()
	w, g := New([]float64{1, 2}), New([]float64{1, 1})
	at := bytesOf(t, w)
	for name, c := range map[string]struct {
		i        kernels.Instr
		operands []*Tensor
		targets  []int
		want     error
	}{
		"wrong shape":    {sgd, []*Tensor{w, New([]float64{1})}, []int{0}, kernels.ErrOperands},
		"wrong result":   {kernels.Unary{Fn: kernels.Neg}, []*Tensor{w}, []int{0, 0}, ErrFunction},
		"wrong type":     {kernels.Cast{To: device.Float32}, []*Tensor{w}, []int{0}, ErrDtype},
		"no such target": {sgd, []*Tensor{w, g}, []int{2}, ErrFunction},
		"twice":          {kernels.Update{Rule: kernels.SGD, LR: 1, Momentum: 1, Step: 1}, []*Tensor{w, g, w}, []int{0, 2}, ErrFunction},
		"freed operand":  {sgd, []*Tensor{w, gone}, []int{0}, ErrFreed},
		"freed target":   {sgd, []*Tensor{gone, g}, []int{0}, ErrFreed},
		"failed":         {sgd, []*Tensor{w, Failed(errKernel)}, []int{0}, errKernel},
		"elsewhere":      {sgd, []*Tensor{w, To(g, device.NewSim(device.SimConfig{}))}, []int{0}, ErrDevices},
		"no instruction": {nil, []*Tensor{w, g}, []int{0}, ErrFunction},
		"no operands":    {sgd, nil, nil, kernels.ErrOperands},
	} {
		err := Apply(c.i, c.operands, c.targets...)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, "update_test.go:", name)
	}
	require.Equal(t, []float64{1, 2}, numbers(t, w))
	require.Same(t, at, bytesOf(t, w))
}

func TestAnUpdateWithoutMemoryChangesNothing(t *testing.T) {
	sim := device.NewSim(device.SimConfig{Bytes: 3 * 16})
	a := NewArena("pass")
	defer a.Free()
	w, g := owned(t, a, sim, 2), owned(t, a, sim, 2)
	held := w.Detach()
	fill := owned(t, a, sim, 2)
	require.ErrorIs(t, Apply(sgd, []*Tensor{w, g}, 0), device.ErrMemory)
	require.Equal(t, []float64{1, 1}, numbers(t, w))
	held.free()
	require.NoError(t, Apply(sgd, []*Tensor{w, fill}, 0), "alone, it needs no memory")
	require.Equal(t, []float64{0.5, 0.5}, numbers(t, w))
}

func TestAnUpdateThatRunsOutOfMemoryAtItsSecondTargetFreesTheFirst(t *testing.T) {
	sim := device.NewSim(device.SimConfig{Bytes: 5 * 16})
	a := NewArena("pass")
	p, g, m, v := owned(t, a, sim, 2), owned(t, a, sim, 2), owned(t, a, sim, 2), owned(t, a, sim, 2)
	_, _, _ = p.Detach(), m.Detach(), v.Detach()
	err := Apply(kernels.Update{Rule: kernels.Adam, LR: 1, Step: 1}, []*Tensor{p, g, m, v}, 0, 2, 3)
	require.ErrorIs(t, err, device.ErrMemory)
	require.EqualValues(t, 4, sim.Stats().Live)
	a.Free()
	require.Zero(t, sim.Stats().Live)
}

func TestUpdatesAndForwardsAtTheSameTimeSeeWholeValues(t *testing.T) {
	w, v := Full(device.Float64, 64, 500).RequireGrad(), Full(device.Float64, 64, 500).RequireGrad()
	one := Full(device.Float64, 2, 500)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { // two targets in either order: locks must not deadlock
			for range 16 {
				if err := Apply(sgd, []*Tensor{w, one}, 0); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			m := kernels.Update{Rule: kernels.SGD, LR: 0, Momentum: 1, Step: 1}
			for range 16 {
				if err := Apply(m, []*Tensor{v, one, w}, 0, 2); err != nil {
					t.Error(err)
				}
				if err := Apply(m, []*Tensor{w, one, v}, 0, 2); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 40 {
				y := Mean(Mul(w, w))
				got, err := y.Item()
				if err != nil {
					t.Error(err)
					return
				}
				g, err := Backward(y)
				if err != nil {
					t.Error(err)
					return
				}
				d, _ := Values[float64](g.Of(w))
				for _, x := range d { // 2w/500 of the very value that the forward saw
					if math.Abs(x*500/2*x*500/2-got) > 1e-6 {
						t.Errorf("gradient %v of a value whose square is %v", x, got)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestOfSeveralChangesThoseAreMadeThatCanBeAndNoneWithoutMemoryForAll(t *testing.T) {
	sgd := kernels.Update{Rule: kernels.SGD, LR: 1, Scale: 1, Step: 1}
	leaf := func() *Tensor { return New([]float32{1, 2, 3}) }
	grad := New([]float32{1, 1, 1})
	a, b, c := leaf(), leaf(), leaf()
	change := func(of, g *Tensor) Change { return Change{sgd, []*Tensor{of, g}, []int{0}} }
	errs, err := ApplyAll([]Change{change(a, grad), change(b, New([]float32{1})), change(c, a), change(a, grad), {}})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], kernels.ErrOperands)
	require.NoError(t, errs[2])
	require.ErrorContains(t, errs[3], "a target is given twice")
	require.ErrorContains(t, errs[4], "the instruction is nil")
	require.Equal(t, []float64{0, 1, 2}, numbers(t, a))
	require.Equal(t, []float64{1, 2, 3}, numbers(t, b))
	require.Equal(t, []float64{0, 0, 0}, numbers(t, c), "it sees what was there before all")

	dev := device.NewSim(device.SimConfig{Bytes: 1024})
	x, y, g := To(leaf(), dev), To(leaf(), dev), To(grad, dev)
	held, err := y.Acquire()
	require.NoError(t, err)
	var all []*device.Buffer
	for {
		buf, err := dev.Alloc(12)
		if err != nil {
			break
		}
		all = append(all, buf)
	}
	for range 2 {
		errs, err = ApplyAll([]Change{change(x, g), change(y, g)})
		if len(all) > 0 { // nor does it matter which of them lacks it
			require.ErrorIs(t, err, device.ErrMemory)
			require.Equal(t, []float64{1, 2, 3}, numbers(t, x))
			require.Equal(t, []float64{1, 2, 3}, numbers(t, y))
		}
		for _, buf := range all {
			require.NoError(t, buf.Release())
		}
		all = nil
	}
	require.NoError(t, errors.Join(append(errs, err)...))
	require.Equal(t, []float64{0, 1, 2}, numbers(t, x))
	require.Equal(t, []float64{0, 1, 2}, numbers(t, y))
	require.NoError(t, held.Release())
}
