// Elastic trains a classifier of handwritten digits on workers that come and go while it trains.
// Each has the whole model (package parallel/resilient). When a worker is lost the others compute
// its rows of the step that is under way, and go on; when one comes it gets the state from them. No
// process is started again but the lost one. Checkpoints are for when all are lost.
//
//	elastic                                # a demonstration: three agents on this machine, some of which are killed
//	weft run --nnodes 1:3 --rdzv-endpoint HOST:29400 --rdzv-id JOB --token-file TOKEN --max-restarts 9 elastic # on each of up to three machines, with a shared folder
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/show"
)

// settings are the command line.
type settings struct {
	checkpoints  string
	every, lines int
	epochs       int
	batch        int
	hidden       int
	lr           float64
	seed         uint64
	pace         time.Duration
	plot, result string

	// Of the demonstration's agents.
	policy            string
	lastCall, silence time.Duration
}

func main() { program.Main(run) }

// run is the program: 0 for success, 1 for a failure, 2 for a wrong command line.
func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	switch {
	case err != nil:
		err = program.Wrong(err)
	case os.Getenv("RANK") != "":
		err = train(c, s, stdout)
	case os.Getenv(agentVariable) != "":
		err = runAgent(c, s, args, stdout, stderr)
	default:
		err = demonstrate(c, s, args, stdout)
	}
	return program.End(c, "elastic", err, stderr)
}

func parse(args []string, stdout io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("elastic", flag.ContinueOnError)
	f.StringVar(&s.checkpoints, "checkpoints", "elastic-checkpoints", "folder for checkpoints, which all workers share; training goes on from what is there. The demonstration has one that it removes, if none is given")
	f.IntVar(&s.every, "every", 20, "steps between checkpoints")
	f.IntVar(&s.lines, "lines", 45, "steps between lines, where there is no terminal; the demonstration makes 20 lines or more")
	f.IntVar(&s.epochs, "epochs", 30, "times to go through the training part, with those of the checkpoint")
	f.IntVar(&s.batch, "batch", 32, "rows per step, over all workers")
	f.IntVar(&s.hidden, "hidden", 128, "width of the hidden layers")
	f.Float64Var(&s.lr, "lr", 0.05, "learning rate of SGD with momentum 0.9 and weight decay 5e-4")
	f.Uint64Var(&s.seed, "seed", 1, "fixes the split into train and test, the first weights and the order")
	f.DurationVar(&s.pace, "pace", 0, "least time of a step, to have the time to watch; the demonstration takes 10ms")
	f.StringVar(&s.plot, "plot", "elastic-loss.png", "where to write the loss curve; empty: nowhere")
	f.StringVar(&s.result, "result", "", "file for all losses, where the workers changed, and the accuracy, as JSON")
	f.StringVar(&s.policy, "restart-policy", "worker", "of the demonstration's agents: worker or group")
	f.DurationVar(&s.lastCall, "last-call", time.Second, "of the demonstration's agents: how long they wait for more of them")
	f.DurationVar(&s.silence, "silence", 2*time.Second, "of the demonstration's agents: after how long without a word one is lost")
	if err := program.Parse(f, args, stdout); err != nil {
		return s, err
	}
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if f.NArg() > 0 {
		bad("unexpected argument %q; options begin with --", f.Arg(0))
	}
	for name, v := range map[string]int{"every": s.every, "lines": s.lines, "epochs": s.epochs, "batch": s.batch, "hidden": s.hidden} {
		if v < 1 || v > 1<<20 {
			bad("--%s %d; expected 1 to %d", name, v, 1<<20)
		}
	}
	if !(s.lr > 0 && s.lr <= 1e6) {
		bad("--lr %g; expected a positive number up to 1e6", s.lr)
	}
	if s.pace < 0 || s.pace > time.Minute {
		bad("--pace %v; expected 0 to 1m", s.pace)
	}
	if s.lastCall <= 0 || s.silence <= 0 {
		bad("--last-call %v, --silence %v; expected more than 0", s.lastCall, s.silence)
	}
	if s.checkpoints == "" {
		bad("--checkpoints: expected a folder")
	}
	if s.policy != "worker" && s.policy != "group" {
		bad("--restart-policy %q; expected worker or group", s.policy)
	}
	if err := show.CheckPlot(s.plot); err != nil {
		bad("--plot %s: %w", s.plot, err)
	}
	return s, errors.Join(errs...)
}
