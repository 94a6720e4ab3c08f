package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
)

// figures say how busy the pipeline kept its stages. Times are seconds per step, medians over some
// steps.
type figures struct {
	PerStep int     `json:"per_step"` // tokens
	Step    float64 `json:"step"`     // of the pipeline
	Stages  []spent `json:"stages"`
	Slowest int     `json:"slowest"` // stage, alone
	Ratio   float64 `json:"ratio"`   // throughput of the pipeline to that of the slowest stage alone
	AtBest  float64 `json:"at_best"` // what any schedule gives at best with these stages: see leastStep
	Even    float64 `json:"even"`    // and where all stages are alike: m/(m+p−1)
}

// spent is what a stage takes for a step: forward and backward in the pipeline, and all of it
// alone, with all that it needs at hand.
type spent struct {
	busy
	Alone float64
}

// measure lets the pipeline and each of its stages alone take turns, so that all meet the same
// disturbances.
func measure(c context.Context, p *pipeline, rounds int, draw func() []micro) (figures, error) {
	c = p.w.Context(c)
	stages := len(p.others) + 1
	var steps []float64
	all := make([][]spent, stages)
	f := figures{Stages: make([]spent, stages)}
	m := 0.0
	for round := range 1 + rounds {
		if _, err := p.busy(c); err != nil { // from now on
			return f, err
		}
		ms := draw()
		m, f.PerStep = float64(len(ms)), len(ms)*ms[0].ids.Type().Shape.Elems()
		began := time.Now()
		if _, err := p.step(c, ms); err != nil {
			return f, err
		}
		step := time.Since(began).Seconds()
		bs, err := p.busy(c)
		if err != nil {
			return f, err
		}
		for i, b := range bs {
			alone, err := p.alone(c, i, draw())
			if err != nil {
				return f, err
			}
			if round > 0 { // the first makes the copies
				all[i] = append(all[i], spent{b, alone})
			}
		}
		if round > 0 {
			steps = append(steps, step)
		}
	}
	f.Step = median(steps, func(s float64) float64 { return s })
	alone := make([]float64, stages)
	for i := range f.Stages {
		f.Stages[i] = spent{busy{median(all[i], func(s spent) float64 { return s.Forward }), median(all[i], func(s spent) float64 { return s.Backward })},
			median(all[i], func(s spent) float64 { return s.Alone })}
		if alone[i] = f.Stages[i].Alone; alone[i] > alone[f.Slowest] {
			f.Slowest = i
		}
	}
	f.Ratio = alone[f.Slowest] / f.Step
	f.AtBest = alone[f.Slowest] / leastStep(alone, m)
	f.Even = m / (m + float64(stages) - 1)
	return f, nil
}

// leastStep is the least time for m micro-batches, where each stage takes so long for them alone: a
// stage waits for the first forward of the stages before it, and they for its last backward. With
// equal stages that is 1F1B's (m+p−1)/m.
func leastStep(alone []float64, m float64) (least float64) {
	before := 0.0
	for _, s := range alone {
		least = max(least, s+before/m)
		before += s
	}
	return least
}

// median of one number of each.
func median[T any](of []T, number func(T) float64) float64 {
	var all []float64
	for _, x := range of {
		all = append(all, number(x))
	}
	slices.Sort(all)
	return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
}

// alone is how long one stage takes for a step's micro-batches, as they come from the stages before
// it.
func (p *pipeline) alone(c context.Context, stage int, ms []micro) (seconds float64, err error) {
	err = p.w.Pass(c, func(c context.Context) error {
		c = ctx.NoGrad(c)
		in := replay{Labels: make([]*autodiff.Tensor, len(ms))}
		for i, m := range ms {
			x, err := ctx.Own(c, m.ids), error(nil)
			if stage > 0 {
				x, err = p.forward(c, m.ids, m.next, stage-1)
			}
			if err != nil {
				return err
			}
			in.In, in.Labels[i] = append(in.In, x), m.next
		}
		if stage == 0 {
			seconds, err = alone(c, p.first, in)
		} else {
			seconds, err = stageAlone.Call(c, p.others[stage-1], in)
		}
		return err
	})
	return seconds, err
}

// busy is how long each stage was busy since it was last asked.
func (p *pipeline) busy(c context.Context) ([]busy, error) {
	all := []busy{p.first.desk.busy()}
	for _, s := range p.others {
		b, err := stageBusy.Call(c, s, struct{}{})
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

func (f figures) print(out io.Writer, s sizes) {
	for i, b := range f.Stages {
		fmt.Fprintf(out, "stage %d, %s: busy %.0f ms of a step, %.0f forward and %.0f backward; idle %.0f %%; alone %.0f ms\n",
			i, s.part(i), 1e3*b.all(), 1e3*b.Forward, 1e3*b.Backward, 100*(1-b.all()/f.Step), 1e3*b.Alone)
	}
	slowest := f.Stages[f.Slowest].Alone
	fmt.Fprintf(out, "a step of %d tokens takes the pipeline %.0f ms, %.0f tokens/s, and its slowest stage alone %.0f ms, %.0f tokens/s\n",
		f.PerStep, 1e3*f.Step, float64(f.PerStep)/f.Step, 1e3*slowest, float64(f.PerStep)/slowest)
	if f.Ratio > 1 {
		fmt.Fprintf(out, "that is %.1f %% of that stage's throughput, more than can be: the machine is too noisy, or the steps too few, to tell the bubble\n", 100*f.Ratio)
		return
	}
	fmt.Fprintf(out, "that is %.1f %% of that stage's throughput, a bubble of %.1f %%; %.1f %% is the most with these stages, and m/(m+p-1) = %.1f %% with equal ones\n",
		100*f.Ratio, 100*(1-f.Ratio), 100*f.AtBest, 100*f.Even)
}
