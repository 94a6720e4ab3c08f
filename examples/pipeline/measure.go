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

// figures say how busy the pipeline kept its stages. Times are seconds per step.
type figures struct {
	Step    float64   `json:"step"`     // of the pipeline
	Busy    []busy    `json:"busy"`     // of each stage in it
	Alone   []float64 `json:"alone"`    // of each stage, with all that it needs at hand
	Slowest int       `json:"slowest"`  // stage
	Ratio   float64   `json:"ratio"`    // throughput of the pipeline to that of the slowest stage alone
	Even    float64   `json:"even"`     // what 1F1B gives at best where all stages are alike: m/(m+p−1)
	AtBest  float64   `json:"at_best"`  // and with these stages: the others' time for one micro-batch passes before and after the slowest's m
	PerStep int       `json:"per_step"` // tokens
}

// measure lets the pipeline and its slowest stage alone take turns, so that both meet the same disturbances.
func measure(c context.Context, p *pipeline, rounds int, draw func() []micro) (f figures, err error) {
	c = p.w.Context(c)
	stages := len(p.others) + 1
	f.Busy, f.Alone = make([]busy, stages), make([]float64, stages)
	for i := range stages {
		for range 2 { // the first makes the copy
			if f.Alone[i], err = p.alone(c, i, draw()); err != nil {
				return f, err
			}
		}
	}
	f.Slowest = slices.Index(f.Alone, slices.Max(f.Alone))
	took := 0.0
	for range rounds {
		if _, err := p.busy(c); err != nil { // from now on
			return f, err
		}
		ms := draw()
		f.PerStep = len(ms) * ms[0].ids.Type().Shape.Elems()
		began := time.Now()
		if _, err := p.step(c, ms); err != nil {
			return f, err
		}
		f.Step += time.Since(began).Seconds() / float64(rounds)
		b, err := p.busy(c)
		if err != nil {
			return f, err
		}
		for i := range b {
			f.Busy[i].Forward += b[i].Forward / float64(rounds)
			f.Busy[i].Backward += b[i].Backward / float64(rounds)
		}
		s, err := p.alone(c, f.Slowest, draw())
		if err != nil {
			return f, err
		}
		took += s / float64(rounds)
		m := float64(len(ms))
		f.Even = m / (m + float64(stages) - 1)
	}
	f.Alone[f.Slowest] = took
	f.Ratio = took / f.Step
	others := 0.0
	for i, s := range f.Alone {
		if i != f.Slowest {
			others += s
		}
	}
	m := float64(len(draw()))
	f.AtBest = m * took / (m*took + others)
	return f, nil
}

// alone is how long one stage takes for a step's micro-batches, as they come from the stages before it.
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
	for i, b := range f.Busy {
		fmt.Fprintf(out, "stage %d, %s: busy %.0f ms of a step, %.0f forward and %.0f backward; idle %.0f %%; alone %.0f ms\n",
			i, s.part(i), 1e3*b.all(), 1e3*b.Forward, 1e3*b.Backward, 100*(1-b.all()/f.Step), 1e3*f.Alone[i])
	}
	fmt.Fprintf(out, "a step of %d tokens takes the pipeline %.0f ms and its slowest stage alone %.0f ms: it reaches %.1f %% of that stage's throughput, a bubble of %.1f %%\n",
		f.PerStep, 1e3*f.Step, 1e3*f.Alone[f.Slowest], 100*f.Ratio, 100*(1-f.Ratio))
	fmt.Fprintf(out, "1F1B reaches at best %.1f %% with these stages, and m/(m+p-1) = %.1f %% with equal ones\n", 100*f.AtBest, 100*f.Even)
}
