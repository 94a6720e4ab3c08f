package nn

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestDropoutKeepsItsShareAndScalesIt(t *testing.T) {
	l := NewDropout(rng(1), 0.25)
	x := autodiff.Full(device.Float32, 3, 100, 100).RequireGrad()
	y := l.Forward(x)
	kept := 0
	for _, v := range read(t, y) {
		if v != 0 {
			require.InDelta(t, 4, v, 1e-6)
			kept++
		}
	}
	require.InDelta(t, 7500, kept, 150)
	g, err := autodiff.Backward(autodiff.Sum(y))
	require.NoError(t, err)
	for k, v := range read(t, g.Of(x)) {
		require.InDelta(t, read(t, autodiff.Scale(y, 1./3))[k], v, 1e-6, "the gradient takes the same mask")
		if k > 50 {
			break
		}
	}
	require.NotEqual(t, read(t, y), read(t, l.Forward(x)), "each forward drops others")
	Eval(Sequential{Sequential{l}})
	require.Same(t, x, l.Forward(x))
	Train(Sequential{Sequential{l}})
	require.NotSame(t, x, l.Forward(x))
}

func TestOneSeedDropsTheSameOnEveryDevice(t *testing.T) {
	run := func(seed uint64, dev device.Device) (all []float64) {
		l, x := NewDropout(rng(seed), 0.5), autodiff.To(autodiff.Ones(device.Float32, 50), dev)
		for range 3 {
			all = append(all, read(t, l.Forward(x))...)
		}
		return all
	}
	require.Equal(t, run(1, device.Host()), run(1, device.Host()))
	require.Equal(t, run(1, device.Host()), run(1, device.NewSim(device.SimConfig{})))
	require.NotEqual(t, run(1, device.Host()), run(2, device.Host()))
}

// TestACheckpointDropsTheSameTheSecondTimeAndMovesStatisticsOnce compares a net with and without
// checkpoints, nested ones included.
func TestACheckpointDropsTheSameTheSecondTimeAndMovesStatisticsOnce(t *testing.T) {
	src := rng(3)
	x := Normal(src, device.Float64, 0, 1, 5, 4).RequireGrad()
	w := double(src, 4, 4)
	type forward func(l Layer, x *autodiff.Tensor) *autodiff.Tensor
	plain := func(l Layer, x *autodiff.Tensor) *autodiff.Tensor { return l.Forward(x) }
	var checkpointed forward = func(l Layer, x *autodiff.Tensor) *autodiff.Tensor {
		return autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{l.Forward(in[0])} }, x)[0]
	}
	run := func(inner, outer forward) (out [][]float64) {
		drop, again := NewDropout(rng(7), 0.5), NewDropout(rng(8), 0.3)
		norm := &BatchNorm{Gamma: Ones(device.Float64, 4).RequireGrad(), Beta: Zeros(device.Float64, 4).RequireGrad(),
			RunningMean: Zeros(device.Float64, 4), RunningVar: Ones(device.Float64, 4)}
		body := Activation(func(x *autodiff.Tensor) *autodiff.Tensor {
			y := inner(Sequential{drop, &Linear{W: w, B: Zeros(device.Float64, 4)}, norm}, x)
			return again.Forward(autodiff.Tanh(drop.Forward(y)))
		})
		for range 2 {
			g, err := autodiff.Backward(autodiff.Sum(autodiff.Mul(outer(body, x), x)))
			require.NoError(t, err)
			out = append(out, read(t, g.Of(x)), read(t, g.Of(w)), read(t, g.Of(norm.Gamma)))
		}
		return append(out, read(t, norm.RunningMean), read(t, norm.RunningVar))
	}
	want := run(plain, plain)
	require.Equal(t, want, run(checkpointed, plain))
	require.Equal(t, want, run(plain, checkpointed))
	require.Equal(t, want, run(checkpointed, checkpointed))
}

func TestForwardsAtOnceEachMoveTheRunningStatistics(t *testing.T) {
	l := NewBatchNorm(3)
	l.Momentum = 0.5
	x := autodiff.RandFrom(rng(1), 20, 3)
	drop := NewDropout(rng(1), 0.5)
	seen := sync.Map{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if err := l.Forward(x).Err(); err != nil {
					t.Error(err)
				}
				v, err := values(drop.Forward(x))
				if _, twice := seen.LoadOrStore(key(v), true); err != nil || twice {
					t.Error("a mask came twice", err)
				}
			}
		})
	}
	wg.Wait()
	_, mean, variance := autodiff.BatchNorm(x, l.Gamma, l.Beta, 1e-5)
	require.InDeltaSlice(t, read(t, mean), read(t, l.RunningMean), 1e-6, "forty halvings of the distance")
	require.InDeltaSlice(t, read(t, autodiff.Scale(variance, 20./19)), read(t, l.RunningVar), 1e-6)
	before := read(t, l.RunningVar)
	evaluating(l).Forward(autodiff.Rand(9, 3))
	require.Equal(t, before, read(t, l.RunningVar), "evaluation reads only")
}

// key tells masks apart.
func key(v []float64) (bits [60]bool) {
	for k, x := range v {
		bits[k] = x != 0
	}
	return bits
}

func TestWithoutRunningStatisticsBatchesNormaliseThemselves(t *testing.T) {
	l := &BatchNorm{Gamma: Ones(device.Float32, 2), Beta: Zeros(device.Float32, 2)}
	x := autodiff.RandFrom(rng(1), 6, 2)
	require.Equal(t, read(t, l.Forward(x)), read(t, evaluating(l).Forward(x)))
}

// Block is a model of a user's own.
type Block struct {
	Norm *BatchNorm
	Body []Layer
	Skip Layer
	Last Linear
	Rate float64
	Note *Block // not there
	own  *Linear
}

func (b *Block) Forward(x *autodiff.Tensor) *autodiff.Tensor { return b.own.Forward(x) }
func (b *Block) Params() []*autodiff.Tensor                  { return nil }

func TestStateNamesParametersAndRunningStatistics(t *testing.T) {
	src := rng(1)
	last := NewLinear(src, 2, 2)
	b := &Block{Norm: NewBatchNorm(2), Body: []Layer{NewConv2d(src, 1, 1, kernels.Square(1, 1, 0)), Activation(autodiff.Tanh)},
		Skip: Sequential{MaxPool2d{}, NewDropout(src, 0.5), NewLayerNorm(2)}, Last: *last, own: last}
	var names []string
	for name, x := range State(Sequential{b, NewEmbedding(src, 1, 1)}) {
		require.NoError(t, x.Err())
		names = append(names, name)
	}
	require.Equal(t, []string{"0.Norm.Gamma", "0.Norm.Beta", "0.Norm.RunningMean", "0.Norm.RunningVar", "0.Body.0.W", "0.Body.0.B",
		"0.Skip.1.Random", "0.Skip.2.Gamma", "0.Skip.2.Beta", "0.Last.W", "0.Last.B", "1.Table"}, names)
	for name := range State(b) {
		names = []string{name}
		break
	}
	require.Equal(t, []string{"Norm.Gamma"}, names)
	for range State(nil) {
		t.Error("nothing has no state")
	}
	require.True(t, slices.Equal([]*autodiff.Tensor{b.Norm.Gamma, b.Norm.Beta}, b.Norm.Params()), "running statistics are no parameters")
}

// nest is a layer of a user's own that leaves Forward to the layer it embeds, and so has that one's
// SetTraining too.
type nest struct {
	*BatchNorm
	Drop  Dropout
	Inner []Layer
	Up    *nest
}

// keeper never trains Norm.
type keeper struct {
	Sequential
	Norm *BatchNorm
}

func (k *keeper) SetTraining(bool) { k.Norm.SetTraining(false) }

func TestTheModeReachesWhatStateFindsInAUsersStructs(t *testing.T) {
	in := NewBatchNorm(1)
	n := &nest{BatchNorm: NewBatchNorm(1)}
	n.Up, n.Inner = n, []Layer{&Block{Norm: in, Skip: &Sequential{NewDropout(rng(1), 0.5)}}, nil, (*Block)(nil)}
	drop := (*n.Inner[0].(*Block).Skip.(*Sequential))[0].(*Dropout)
	for _, whole := range []Layer{n, Sequential{n}} {
		Eval(whole)
		require.False(t, n.Training() || n.Drop.Training() || in.Training() || drop.Training())
		Train(whole)
		require.True(t, n.Training() && n.Drop.Training() && in.Training() && drop.Training())
	}
	count := 0
	for range State(n) {
		count++
	}
	require.Equal(t, 10, count, "a layer that points back is met once")
}

func TestALayersOwnModeHasTheLastWord(t *testing.T) {
	k := &keeper{Norm: NewBatchNorm(1), Sequential: Sequential{NewDropout(rng(1), 0.5)}}
	Train(Sequential{k})
	require.False(t, k.Norm.Training())
	require.True(t, k.Sequential[0].(*Dropout).Training())
}

func TestDropoutsWithoutASourceEachDropTheirOwn(t *testing.T) {
	x := autodiff.Ones(device.Float32, 200).RequireGrad()
	var masks [][]float64
	for _, l := range []*Dropout{{P: 0.5}, {P: 0.5}, NewDropout(nil, 0.5), NewDropout(nil, 0.5)} {
		y := autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{l.Forward(in[0])} }, x)[0]
		mask := read(t, y)
		for _, m := range masks {
			require.NotEqual(t, m, mask)
		}
		masks = append(masks, mask, read(t, l.Forward(x)))
		g, err := autodiff.Backward(autodiff.Sum(y))
		require.NoError(t, err)
		require.Equal(t, mask, read(t, g.Of(x)), "what is computed anew drops the same")
	}
}
