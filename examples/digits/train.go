package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/examples/internal/show"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// result is what --json prints.
type result struct {
	Workers      int       `json:"workers"`
	Rows         int       `json:"rows"`
	Features     int       `json:"features"`
	Classes      int       `json:"classes"`
	Seed         uint64    `json:"seed"`
	Steps        int       `json:"steps"`
	Losses       []float64 `json:"losses"` // of each step, before it
	TestAccuracy float64   `json:"test_accuracy"`
	Seconds      float64   `json:"seconds"` // of training
}

// trainHere trains the whole model in this process.
func trainHere(c context.Context, s settings, stdout, stderr io.Writer) (err error) {
	d, err := table.Load(s.data, s.seed)
	if err != nil {
		return err
	}
	dev, says, err := place.Open(s.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	m, err := newWhole(s.sizes(d), s.rule(), dev)
	if err != nil {
		return err
	}
	s.place = says
	return train(c, s, d, m, stdout, stderr)
}

// trainSplit is one worker of two: worker 0 trains, worker 1 serves its half until worker 0 has
// finished.
func trainSplit(c context.Context, s settings, stdout, stderr io.Writer) (err error) {
	var d *table.Data
	if os.Getenv("RANK") == "0" { // a bad file should not cost anybody a join
		if d, err = table.Load(s.data, s.seed); err != nil {
			return err
		}
	}
	dev, says, err := place.Open(s.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	s.place = says
	w, err := dev.Join(c, functions())
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err = lead(c, w, s, d, stdout, stderr); err != nil {
			_ = w.Close() // the error says more
			return err
		}
	}
	return w.Leave(c) // fails where worker 0 was lost
}

// lead trains and reports.
func lead(c context.Context, w *rpc.Worker, s settings, d *table.Data, stdout, stderr io.Writer) error {
	m, err := newHalves(c, w, w.Workers()[1].Name, s.sizes(d), s.rule())
	if err != nil {
		return err
	}
	return train(c, s, d, m, stdout, stderr)
}

func (s settings) sizes(d *table.Data) sizes {
	return sizes{d.Features, s.hidden, d.Classes, s.seed, s.dropout}
}

func (s settings) rule() optim.Rule {
	if s.optimizer == "adam" {
		return optim.Adam{LR: s.lr}
	}
	return rule(s.lr)
}

// perEpoch is how many steps go once through the training part.
func (s settings) perEpoch(d *table.Data) int { return (len(d.Train.Y) + s.batch - 1) / s.batch }

// train runs the steps, measures the accuracy on the test part, and writes what was asked for.
func train(c context.Context, s settings, d *table.Data, m model, stdout, stderr io.Writer) error {
	if s.schedule == "cosine" {
		m.optimizer().SetSchedule(optim.Cosine(s.epochs*s.perEpoch(d), 0))
	}
	saved, losses, err := s.openSaved(c, m, stderr)
	if err != nil {
		return err
	}
	out, before := newReporter(s, d, stdout), len(losses)
	out.goesOn(before)
	began := time.Now()
	if losses, err = steps(c, s, d, m, losses, saved, out); err != nil {
		return fmt.Errorf("step %d: %w", len(losses)+1, err)
	}
	took := time.Since(began)
	x, y := d.Test.All()
	accuracy, err := m.accuracy(c, x, y)
	if err != nil {
		return fmt.Errorf("test: %w", err)
	}
	if !s.json {
		out.finish(accuracy, len(losses)-before, took)
	}
	if s.plot != "" {
		if err := show.PlotLosses(s.plot, fmt.Sprintf("test accuracy %.4f", accuracy), losses); err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		fmt.Fprintf(out.out, "loss curve in %s\n", s.plot)
	}
	if s.json {
		return json.NewEncoder(stdout).Encode(result{
			Workers: s.workers, Rows: len(d.Train.Y) + len(d.Test.Y), Features: d.Features, Classes: d.Classes, Seed: s.seed,
			Steps: len(losses), Losses: losses, TestAccuracy: accuracy, Seconds: took.Seconds(),
		})
	}
	return nil
}

// steps goes through the training part epoch by epoch, in an order that the seed fixes; a last,
// shorter batch counts too. It goes on after the steps of which there are losses.
func steps(c context.Context, s settings, d *table.Data, m model, losses []float64, saved *saver, out *reporter) ([]float64, error) {
	src := rand.New(rand.NewPCG(s.seed, 4))
	for epoch := range s.epochs {
		order := src.Perm(len(d.Train.Y))
		first := epoch * s.perEpoch(d)
		if len(losses) >= first+s.perEpoch(d) {
			continue
		}
		for at := (len(losses) - first) * s.batch; at < len(order); at += s.batch {
			if s.maxSteps > 0 && len(losses) >= s.maxSteps {
				return losses, saved.save(c, m, losses)
			}
			x, y := d.Train.Batch(order[at:min(at+s.batch, len(order))])
			loss, err := m.step(c, x, y)
			if err != nil {
				return losses, err
			}
			if math.IsNaN(loss) || math.IsInf(loss, 0) {
				return losses, fmt.Errorf("the loss is %v; a smaller --lr than %g may help", loss, s.lr)
			}
			m.optimizer().Advance()
			losses = append(losses, loss)
			out.Step(loss)
			if saved.due(len(losses)) {
				if err := saved.save(c, m, losses); err != nil {
					return losses, err
				}
			}
		}
		sum := 0.0
		for _, loss := range losses[first:] {
			sum += loss
		}
		out.epoch(epoch+1, sum/float64(len(losses)-first))
	}
	return losses, saved.save(c, m, losses)
}
