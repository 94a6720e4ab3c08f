package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

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
	out  io.Writer
	told map[string]bool // checkpoints that were refused
}

func newReporter(s settings, out io.Writer) *reporter {
	return &reporter{settings: s, out: out, told: map[string]bool{}}
}

// begins is told how an epoch begins.
func (r *reporter) begins(what string, step int) {
	r.printf("%s", what)
	if r.Progress != nil {
		r.At(step)
	}
}

// made is told of every step that this worker makes as the first one.
func (r *reporter) made(step, total int, loss float64, world int) {
	if r.Progress == nil {
		r.Progress = show.NewProgress(r.out, total)
		r.At(step - 1)
	}
	r.Step(loss)
	if step%r.lines == 0 || step == total {
		r.Line("step %d/%d  loss %.4f  world %d", step, total, loss, world)
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
	if r.Progress != nil {
		r.Done()
	}
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
