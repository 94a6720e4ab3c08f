// Parameterserver learns what words of a text are like. One worker owns the tables of the words;
// three trainers go through the text, each in passes of its own, ask for the rows that a step
// needs, and send back the gradients of those rows alone: they stay sparse through the pass and
// into the optimizer. The kill of a trainer harms nobody else.
//
//	parameterserver                                     # starts its four workers itself; kill -9 a trainer, and the others go on
//	weft run --nproc-per-node 4 parameterserver         # the same, but weft run ends the job with the first worker that fails
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/show"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// settings are the command line.
type settings struct {
	trainers int
	text     string
	minCount int
	steps    int
	batch    int
	dim      int
	lr       float64
	seed     uint64
	json     bool
	plot     string
}

func main() { program.Main(run) }

// run is the program: 0 for success, 1 for a failure, 2 for a wrong command line.
func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	switch {
	case err != nil:
		err = program.Wrong(err)
	case os.Getenv("RANK") == "":
		return show.WorkersWhile(c, "parameterserver", 1+s.trainers, trainerFailed, args, stdout, stderr)
	default:
		err = work(c, s, stdout)
	}
	return program.End(c, "parameterserver", err, stderr)
}

// trainerFailed says that the job goes on without a worker.
func trainerFailed(e agent.Exit) bool { return e.Rank != 0 }

// work is one worker: the server at rank 0, trainers elsewhere.
func work(c context.Context, s settings, stdout io.Writer) error {
	d, err := readCorpus(s.text, s.minCount) // a bad file should not cost anybody a join
	if err != nil {
		return err
	}
	secure, err := rpc.StoreTLSFromEnv()
	if err != nil {
		return err
	}
	place, err := store.Open(c, "env://", store.OpenConfig{TLS: secure})
	if err != nil {
		return err
	}
	if place.Rank == 0 {
		err = serve(c, s, d, place, stdout)
	} else {
		err = train(c, s, d, place)
	}
	return errors.Join(err, place.Close())
}

func parse(args []string, stdout io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("parameterserver", flag.ContinueOnError)
	f.IntVar(&s.trainers, "trainers", 0, "trainer processes; default: all that the launcher started but one, or 3")
	f.StringVar(&s.text, "text", "", "a text; default: Isaac Newton's Opticks, built in")
	f.IntVar(&s.minCount, "min-count", 5, "leave out words that occur less often")
	f.IntVar(&s.steps, "steps", 3000, "steps of each trainer")
	f.IntVar(&s.batch, "batch", 256, "pairs of words per step")
	f.IntVar(&s.dim, "dim", 48, "numbers per word")
	f.Float64Var(&s.lr, "lr", 0.1, "learning rate of Adagrad")
	f.Uint64Var(&s.seed, "seed", 1, "fixes the first tables and each trainer's order, not whose step comes first")
	f.BoolVar(&s.json, "json", false, "print the losses and the result as one JSON object")
	f.StringVar(&s.plot, "plot", "words.png", "where to draw the words; empty: nowhere")
	if err := program.Parse(f, args, stdout); err != nil {
		return s, err
	}
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if f.NArg() > 0 {
		bad("unexpected argument %q; options begin with --", f.Arg(0))
	}
	started, launched := 4, os.Getenv("RANK") != ""
	if launched {
		var err error
		if started, err = strconv.Atoi(os.Getenv("WORLD_SIZE")); err != nil || started < 2 {
			bad("WORLD_SIZE is %q; expected a number from 2, as weft run --nproc-per-node sets it: one server, and trainers", os.Getenv("WORLD_SIZE"))
		}
	}
	if s.trainers == 0 {
		s.trainers = max(started-1, 1)
	}
	if launched && started > 1 && s.trainers != started-1 {
		bad("--trainers %d, but the launcher started %d workers; leave --trainers out, or use weft run --nproc-per-node %d", s.trainers, started, s.trainers+1)
	}
	for _, n := range []struct {
		name    string
		v, most int
	}{{"trainers", s.trainers, 64}, {"min-count", s.minCount, 1 << 20}, {"steps", s.steps, 1 << 30}, {"batch", s.batch, 1 << 14}, {"dim", s.dim, 1 << 14}} {
		if n.v < 1 || n.v > n.most {
			bad("--%s %d; expected 1 to %d", n.name, n.v, n.most)
		}
	}
	if !(s.lr > 0 && s.lr <= 1e6) {
		bad("--lr %g; expected a positive number up to 1e6", s.lr)
	}
	if err := show.CheckPlot(s.plot); err != nil {
		bad("--plot %s: %w", s.plot, err)
	}
	return s, errors.Join(errs...)
}
