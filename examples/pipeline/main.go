// Pipeline trains a small transformer on Newton's Opticks, cut into stages on three worker
// processes, and lets it write. A step's micro-batches follow each other through the stages, and
// each stage computes their backwards before new forwards (1F1B); then every worker steps its own
// parameters. At the end it measures how much of its slowest stage's throughput the pipeline
// reaches.
//
//	weft run --nproc-per-node 3 pipeline      # three processes, as on three machines
//	pipeline                                  # the same: it starts its workers itself
//	pipeline --workers 1                      # the same model in one process
//	pipeline --replicas 2                     # two pipelines of three, for batches twice as large
//	pipeline --device cuda                    # on GPUs: all workers on one, where there is no more
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/show"
)

// settings are the command line.
type settings struct {
	workers     int
	replicas    int
	data        string
	blocks      []int
	width       int
	heads       int
	context     int
	vocab       int
	steps       int
	micros      int
	rows        int
	inFlight    int
	lr          float64
	seed        uint64
	device      string
	rounds      int
	prompt      string
	sample      int
	temperature float64
	json        bool
	plot        string

	on       string // what the device is, once it is open
	pipeline int    // which of them this process drives
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
		err = trainHere(c, s, stdout)
	case os.Getenv("RANK") != "":
		err = trainSplit(c, s, stdout)
	default:
		return show.Workers(c, "pipeline", s.workers, args, stdout, stderr)
	}
	return program.End(c, "pipeline", err, stderr)
}

func parse(args []string, stdout io.Writer) (settings, error) {
	s := settings{blocks: []int{1, 3, 0}}
	f := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	f.IntVar(&s.workers, "workers", 0, "worker processes: one per stage and pipeline, or 1 for all of it; default: one per stage and pipeline")
	f.IntVar(&s.replicas, "replicas", 1, "pipelines that train one model, each on micro-batches of its own")
	f.Func("blocks", "transformer blocks in each stage, separated by commas; the first has the embedding too, the last the head (default 1,3,0)", func(text string) (err error) {
		s.blocks, err = numbers(text)
		return err
	})
	f.StringVar(&s.data, "data", "", "a text to learn; default: the built-in Opticks")
	f.IntVar(&s.width, "width", 128, "width of the activations")
	f.IntVar(&s.heads, "heads", 4, "attention heads; they share the width")
	f.IntVar(&s.context, "context", 64, "tokens that the model sees at once")
	f.IntVar(&s.vocab, "vocab", 512, "pieces of text that are tokens; the bytes of the text at least")
	f.IntVar(&s.steps, "steps", 500, "steps to train")
	f.IntVar(&s.micros, "micro", 8, "micro-batches in a step of each pipeline")
	f.IntVar(&s.rows, "rows", 4, "windows of text in a micro-batch")
	f.IntVar(&s.inFlight, "in-flight", 0, "micro-batches under way at a time; default: twice as many as stages, so that none waits for the wire")
	f.Float64Var(&s.lr, "lr", 3e-3, "highest learning rate of AdamW; it rises for a tenth of the steps and falls after")
	f.Uint64Var(&s.seed, "seed", 1, "fixes the first weights, what is learned when, and the sample")
	f.IntVar(&s.rounds, "measure", 10, "steps to measure afterwards, in turns with each stage alone; 0: none")
	f.StringVar(&s.prompt, "prompt", "The Rays of Light", "what the sample begins with")
	f.IntVar(&s.sample, "sample", 150, "tokens to write at the end")
	f.Float64Var(&s.temperature, "temperature", 0.7, "how freely the sample is drawn; 0: always the likeliest")
	f.StringVar(&s.device, "device", "auto", place.Usage)
	f.BoolVar(&s.json, "json", false, "print the losses and the result as one JSON object")
	f.StringVar(&s.plot, "plot", "pipeline-loss.png", "where to write the loss curve; empty: nowhere")
	if err := program.Parse(f, args, stdout); err != nil {
		return s, err
	}
	if s.inFlight == 0 {
		s.inFlight = 2 * len(s.blocks)
	}
	return s, errors.Join(s.check(f.Args()), s.chooseWorkers())
}

func numbers(text string) (out []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, perr := strconv.Atoi(strings.TrimSpace(part))
		if perr != nil {
			return nil, fmt.Errorf("%q is not a number", part)
		}
		out = append(out, n)
	}
	return out, nil
}

// check says what is wrong with the numbers.
func (s *settings) check(rest []string) error {
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if len(rest) > 0 {
		bad("unexpected argument %q; options begin with --", rest[0])
	}
	if len(s.blocks) < 2 || len(s.blocks) > 64 {
		bad("--blocks names %d stages; expected 2 to 64", len(s.blocks))
	}
	for _, n := range s.blocks {
		if n < 0 || n > 1024 {
			bad("--blocks: %d blocks in a stage; expected 0 to 1024", n)
		}
	}
	for _, x := range []struct {
		name           string
		v, least, most int
	}{
		{"replicas", s.replicas, 1, 1 << 6}, {"width", s.width, 1, 1 << 14}, {"heads", s.heads, 1, 1 << 10}, {"context", s.context, 1, 1 << 12}, {"vocab", s.vocab, 1, 1 << 14},
		{"steps", s.steps, 1, 1 << 24}, {"micro", s.micros, 1, 1 << 12}, {"rows", s.rows, 1, 1 << 12}, {"in-flight", s.inFlight, 1, 1 << 12},
		{"measure", s.rounds, 0, 1 << 16}, {"sample", s.sample, 0, 1 << 20},
	} {
		if x.v < x.least || x.v > x.most {
			bad("--%s %d; expected %d to %d", x.name, x.v, x.least, x.most)
		}
	}
	if s.heads > 0 && s.width%s.heads != 0 {
		bad("--width %d cannot be shared by %d heads", s.width, s.heads)
	}
	if !(s.lr > 0 && s.lr <= 1e6) {
		bad("--lr %g; expected a positive number up to 1e6", s.lr)
	}
	if !(s.temperature >= 0 && s.temperature <= 1e6) {
		bad("--temperature %g; expected 0 to 1e6", s.temperature)
	}
	if s.prompt == "" {
		bad("--prompt is empty; the sample must begin with something")
	}
	if err := place.Check(s.device); err != nil {
		bad("--device %s: %w", s.device, err)
	}
	if err := show.CheckPlot(s.plot); err != nil {
		bad("--plot %s: %w", s.plot, err)
	}
	return errors.Join(errs...)
}

// chooseWorkers decides how many workers there are.
func (s *settings) chooseWorkers() error {
	size, launched := os.LookupEnv("WORLD_SIZE")
	if os.Getenv("RANK") == "" || !launched {
		if s.workers == 0 {
			s.workers = len(s.blocks) * s.replicas
		}
	} else {
		started, err := strconv.Atoi(size)
		switch {
		case err != nil:
			return fmt.Errorf("WORLD_SIZE is %q; expected a number, as weft run sets it", size)
		case s.workers != 0 && s.workers != started:
			return fmt.Errorf("--workers %d, but the launcher started %d; leave --workers out, or use weft run --nproc-per-node %d", s.workers, started, s.workers)
		}
		s.workers = started
	}
	if s.workers != 1 && s.workers != len(s.blocks)*s.replicas {
		return fmt.Errorf("%d workers for %d stages; use one for each stage of each pipeline, or 1, or share the blocks out otherwise with --blocks",
			s.workers, len(s.blocks)*s.replicas)
	}
	return nil
}
