package main

import (
	"fmt"
	"io"
	"time"

	"github.com/weft-project/weft/examples/internal/show"
	"github.com/weft-project/weft/examples/internal/table"
)

// reporter shows progress; nothing with --json.
type reporter struct {
	*show.Progress
	s     settings
	out   io.Writer
	total int // steps
}

func newReporter(s settings, d *table.Data, stdout io.Writer) *reporter {
	r := &reporter{s: s, out: stdout}
	if s.json {
		r.out = io.Discard
	}
	where := "in one process"
	if s.workers == 2 {
		where = "split over two workers"
	}
	fmt.Fprintf(r.out, "%d rows to train on, %d to test; %d-%d-%d-%d network %s, %s\n",
		len(d.Train.Y), len(d.Test.Y), d.Features, s.hidden, max(s.hidden/2, 1), d.Classes, where, s.place)
	r.total = s.epochs * s.perEpoch(d)
	if s.maxSteps > 0 {
		r.total = min(r.total, s.maxSteps)
	}
	r.Progress = show.NewProgress(r.out, r.total)
	return r
}

// goesOn says that training goes on after some steps, if it does.
func (r *reporter) goesOn(steps int) {
	if steps >= r.total {
		r.Say("nothing is left to train: %d steps are made; give --epochs or --steps more", steps)
	} else if steps > 0 {
		r.At(steps)
		r.Line("goes on from the checkpoint of step %d", steps)
	}
}

func (r *reporter) epoch(n int, loss float64) {
	r.Line("epoch %2d/%d  loss %.4f", n, r.s.epochs, loss)
}

func (r *reporter) finish(accuracy float64, steps int, took time.Duration) {
	r.Done()
	if steps > 0 {
		fmt.Fprintf(r.out, "%d steps in %.1f s, %.0f steps/s\n", steps, took.Seconds(), float64(steps)/took.Seconds())
	}
	fmt.Fprintf(r.out, "test accuracy %.4f\n", accuracy)
}
