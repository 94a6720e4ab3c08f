// Digits trains a classifier that is split between two worker processes on handwritten digits: the
// first half of the network lives on worker 0, the second on worker 1. Activations go one way and
// gradients the other; each half is stepped where it lives.
//
//	weft run --nproc-per-node 2 digits      # two processes, as on two machines
//	digits                                  # the same: it starts its two workers itself
//	digits --workers 1                      # the same model in one process
//	digits --device cuda                    # on GPUs: both workers on one, where there is no more
//	digits --checkpoint DIR --resume        # go on where the last run came to, with as many workers as there are now
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/show"
)

// settings are the command line.
type settings struct {
	workers  int
	data     string
	epochs   int
	maxSteps int
	batch    int
	hidden   int
	seed     uint64
	json     bool
	plot     string
	device   string

	optimizer string
	lr        float64
	schedule  string
	dropout   float64

	checkpoint string
	every      int
	resume     bool

	place string // what the device is, once it is open
}

func main() { program.Main(run) }

// run is the program: 0 for success, 1 for a failure, 2 for a wrong command line; a failed worker's
// own code where it started workers.
func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	switch {
	case err != nil:
		err = program.Wrong(err)
	case s.workers == 1:
		err = trainHere(c, s, stdout, stderr)
	case os.Getenv("RANK") != "":
		err = trainSplit(c, s, stdout, stderr)
	default:
		return show.Workers(c, "digits", 2, args, stdout, stderr)
	}
	return program.End(c, "digits", err, stderr)
}

func parse(args []string, stdout io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("digits", flag.ContinueOnError)
	f.IntVar(&s.workers, "workers", 0, "worker processes, 1 or 2; default: as many as the launcher started, or 2")
	f.StringVar(&s.data, "data", "", "a CSV or CSV.gz of numbers whose last column is the class; default: the built-in digits")
	f.IntVar(&s.epochs, "epochs", 30, "times to go through the training part")
	f.IntVar(&s.maxSteps, "steps", 0, "stop after so many steps; 0: no limit")
	f.IntVar(&s.batch, "batch", 32, "rows per step")
	f.StringVar(&s.optimizer, "optimizer", "sgd", "sgd, with momentum 0.9 and weight decay 5e-4, or adam")
	f.Float64Var(&s.lr, "lr", 0, "learning rate; default 0.1 for sgd, and 0.001 for adam")
	f.StringVar(&s.schedule, "schedule", "constant", "constant, or cosine: the learning rate falls to 0 over all epochs, step by step")
	f.Float64Var(&s.dropout, "dropout", 0, "share of the hidden units that each step drops")
	f.StringVar(&s.checkpoint, "checkpoint", "", "folder for checkpoints: one every --every steps, and one at the end")
	f.IntVar(&s.every, "every", 50, "steps from one checkpoint to the next")
	f.BoolVar(&s.resume, "resume", false, "go on from the newest checkpoint of --checkpoint, if there is one, with any number of workers")
	f.IntVar(&s.hidden, "hidden", 128, "width of the hidden layers")
	f.Uint64Var(&s.seed, "seed", 1, "fixes the split into train and test, the first weights and the order")
	f.StringVar(&s.device, "device", "auto", place.Usage)
	f.BoolVar(&s.json, "json", false, "print the losses and the result as one JSON object")
	f.StringVar(&s.plot, "plot", "digits-loss.png", "where to write the loss curve; empty: nowhere")
	if err := program.Parse(f, args, stdout); err != nil {
		return s, err
	}
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if f.NArg() > 0 {
		bad("unexpected argument %q; options begin with --", f.Arg(0))
	}
	started, launched := 2, os.Getenv("RANK") != ""
	if launched {
		var err error
		if started, err = strconv.Atoi(os.Getenv("WORLD_SIZE")); err != nil {
			bad("WORLD_SIZE is %q; expected a number, as weft run sets it", os.Getenv("WORLD_SIZE"))
		}
	}
	if s.workers == 0 {
		s.workers = max(started, 1)
	}
	if s.workers < 1 || s.workers > 2 {
		bad("%d workers; the model has two halves: use 1 or 2", s.workers)
	}
	if launched && started > 0 && s.workers != started {
		bad("--workers %d, but the launcher started %d; leave --workers out, or use weft run --nproc-per-node %d", s.workers, started, s.workers)
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	rate, known := map[string]float64{"sgd": 0.1, "adam": 0.001}[s.optimizer]
	if !known {
		bad("--optimizer %s; expected sgd or adam", s.optimizer)
	}
	if !given["lr"] {
		s.lr = rate
	}
	if s.schedule != "constant" && s.schedule != "cosine" {
		bad("--schedule %s; expected constant or cosine", s.schedule)
	}
	if !(s.dropout >= 0 && s.dropout < 1) {
		bad("--dropout %g; expected a number from 0 to less than 1", s.dropout)
	}
	if s.checkpoint == "" && (s.resume || given["every"]) {
		bad("--resume and --every are of checkpoints; say with --checkpoint in which folder they are")
	}
	for name, v := range map[string]int{"epochs": s.epochs, "batch": s.batch, "hidden": s.hidden, "every": s.every} {
		if v < 1 || v > 1<<20 {
			bad("--%s %d; expected 1 to %d", name, v, 1<<20)
		}
	}
	if s.maxSteps < 0 {
		bad("--steps %d; expected 0 or more", s.maxSteps)
	}
	if (known || given["lr"]) && !(s.lr > 0 && s.lr <= 1e6) {
		bad("--lr %g; expected a positive number up to 1e6", s.lr)
	}
	if err := place.Check(s.device); err != nil {
		bad("--device %s: %w", s.device, err)
	}
	if err := show.CheckPlot(s.plot); err != nil {
		bad("--plot %s: %w", s.plot, err)
	}
	return s, errors.Join(errs...)
}
