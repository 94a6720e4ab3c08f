package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// selfEnv marks the processes that the check starts of this program.
const selfEnv = "WEFT_GPUCHECK"

// options are the flags of the check, and where it is.
type options struct {
	at     place
	out    string
	budget time.Duration
	only   string
	rounds int

	dir, self string // where the bundle lies, and this program
}

func (o options) file(name string) string { return filepath.Join(o.dir, name) }

// result is what the check writes.
type result struct {
	Date    string     `json:"date"`
	Commit  string     `json:"commit"`
	Command string     `json:"command"`
	GPU     *gpuReport `json:"gpu"`
	Green   bool       `json:"green"`
	Seconds float64    `json:"seconds"`
	Steps   []outcome  `json:"steps"`
}

// checkMain runs the whole check.
func checkMain(c context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{at: "cuda:0"}
	f := flag.NewFlagSet("gpucheck", flag.ContinueOnError)
	f.Var(&o.at, "device", "cuda:N, or interpreter: tiny benchmarks on the host's processor")
	f.StringVar(&o.out, "out", ".", "the folder for result.json and result.md")
	f.DurationVar(&o.budget, "budget", 9*time.Minute, "time for everything; what does not fit is left out")
	f.StringVar(&o.only, "only", "", "steps whose names begin so, separated by commas; all without")
	f.StringVar(&o.dir, "dir", "", "the folder of the bundle; where this program lies without")
	f.IntVar(&o.rounds, "rounds", 30, "rounds that a median is of")
	if err := parse(f, args, stderr, o.at.check, func() error { return o.check() }); err != nil {
		return err
	}
	var err error
	if o.self, err = os.Executable(); err != nil {
		return err
	}
	if o.dir == "" {
		o.dir = filepath.Dir(o.self)
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	forget, err := cache()
	if err != nil {
		return err
	}
	defer forget()
	defer awake()()
	began := time.Now()
	r := result{Date: began.UTC().Format(time.RFC3339), Commit: commit, Command: "gpucheck " + strings.Join(args, " ")}
	if r.GPU, err = reportOf(o.at); err != nil {
		return fmt.Errorf("no GPU to check: %w", err)
	}
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s, sm_%d, driver for CUDA %d.%d; cuBLASLt: %s\n", r.GPU.Name, r.GPU.Arch, r.GPU.Driver/1000, r.GPU.Driver%1000/10, r.GPU.Library)
	for _, s := range o.chosen(plan(o)) {
		out := s.run(c, o.dir, min(o.budget-time.Since(began), time.Hour))
		fmt.Fprintf(stdout, "%-9s %5.1f s  %s\n", out.Verdict, out.Seconds, out.Name)
		if out.Why != "" {
			fmt.Fprintln(stdout, indented(out.Why))
		}
		r.Steps = append(r.Steps, out)
		r.Seconds, r.Green = time.Since(began).Seconds(), green(r)
		if err := r.write(o.out); err != nil { // after each step: whoever ends the check has what there is
			return err
		}
	}
	fmt.Fprintf(stdout, "results in %s\n", filepath.Join(o.out, "result.md"))
	if !r.Green {
		return errFailed
	}
	return nil
}

// awake has the GPUs stay initialised between the steps, where nothing else does: it takes the driver seconds to start one that nobody has open.
func awake() (sleep func()) {
	var files []*os.File
	nodes, _ := filepath.Glob("/dev/nvidia[0-9]*")
	for _, node := range nodes {
		if f, err := os.OpenFile(node, os.O_RDWR, 0); err == nil {
			files = append(files, f)
		}
	}
	return func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
}

// cacheVariable tells the driver where to keep what it compiles of PTX.
const cacheVariable = "CUDA_CACHE_PATH"

// cache has the steps share what the driver compiles, which is new for this check, wherever it would lie otherwise: no home may be there, or none that can
// be written, and each process would compile everything again. It is called before the driver is opened.
func cache() (forget func(), err error) {
	if os.Getenv(cacheVariable) != "" {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "gpucheck")
	if err != nil {
		return nil, fmt.Errorf("%w; name a folder that can be written in TMPDIR, or in %s", err, cacheVariable)
	}
	return func() { _, _ = os.Unsetenv(cacheVariable), os.RemoveAll(dir) }, os.Setenv(cacheVariable, dir)
}

// check says what is wrong with the flags, but for the device.
func (o options) check() error {
	errs := []error{checkRounds(o.rounds)}
	if o.budget <= 0 {
		errs = append(errs, fmt.Errorf("-budget %v; expected more than 0", o.budget))
	}
	all := plan(o)
	if words := unknown(o.only, func(w string) bool {
		return slices.ContainsFunc(all, func(s step) bool { return strings.HasPrefix(s.name, w) })
	}); words != "" {
		errs = append(errs, fmt.Errorf("-only %q: no step's name begins with %s", o.only, words))
	}
	return errors.Join(errs...)
}

// chosen are the steps that -only names.
func (o options) chosen(all []step) (some []step) {
	for _, s := range all {
		if o.only == "" || slices.ContainsFunc(strings.Split(o.only, ","), func(p string) bool { return strings.HasPrefix(s.name, p) }) {
			some = append(some, s)
		}
	}
	return some
}

// green says that every module loads, that what must be shown was, and that no step of Weft's went wrong.
func green(r result) bool {
	for _, s := range r.Steps {
		if s.Verdict != ok && (s.Must || s.Verdict != leftOut && !s.Aside) {
			return false
		}
	}
	return len(r.GPU.LoadErrors) == 0
}

func (r result) write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "result.json"), append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "result.md"), []byte(r.markdown()), 0o600)
}

func indented(s string) string { return "\t" + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n\t") }
