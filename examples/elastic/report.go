package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weft-project/weft/examples/internal/show"
)

// result is what --result writes.
type result struct {
	history
	Accuracy float64
}

// reporter shows how training goes, on the worker that leads.
type reporter struct {
	settings
	*show.Progress
	out   io.Writer
	news  *resumption // until the first step of an epoch is made
	total int
	world int
	told  map[string]bool // checkpoints that were refused
}

// resumption is what the first step of an epoch will be told with.
type resumption struct {
	mark
	from         string
	first        bool      // the training begins
	since, known time.Time // when the last work stopped, and when the nodes knew why; zero: nobody here has worked before
}

func (m mark) workers() string {
	if m.World == 1 {
		return "1 worker goes on"
	}
	return fmt.Sprintf("%d workers go on", m.World)
}

func newReporter(s settings, out io.Writer) *reporter {
	return &reporter{settings: s, out: out, told: map[string]bool{}}
}

// resumed is told where training goes on.
func (e *epoch) resumed(p plan, all []having) {
	if e.Rank != 0 {
		return
	}
	last := all[0] // of those who have worked before; who was cut off has stood still for longer
	for _, h := range all {
		if h.Still > 0 && (last.Still == 0 || h.Still < last.Still) {
			last = h
		}
	}
	now, n := time.Now(), &resumption{mark: mark{Step: p.step, World: e.World, Why: last.Why}}
	switch {
	case p.step == 0:
		n.from = "from the beginning"
	case len(p.from) == 0:
		n.from = fmt.Sprintf("from the checkpoint of step %d", p.step)
	default:
		n.from = fmt.Sprintf("from step %d, of which nothing is lost", p.step)
	}
	if n.first = p.step == 0 && last.Still == 0; last.Still > 0 {
		n.since, n.known = now.Add(-last.Still), now.Add(-last.Known)
	}
	e.out.announce(n, e.steps(), len(e.data.Train.Y), len(e.data.Test.Y))
}

func (r *reporter) announce(n *resumption, total, train, test int) {
	if r.Progress == nil {
		fmt.Fprintf(r.out, "%d rows to train on, %d to test; %d steps\n", train, test, total)
		r.Progress = show.NewProgress(r.out, total)
	}
	r.news, r.total, r.world = n, total, n.World
	if n.since.IsZero() {
		r.Say("%s: %s %s", n.Why, n.workers(), n.from)
	}
	r.At(n.Step)
}

// began is the mark of an epoch's first step, once the work for that is done; nil after other
// steps.
func (r *reporter) began(step int) *mark {
	n := r.news
	r.news = nil
	if n == nil {
		return nil
	}
	if !n.since.IsZero() {
		still := time.Since(n.since)
		r.Say("%s: %s %s; stood still for %.2f s, %.2f s of it since the nodes knew",
			n.Why, n.workers(), n.from, still.Seconds(), min(still, time.Since(n.known)).Seconds())
	}
	if n.first {
		return nil
	}
	return &n.mark
}

// made is told of every step.
func (r *reporter) made(step int, loss float64) {
	r.Step(loss)
	if step%r.lines == 0 || step == r.total {
		r.Line("step %d/%d  loss %.4f  world %d", step, r.total, loss, r.world)
	}
}

// lost tells of what ended an epoch before its time, on any worker.
func (r *reporter) lost(rank int, err error) { r.printf("worker %d stops: %v", rank, err) }

// refused tells once of a checkpoint that cannot be read, on any worker.
func (r *reporter) refused(step int64, err error) {
	if r.told[err.Error()] {
		return
	}
	r.told[err.Error()] = true
	r.printf("the checkpoint of step %d is refused: %v", step, err)
}

func (r *reporter) printf(format string, v ...any) {
	if r.Progress != nil {
		r.Say(format, v...)
		return
	}
	fmt.Fprintf(r.out, format+"\n", v...)
}

func (r *reporter) finish(accuracy float64, h history) error {
	r.Done()
	fmt.Fprintf(r.out, "test accuracy %.4f\n", accuracy)
	if r.result != "" {
		b, err := json.Marshal(result{h, accuracy})
		if err == nil {
			err = os.WriteFile(r.result, b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	if r.plot == "" {
		return nil
	}
	var marks []show.Mark
	for _, m := range h.Marks {
		marks = append(marks, show.Mark{Step: m.Step, Text: fmt.Sprintf("world %d", m.World)})
	}
	if err := show.PlotLosses(r.plot, fmt.Sprintf("test accuracy %.4f", accuracy), h.Losses, marks...); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	fmt.Fprintf(r.out, "loss curve in %s\n", r.plot)
	return nil
}
