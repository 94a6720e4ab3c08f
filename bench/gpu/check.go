package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// selfEnv marks the processes that the check starts of this program.
const selfEnv = "WEFT_GPUCHECK"

// options are the flags of the check, and where it is.
type options struct {
	at     places.Place
	out    string
	budget time.Duration
	part   part
	only   string
	rounds int

	dir, self string // where the bundle lies, and this program
}

func (o options) file(name string) string { return filepath.Join(o.dir, name) }

// checkMain runs the whole check.
func checkMain(c context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{at: "cuda:0"}
	f := flag.NewFlagSet("gpucheck", flag.ContinueOnError)
	f.Var(&o.at, "device", "cuda:N, or interpreter: tiny benchmarks on the host's processor")
	f.StringVar(&o.out, "out", ".", "the folder for result.json and result.md")
	f.DurationVar(&o.budget, "budget", 9*time.Minute, "time for everything; what does not fit is left out")
	f.Var(&o.part, "part", "first or second: what is told soonest, or the rest; both without")
	f.StringVar(&o.only, "only", "", "steps whose names begin so, separated by commas, and the step device; all without")
	f.StringVar(&o.dir, "dir", "", "the folder of the bundle; where this program lies without")
	f.IntVar(&o.rounds, "rounds", 30, "rounds that a median is of")
	began := time.Now()
	page := report.Result{Date: began.UTC().Format(time.RFC3339), Commit: commit, Command: "gpucheck " + strings.Join(args, " ")}
	err := flags.Parse(f, args, stderr, o.at.Check, func() error { return o.check() })
	if err != nil {
		return errors.Join(err, refuse(page, f, err))
	}
	if o.self, err = os.Executable(); err != nil {
		return err
	}
	if o.dir == "" {
		o.dir = filepath.Dir(o.self)
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	r := &runner{
		course: newCourse(o.chosen(plan(o)), began, o.budget), dir: o.dir, out: o.out, started: began, stdout: stdout, stderr: stderr, Result: page,
	}
	defer time.AfterFunc(o.budget+grace, func() { os.Exit(codeFailed) }).Stop() // nobody reads what is printed, or the system holds a file
	defer r.share()()
	if o.at != places.Interpreter {
		defer awake(o.self)()
	}
	return r.run(c)
}

// refuse tells of a wrong command line in the results, where the flags have named a folder for
// them: it may have those of a check that only begins.
func refuse(r report.Result, f *flag.FlagSet, why error) (err error) {
	r.State = "the command line is wrong: " + strings.ReplaceAll(why.Error(), "\n", "; ")
	f.Visit(func(given *flag.Flag) {
		if given.Name == "out" && !errors.Is(why, flag.ErrHelp) {
			err = r.Write(given.Value.String())
		}
	})
	return err
}

// check says what is wrong with the flags, but for the device.
func (o options) check() error {
	errs := []error{flags.CheckRounds(o.rounds), o.part.check()}
	if o.budget <= 0 {
		errs = append(errs, fmt.Errorf("-budget %v; expected more than 0", o.budget))
	}
	all := plan(o)
	if words := flags.Unknown(o.only, func(w string) bool {
		return slices.ContainsFunc(all, func(s step) bool { return strings.HasPrefix(s.name, w) })
	}); words != "" {
		errs = append(errs, fmt.Errorf("-only %q: no step's name begins with %s", o.only, words))
	}
	return errors.Join(errs...)
}

// chosen are the steps that -part and -only name.
func (o options) chosen(all []step) (some []step) {
	for _, s := range all {
		named := o.only == "" || slices.ContainsFunc(strings.Split(o.only, ","), func(p string) bool { return strings.HasPrefix(s.name, p) })
		if s.always || named && (o.part == both || s.part == both || s.part == o.part) {
			some = append(some, s)
		}
	}
	return some
}
