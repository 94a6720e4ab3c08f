package outer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/outer/internal/schedule"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

type scheduleMachine = schedule.Machine

// join has a newcomer join some ranks.
func (w *world) join(ranks []int, newcomer int, cfg Config) {
	w.t.Helper()
	c := w.t.Context()
	w.each(append([]int{newcomer}, ranks...), func(r int) (err error) {
		if r == newcomer {
			if w.gs[r], err = collective.Enlist(c, w.ws[r], "outer"); err == nil {
				w.loops[r], err = New(c, w.gs[r], w.params[r], cfg)
			}
			return err
		}
		if w.gs[r], err = w.gs[r].With(c, w.ws[newcomer].Name()); err != nil {
			return err
		}
		return w.loops[r].Regroup(c, w.gs[r])
	})
}

// leave has a member leave some ranks.
func (w *world) leave(ranks []int, leaver int) {
	w.t.Helper()
	require.NoError(w.t, w.loops[leaver].Close())
	require.NoError(w.t, w.gs[leaver].Close())
	w.loops[leaver], w.gs[leaver] = nil, nil
	w.each(ranks, func(r int) (err error) {
		if w.gs[r], err = w.gs[r].Without(w.t.Context(), w.ws[leaver].Name()); err != nil {
			return err
		}
		return w.loops[r].Regroup(w.t.Context(), w.gs[r])
	})
}

func TestANewcomerGetsParametersMomentumAndPosition(t *testing.T) {
	for _, cfg := range []Config{
		{Every: 6}, {Every: 6, Fragments: 2, Delay: 2, Mix: 0.3},
		{Every: 6, Fragments: 3, FirstCalls: true, Wire: BFloat16},
	} {
		for _, at := range []int{0, 2, 7, 8} { // before the first exchange, between two, while one is under way
			t.Run(fmt.Sprintf("%+v at %d", cfg, at), func(t *testing.T) {
				w := newWorld(t, 3, 2, cfg)
				for step := 1; step <= at; step++ {
					require.Equal(t, make([]error, 2), w.step(w.first(2), step))
				}
				own := valuesOf(t, w.params[0])
				flies := w.loops[0].flight != nil
				w.join([]int{0, 1}, 2, cfg)
				all := w.first(3)
				w.requireSame(all...)
				if !flies {
					require.Equal(
						t, own, valuesOf(t, w.params[0]), "the others go on from their own",
					)
				}
				for _, r := range all {
					require.EqualValues(t, at, w.loops[r].Steps())
					require.Equal(t, w.loops[0].Rounds(), w.loops[r].Rounds())
				}
				for k, f := range w.loops[2].parts {
					values, err := w.loops[2].values(f)
					require.NoError(t, err)
					require.Equal(t, f.anchor, values, "fragment %d", k)
				}
				for step := at + 1; step < at+14; step++ {
					require.Equal(t, make([]error, 3), w.step(all, step))
					w.each(all, func(r int) error { return w.loops[r].Settle(t.Context()) })
					w.requireSame(all...)
				}
				require.Greater(t, w.loops[2].Rounds(), uint64(1))
				require.Len(t, w.loops[2].Last().Weights, 3)
			})
		}
	}
}

// TestWorkersJoinAndLeaveAtRandomAndNobodyComesApart has random joins and leaves between steps,
// also while exchanges are under way.
func TestWorkersJoinAndLeaveAtRandomAndNobodyComesApart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for k := range soak.Cases(6) {
		cfg := drawConfig(r)
		cfg.Wire = Wire(r.IntN(4))
		t.Run(fmt.Sprintf("%d, %+v", k, cfg), func(t *testing.T) {
			const size = 4
			w := newWorld(t, size, 2, cfg)
			in, out := []int{0, 1}, []int{2, 3}
			for step := 1; step <= 60; step++ {
				require.Equal(
					t, make([]error, len(in)), w.step(in, step), "step %d of %v", step, in,
				)
				switch {
				case r.IntN(6) > 0:
				case len(out) > 0 && (len(in) == 1 || r.IntN(2) == 0):
					w.params[out[0]] = newParams(r.Uint64())
					w.join(in, out[0], cfg)
					in, out = append(in, out[0]), out[1:]
					w.requireSame(in...)
				case len(in) > 1:
					at := r.IntN(len(in))
					who := in[at]
					in = append(append([]int{}, in[:at]...), in[at+1:]...)
					w.leave(in, who)
					out = append(out, who)
					w.requireSame(in...)
				}
			}
			w.each(in, func(r int) error { return w.loops[r].Finish(t.Context()) })
			w.requireSame(in...)
			for _, r := range in {
				require.Equal(t, valuesOf(t, w.params[in[0]]), valuesOf(t, w.params[r]))
			}
		})
	}
}

func TestFinishGivesAllTheSameParametersOfAllThatWasMade(t *testing.T) {
	for _, cfg := range []Config{{Every: 8}, {Every: 8, Fragments: 3, Delay: 1, Mix: 0.5}} {
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			w := newWorld(t, 2, 2, cfg)
			ranks := w.first(2)
			for step := 1; step <= 11; step++ {
				require.Equal(t, make([]error, 2), w.step(ranks, step))
			}
			for again := range 2 { // the second has nothing to exchange
				made := w.loops[0].Rounds()
				w.each(ranks, func(r int) error { return w.loops[r].Finish(t.Context()) })
				require.Equal(t, valuesOf(t, w.params[0]), valuesOf(t, w.params[1]))
				w.requireSame(ranks...)
				require.Equal(t, again == 1, w.loops[0].Rounds() == made)
			}
		})
	}
}

func TestAWorkersParametersMayLieOnAnotherDevice(t *testing.T) {
	w := newGroupOf(t, 2)
	sim := device.NewSim(device.SimConfig{})
	for r := range 2 {
		params := newParams(uint64(r))
		if r == 1 {
			for i, p := range params {
				params[i] = autodiff.To(p.Detach(), sim).RequireGrad()
			}
		}
		w.params = append(w.params, params)
	}
	w.loops = make([]*Loop, 2)
	w.each(w.first(2), func(r int) (err error) {
		w.loops[r], err = New(
			t.Context(), w.gs[r], w.params[r], Config{Every: 2, Delay: 1, Mix: 0.5},
		)
		return err
	})
	for step := 1; step <= 5; step++ {
		require.Equal(t, make([]error, 2), w.step(w.first(2), step))
	}
	w.each(w.first(2), func(r int) error {
		return errors.Join(w.loops[r].Finish(t.Context()), w.loops[r].Close())
	})
	w.requireSame(0, 1)
	require.Equal(t, valuesOf(t, w.params[0]), valuesOf(t, w.params[1]))
	require.Equal(t, sim.ID(), w.params[1][0].Device())
}

func TestTheExchangeIsTheSameOnEveryLane(t *testing.T) {
	for _, lane := range transport.LaneNames() {
		if lane == transport.LaneCUDA {
			continue
		}
		t.Run(lane, func(t *testing.T) {
			ws := rpctest.WorldWith(t, rpctest.Net(), 2, func(_ int, cfg *rpc.Config) {
				cfg.Network, cfg.Listen = nil, ""
				cfg.Lanes, cfg.Token = []string{lane}, secrettest.Token("job")
			})
			const n = 100_000 // large enough to travel by a lane
			var at [2]float64
			for _, err := range attempt([]int{0, 1}, func(r int) error {
				g, err := collective.Open(t.Context(), ws[r], "outer")
				if err != nil {
					return err
				}
				p := autodiff.New(make([]float32, n))
				l, err := New(
					t.Context(), g, []*autodiff.Tensor{p},
					Config{Every: 1, LR: 1, Momentum: optim.Zero},
				)
				if err != nil {
					return err
				}
				moved := make([]float32, n)
				moved[n-1] = float32(1 + r)
				if err := autodiff.Assign(
					[]*autodiff.Tensor{p}, []*autodiff.Tensor{autodiff.New(moved)},
				); err != nil {
					return err
				}
				if err := l.Step(t.Context()); err != nil {
					return err
				}
				x, err := autodiff.Values[float32](p)
				at[r] = float64(x[n-1])
				return errors.Join(err, l.Close(), g.Close())
			}) {
				require.NoError(t, err)
			}
			require.Equal(t, [2]float64{1.5, 1.5}, at)
		})
	}
}

func TestAnExchangeTellsWhatHasTravelled(t *testing.T) {
	n := 0
	for _, x := range valuesOf(t, newParams(0)) {
		n += len(x)
	}
	blocks := (n + 255) / 256
	for wire, bytes := range []int{4 * n, 2 * n, n + 4*blocks, (n+1)/2 + 4*blocks} {
		t.Run(Wire(wire).String(), func(t *testing.T) {
			w := newWorld(t, 2, 2, Config{Every: 2, Wire: Wire(wire)})
			for step := 1; step <= 2; step++ {
				require.Equal(t, make([]error, 2), w.step(w.first(2), step))
			}
			last := w.loops[1].Last()
			require.Equal(t, bytes, last.Bytes, "%v", Wire(wire))
			require.Equal(t, []float64{2, 2}, last.Weights)
			require.GreaterOrEqual(t, last.Took, last.Waited)
		})
	}
}

// TestWhatANarrowWireRoundsIsNotLost has each worker add the same small number at each step: what
// all exchanges have moved is that, though each is below what the wire can tell beside a large one.
func TestWhatANarrowWireRoundsIsNotLost(t *testing.T) {
	for _, wire := range []Wire{BFloat16, Int8, Int4} {
		t.Run(wire.String(), func(t *testing.T) {
			gs, params := openAll(t, 2), [2]*autodiff.Tensor{}
			for r, err := range attempt([]int{0, 1}, func(r int) error {
				params[r] = autodiff.New(make([]float32, 100))
				return creep(
					t.Context(), gs[r], params[r],
					Config{Every: 1, Wire: wire, LR: 1, Momentum: optim.Zero},
				)
			}) {
				require.NoError(t, err, "rank %d", r)
			}
			x := valuesOf(t, params[:])
			require.Equal(t, x[0], x[1])
			for _, v := range x[0][1:] {
				require.InDelta(t, 4, v, 0.3)
			}
		})
	}
}

// creep moves one element by 1 at each of 200 steps, and all others by 0.02.
func creep(c context.Context, g *collective.Group, p *autodiff.Tensor, cfg Config) error {
	l, err := New(c, g, []*autodiff.Tensor{p}, cfg)
	if err != nil {
		return err
	}
	for range 200 {
		x, err := autodiff.Values[float32](p)
		if err != nil {
			return err
		}
		for i := range x {
			x[i] += 0.02
		}
		x[0] += 0.98
		if err := autodiff.Assign(
			[]*autodiff.Tensor{p}, []*autodiff.Tensor{autodiff.New(x)},
		); err != nil {
			return err
		}
		if err := l.Step(c); err != nil {
			return err
		}
	}
	return l.Close()
}

func TestFragmentsHaveAllParametersAndAboutTheSameSize(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range soak.Cases(300) {
		lens := make([]int, 1+r.IntN(20))
		for i := range lens {
			lens[i] = r.IntN(100)
		}
		n := 1 + r.IntN(len(lens))
		seen, sizes, lasts := map[int]bool{}, make([]int, n), make([]int, n)
		for f, part := range divide(lens, n) {
			require.NotEmpty(t, part)
			lasts[f] = lens[part[0]]
			for _, i := range part {
				require.False(t, seen[i])
				seen[i] = true
				sizes[f] += lens[i]
				lasts[f] = min(lasts[f], lens[i])
			}
		}
		for f := range sizes {
			require.LessOrEqual(
				t, sizes[f]-lasts[f], slices.Min(sizes),
				"the last, and least, came to the one that had the least",
			)
		}
		require.Len(t, seen, len(lens))
	}
}
