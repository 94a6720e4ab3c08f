package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// draws gives the same random micro-batches every time.
func draws(s sizes, micros int) func() []micro {
	src := rand.New(rand.NewPCG(1, 1))
	tokens := make([]int32, 200)
	for i := range tokens {
		tokens[i] = int32(i*i) % int32(s.Vocab)
	}
	return func() []micro { return batch(src, tokens, micros, 2, s.Context) }
}

func TestEverySplitWithAnyNumberInFlightTrainsAsOneProcessDoes(t *testing.T) {
	for _, c := range []struct {
		blocks          []int
		inFlight, steps int
	}{{[]int{1, 2, 0}, 3, 22}, {[]int{1, 1, 1}, 8, 3}, {[]int{0, 0, 3}, 1, 3}, {[]int{2, 1}, 2, 3}, {[]int{1, 0, 1, 1}, 4, 3}} {
		t.Run(fmt.Sprintf("blocks=%v", c.blocks), func(t *testing.T) {
			s := tiny
			s.Blocks = c.blocks
			schedule := rates(c.steps)
			m, err := newWhole(s, 1e-2, schedule, device.Host())
			require.NoError(t, err)
			ws := rpctest.World(t, rpctest.Net(), len(c.blocks), functions()...)
			p, err := newPipeline(t.Context(), ws[0], s, 1e-2, schedule, c.inFlight)
			require.NoError(t, err)
			here, there := draws(s, 5), draws(s, 5)
			for step := range c.steps {
				want, err := m.step(t.Context(), here())
				require.NoError(t, err)
				got, err := p.step(t.Context(), there())
				require.NoError(t, err)
				require.InEpsilon(t, want, got, 1e-5, "%v, step %d", c.blocks, step)
			}
			ids := autodiff.New([]int32{1, 2, 3, 4, 5}, 1, 5)
			want, err := m.values(t.Context(), autodiff.New([]int32{1, 2, 3, 4, 5}, 1, 5), nil)
			require.NoError(t, err)
			got, err := p.values(t.Context(), ids, nil)
			require.NoError(t, err)
			require.InDeltaSlice(t, want, got, 1e-4)
			require.NoError(t, ws[0].Settle(t.Context()))
			for _, w := range ws {
				require.Empty(t, w.Passes(), w.Name())
			}
		})
	}
}

func TestNoStageHoldsMoreMicroBatchesThanAreInFlightAndEachStageIsBusy(t *testing.T) {
	s := tiny
	s.Blocks = []int{1, 1, 1}
	var mu sync.Mutex
	now, most := 0, 0
	ws := rpctest.World(t, rpctest.Net(), 3, functions()...)
	p, err := newPipeline(t.Context(), ws[0], s, 1e-2, nil, 2)
	require.NoError(t, err)
	next := p.first.next
	p.first.next = func(c context.Context, in hop) (*autodiff.Tensor, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		return next(c, in)
	}
	_, err = p.first.embedding[0].OnAccumulated(func(_, _ *autodiff.Tensor) error {
		mu.Lock()
		defer mu.Unlock()
		now--
		return nil
	})
	require.NoError(t, err)
	_, err = p.step(t.Context(), draws(s, 12)())
	require.NoError(t, err)
	require.Equal(t, 2, most)
	all, err := p.busy(ws[0].Context(t.Context()))
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, b := range all {
		require.Positive(t, b.Forward)
		require.Positive(t, b.Backward)
	}
}

func TestAStepThatFailsSaysWhereAndLeavesTheDesksFree(t *testing.T) {
	s := tiny
	s.Blocks = []int{1, 1, 1}
	ws := rpctest.World(t, rpctest.Net(), 3, functions()...)
	p, err := newPipeline(t.Context(), ws[0], s, 1e-2, nil, 3)
	require.NoError(t, err)
	draw := draws(s, 8)
	bad := draw()
	bad[4].next = autodiff.New(make([]int32, 4), 2, 2)
	_, err = p.step(t.Context(), bad)
	require.ErrorContains(t, err, "micro-batch 5")
	require.ErrorContains(t, err, "worker2")
	remove, err := p.first.blocks[0][0].OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { panic("a hook of this test") })
	require.NoError(t, err)
	_, err = p.step(t.Context(), draw()) // the backward holds a desk
	require.ErrorContains(t, err, "a hook of this test")
	remove()
	_, err = p.step(t.Context(), draw())
	require.NoError(t, err)
}

func TestTheFiguresAreOfAllStages(t *testing.T) {
	s := tiny
	s.Blocks = []int{1, 2, 0}
	ws := rpctest.World(t, rpctest.Net(), 3, functions()...)
	p, err := newPipeline(t.Context(), ws[0], s, 1e-2, nil, 3)
	require.NoError(t, err)
	f, err := measure(t.Context(), p, 3, draws(s, 6))
	require.NoError(t, err)
	require.Len(t, f.Stages, 3)
	require.Equal(t, 6*2*s.Context, f.PerStep)
	require.InDelta(t, 6.0/8, f.Even, 1e-12)
	require.InDelta(t, f.Stages[f.Slowest].Alone/f.Step, f.Ratio, 1e-12)
	require.True(t, f.AtBest >= 6.0/8-1e-12 && f.AtBest <= 1, "equal stages have the largest bubble: %v", f)
	for _, b := range f.Stages {
		require.True(t, b.Forward > 0 && b.Backward > 0 && b.Forward < f.Step && b.Alone > 0 && b.Alone <= f.Stages[f.Slowest].Alone, "%v", f)
	}
	require.Equal(t, 2.0, median([]float64{3, 1, 2}, func(x float64) float64 { return x }))
	require.Equal(t, 2.5, median([]float64{4, 3, 1, 2}, func(x float64) float64 { return x }))
}

// slow makes a stage take so many milliseconds for a forward, and for a backward.
var slow = rpc.DefineMethod("test.slow", func(_ context.Context, s *stage, ms []int) (struct{}, error) {
	s.spend = func(w work) { time.Sleep(time.Duration(ms[w]) * time.Millisecond) }
	return struct{}{}, nil
})

func TestTheScheduleHasHardlyMoreBubbleThanItMustHave(t *testing.T) {
	for name, times := range map[string][][]int{ // by stage: backward, forward
		"equal": {{20, 10}, {20, 10}, {20, 10}}, "default": {{23, 12}, {68, 34}, {17, 9}}, "first": {{60, 30}, {20, 10}, {20, 10}}, "last": {{20, 10}, {20, 10}, {60, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(-1)) // what it finds is given back from outside the bubble, which must be over then
			synctest.Test(t, func(t *testing.T) {
				s := tiny
				s.Blocks = []int{1, 1, 0}
				ws := rpctest.World(t, rpctest.SlowNet(100*time.Microsecond), 3, append(functions(), slow)...)
				p, err := newPipeline(t.Context(), ws[0], s, 1e-2, nil, 6)
				require.NoError(t, err)
				_, err = slowDown(ws[0].Context(t.Context()), p, times)
				require.NoError(t, err)
				const m = 16
				ms := draws(s, m)()
				began := time.Now()
				_, err = p.step(t.Context(), ms)
				require.NoError(t, err)
				took := time.Since(began).Seconds() * 1e3
				var alone []float64
				for _, x := range times {
					alone = append(alone, m*float64(x[0]+x[1]))
				}
				t.Logf("%.1f %% of the slowest stage's throughput; %.1f %% is the most", 100*slices.Max(alone)/took, 100*slices.Max(alone)/leastStep(alone, m))
				require.Greater(t, leastStep(alone, m)/took, 0.95)
				require.Less(t, leastStep(alone, m)/took, 1.0)
			})
		})
	}
}

func slowDown(c context.Context, p *pipeline, times [][]int) (struct{}, error) {
	p.first.spend = func(w work) { time.Sleep(time.Duration(times[0][w]) * time.Millisecond) }
	for i, at := range p.others {
		if _, err := slow.Call(c, at, times[i+1]); err != nil {
			return struct{}{}, err
		}
	}
	return struct{}{}, nil
}
