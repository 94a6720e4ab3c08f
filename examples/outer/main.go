// Outer trains one model over slow links: workers make many inner steps alone, and exchange what
// came of them now and then, while they go on. docs/internet.md tells about it.
//
//	outer                                    # a demonstration: four workers in this process, over links of 100 ms
//	weft run --nproc-per-node 4 --max-restarts 9 outer --pace 30ms # a process for each worker, over the network that there is; kill some
//	weft run --nnodes 1:8 --rdzv-endpoint HOST:29400 --rdzv-id JOB --token-file TOKEN --max-restarts 9 outer # on each of up to eight machines, which come and go
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/show"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/outer"
)

// settings are the command line.
type settings struct {
	data    string
	workers int
	links   time.Duration
	seed    uint64
	lr      float64
	batch   int
	steps   int
	pace    time.Duration
	plot    string
	outer   outer.Config
}

func main() { program.Main(run) }

// run is the program: 0 for success, 1 for a failure, 2 for a wrong command line.
func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	s, t, err := parse(args, stdout)
	switch {
	case err != nil:
		err = program.Wrong(err)
	case os.Getenv("RANK") != "":
		err = work(c, s, t, stdout)
	default:
		err = demonstrate(c, s, t, stdout)
	}
	return program.End(c, "outer", err, stderr)
}

// work is one worker of a job, of which others may be lost, or come.
func work(c context.Context, s settings, t *task, stdout io.Writer) error {
	m, err := elastic.Join(c)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // there is nothing to be told any more
	fmt.Fprintf(stdout, "worker %d is process %d\n", m.Place().Rank, os.Getpid())
	w, err := newTrainer(s, t, m.Place().Rank)
	if err != nil {
		return err
	}
	out, first := newReporter(s, stdout), false
	w.told, w.outer.Changed, w.outer.Logger = out.stepped, out.changed, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := outer.Each(c, m, w.model.Params(), w.outer, func(c context.Context, _ *elastic.Epoch, l *outer.Loop) error {
		first = l.Group().Rank() == 0
		return w.learn(c, l)
	}); err != nil || !first {
		return err
	}
	return out.conclude(w.made)
}

func parse(args []string, stdout io.Writer) (s settings, t *task, err error) {
	f := flag.NewFlagSet("outer", flag.ContinueOnError)
	var wire string
	f.StringVar(&s.data, "data", "text", "what to learn: digits, or text (Isaac Newton's Opticks), both built in")
	f.IntVar(&s.workers, "workers", 4, "of the demonstration: how many")
	f.DurationVar(&s.links, "links", 100*time.Millisecond, "of the demonstration: how long a message takes from worker to worker")
	f.IntVar(&s.steps, "steps", 600, "inner steps of each worker")
	f.IntVar(&s.batch, "batch", 128, "rows of a step, on all workers together")
	f.Float64Var(&s.lr, "lr", 0.1, "learning rate of the inner SGD with momentum 0.9")
	f.IntVar(&s.outer.Every, "every", 50, "inner steps between two exchanges of a parameter")
	f.IntVar(&s.outer.Fragments, "fragments", 1, "parts of the parameters that are exchanged one after another")
	f.IntVar(&s.outer.Delay, "delay", -1, "inner steps that go on while an exchange is under way; -1: 45, or as many as --every allows")
	f.Float64Var(&s.outer.Mix, "mix", 0.5, "share of a worker's own values when a result is applied")
	f.Float64Var(&s.outer.LR, "outer-lr", 0.7, "outer learning rate")
	f.Float64Var(&s.outer.Momentum, "outer-momentum", 0.5, "Nesterov's; 0.9 for hundreds of exchanges, 0: none")
	f.StringVar(&wire, "wire", "int8", "how outer gradients travel: float32, bfloat16, int8 or int4")
	f.BoolVar(&s.outer.FirstCalls, "first-calls", false, "the first worker that is due calls the others: for workers of different speed")
	f.Uint64Var(&s.seed, "seed", 1, "fixes the first weights and the order of rows")
	f.DurationVar(&s.pace, "pace", 0, "least time of an inner step; the demonstration takes 10ms")
	f.StringVar(&s.plot, "plot", "outer-loss.png", "where to draw the losses; empty: nowhere")
	if err := program.Parse(f, args, stdout); err != nil {
		return s, nil, err
	}
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if f.NArg() > 0 {
		bad("unexpected argument %q; options begin with --", f.Arg(0))
	}
	for name, v := range map[string]int{"workers": s.workers, "steps": s.steps, "batch": s.batch, "every": s.outer.Every, "fragments": s.outer.Fragments} {
		if v < 1 || v > 1<<20 {
			bad("--%s %d; expected 1 to %d", name, v, 1<<20)
		}
	}
	most := s.outer.Every/max(s.outer.Fragments, 1) - 1
	if s.outer.Delay == -1 {
		s.outer.Delay = max(min(45, most), 0)
	} else if s.outer.Delay < 0 || s.outer.Delay > most {
		bad("--delay %d; expected 0 to %d, less than --every / --fragments", s.outer.Delay, most)
	}
	if s.batch > 0 && s.batch < s.workers {
		bad("--batch %d; expected a row for each of --workers (%d) or more", s.batch, s.workers)
	}
	if s.workers > 64 {
		bad("--workers %d; expected 64 at most in one process", s.workers)
	}
	if s.links < 0 || s.links > time.Minute || s.pace < 0 || s.pace > time.Minute {
		bad("--links %v, --pace %v; expected 0 to 1m", s.links, s.pace)
	}
	rate := func(name string, v float64) {
		if !(v > 0 && v <= 1e6) {
			bad("--%s %g; expected a positive number up to 1e6", name, v)
		}
	}
	share := func(name string, v float64) {
		if !(v >= 0 && v < 1) {
			bad("--%s %g; expected 0 to less than 1", name, v)
		}
	}
	rate("lr", s.lr)
	rate("outer-lr", s.outer.LR)
	share("mix", s.outer.Mix)
	share("outer-momentum", s.outer.Momentum)
	if s.outer.Momentum == 0 {
		s.outer.Momentum = optim.Zero
	}
	wires := map[string]outer.Wire{"float32": outer.Float32, "bfloat16": outer.BFloat16, "int8": outer.Int8, "int4": outer.Int4}
	var known bool
	if s.outer.Wire, known = wires[wire]; !known {
		bad("--wire %q; expected float32, bfloat16, int8 or int4", wire)
	}
	if err := show.CheckPlot(s.plot); err != nil {
		bad("--plot %s: %w", s.plot, err)
	}
	if t, err = newTask(s.data, s.seed); err != nil {
		bad("%w", err)
	}
	return s, t, errors.Join(errs...)
}
