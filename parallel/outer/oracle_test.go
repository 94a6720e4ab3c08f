package outer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// oracle trains the same in plain loops over float64: all workers' parameters, one element at a
// time, as algorithm 2 of arXiv 2501.18512 has it.
type oracle struct {
	cfg              Config
	rows             func(worker, step int) int
	own              [][][]float64 // by worker, parameter, element
	anchor, momentum [][]float64
	of               [][]int         // parameters of a fragment
	sent             []int           // by fragment: the step of its exchange before
	under            [][][][]float64 // by exchange: by worker, parameter, element
	weights          [][]float64     // by exchange, worker
	begun            map[int]int     // exchanges by the step in which they began
}

func newOracle(
	cfg Config, workers int, first [][]float32, rows func(worker, step int) int,
) *oracle {
	o := &oracle{cfg: cfg, rows: rows, begun: map[int]int{}, sent: make([]int, cfg.Fragments)}
	var lens []int
	for _, x := range first {
		lens = append(lens, len(x))
		o.anchor = append(o.anchor, widened(x))
		o.momentum = append(o.momentum, make([]float64, len(x)))
	}
	o.of = divide(lens, cfg.Fragments)
	for range workers {
		var own [][]float64
		for _, x := range first {
			own = append(own, widened(x))
		}
		o.own = append(o.own, own)
	}
	return o
}

func widened(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

func (o *oracle) step(step int) {
	for w := range o.own {
		for p := range o.own[w] {
			for i := range o.own[w][p] {
				o.own[w][p][i] += drift(w, step, p, i)
			}
		}
	}
	if k, ok := o.begun[step-o.cfg.Delay]; ok && o.cfg.Delay > 0 {
		o.apply(k)
	}
	n := len(o.under)
	if turn, f := n/o.cfg.Fragments, n%o.cfg.Fragments; step == turn*o.cfg.Every+(f+1)*o.cfg.Every/o.cfg.Fragments {
		o.begin(step, f)
		if o.cfg.Delay == 0 {
			o.apply(n)
		}
	}
}

func (o *oracle) begin(step, f int) {
	deltas, weights := make([][][]float64, len(o.own)), make([]float64, len(o.own))
	for w := range o.own {
		for s := o.sent[f] + 1; s <= step; s++ {
			weights[w] += float64(o.rows(w, s))
		}
		deltas[w] = make([][]float64, len(o.anchor))
		for _, p := range o.of[f] {
			for i := range o.anchor[p] {
				deltas[w][p] = append(deltas[w][p], o.anchor[p][i]-o.own[w][p][i])
			}
		}
	}
	o.begun[step], o.sent[f] = len(o.under), step
	o.under, o.weights = append(o.under, deltas), append(o.weights, weights)
}

func (o *oracle) apply(k int) {
	total := 0.0
	for _, w := range o.weights[k] {
		total += w
	}
	for _, p := range o.of[k%o.cfg.Fragments] {
		for i := range o.anchor[p] {
			mean := 0.0
			for w := range o.own {
				mean += o.weights[k][w] * o.under[k][w][p][i]
			}
			if total > 0 {
				mean /= total
				o.momentum[p][i] = o.cfg.Momentum*o.momentum[p][i] + mean
				o.anchor[p][i] -= o.cfg.LR * (mean + o.cfg.Momentum*o.momentum[p][i])
			}
			for w := range o.own {
				o.own[w][p][i] = o.cfg.Mix*o.own[w][p][i] + (1-o.cfg.Mix)*o.anchor[p][i]
			}
		}
	}
}

func drawConfig(r *rand.Rand) Config {
	cfg := Config{
		Every: 1 + r.IntN(9), LR: 0.1 + r.Float64(), Momentum: 0.01 + 0.9*r.Float64(),
		FirstCalls: r.IntN(2) == 0,
	}
	cfg.Fragments = 1 + r.IntN(min(cfg.Every, len(shapes)))
	cfg.Delay = r.IntN(cfg.Every / cfg.Fragments)
	if r.IntN(2) == 0 {
		cfg.Mix = r.Float64() * 0.9
	}
	return cfg
}

func TestALoopIsItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for k := range soak.Cases(25) {
		cfg, workers, salt := drawConfig(r), 1+r.IntN(4), r.Uint64()
		cfg.FirstCalls = false // then it depends on who is first
		t.Run(fmt.Sprint(k), func(t *testing.T) { isItsDefinition(t, cfg, workers, salt) })
	}
}

func isItsDefinition(t *testing.T, cfg Config, workers int, salt uint64) {
	rows := func(worker, step int) int {
		return rand.New(rand.NewPCG(salt, uint64(worker*1000+step))).IntN(3)
	}
	w := newWorld(t, workers, workers, cfg)
	o := newOracle(cfg, workers, valuesOf(t, newParams(0)), rows)
	for step := 1; step <= 3*cfg.Every+3; step++ {
		o.step(step)
		w.each(w.first(workers), func(r int) error {
			if err := inner(w.params[r], r, step); err != nil {
				return err
			}
			return w.loops[r].StepRows(t.Context(), rows(r, step))
		})
		w.requireSame(w.first(workers)...)
		for k, f := range w.loops[0].parts {
			at := 0
			for _, p := range o.of[k] {
				n := len(o.anchor[p])
				near(t, o.anchor[p], f.anchor[at:at+n], "%+v, step %d, parameter %d", cfg, step, p)
				at += n
			}
		}
		for k := range workers {
			for p, x := range valuesOf(t, w.params[k]) {
				near(t, o.own[k][p], x, "%+v, step %d, worker %d, parameter %d", cfg, step, k, p)
			}
		}
	}
}

// lastOf is the exchanges as they were applied, from what a loop says of the last one.
func lastOf(l *Loop, all []Exchange) []Exchange {
	if e := l.Last(); l.Rounds() > uint64(len(all)) {
		all = append(all, e)
	}
	return all
}

// TestWorkersOfDifferentSpeedAreWeightedByTheirSteps has one of four make half the steps. Which of
// its steps an exchange has is read from what the loops say; the values must be those of the
// definition with these.
func TestWorkersOfDifferentSpeedAreWeightedByTheirSteps(t *testing.T) {
	synctest.Test(t, differentSpeed)
}

func differentSpeed(t *testing.T) {
	paces := []time.Duration{
		20 * time.Millisecond, 10 * time.Millisecond, 11 * time.Millisecond, 10 * time.Millisecond,
	}
	const workers, every, rounds = 4, 10, 6
	cfg := Config{Every: every, FirstCalls: true, LR: 0.7, Momentum: 0.9}
	w := newWorld(t, workers, workers, cfg)
	said := make([][]Exchange, workers)
	w.each(w.first(workers), func(r int) error {
		for step := 1; w.loops[r].Rounds() < rounds; step++ {
			time.Sleep(paces[r]) // a step takes so long
			if err := errors.Join(
				inner(w.params[r], r, step), w.loops[r].Step(t.Context()),
			); err != nil {
				return err
			}
			said[r] = lastOf(w.loops[r], said[r])
		}
		return nil
	})
	w.requireSame(0, 1, 2, 3)
	o := newOracle(
		Config{Every: every, Fragments: 1, LR: 0.7, Momentum: 0.9}, workers,
		valuesOf(t, newParams(0)), nil,
	)
	made := make([]int, workers)
	for round := range rounds {
		weights := said[0][round].Weights
		require.EqualValues(t, every, slices.Max(weights))
		require.InDelta(t, every/2, weights[0], 1, "it makes half the steps")
		for r := range workers {
			require.Equal(t, weights, said[r][round].Weights)
			for range int(weights[r]) {
				made[r]++
				for p := range o.own[r] {
					for i := range o.own[r][p] {
						o.own[r][p][i] += drift(r, made[r], p, i)
					}
				}
			}
		}
		o.rows = func(worker, step int) int { return int(weights[worker]) }
		o.sent[0] = round
		o.begin(round+1, 0)
		o.apply(round)
	}
	for p, i := range w.loops[0].parts[0].params {
		near(t, o.anchor[i], valuesOf(t, w.params[0])[i], "parameter %d", p)
	}
}
