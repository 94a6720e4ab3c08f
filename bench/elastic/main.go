package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// patience is how long a job may take.
const patience = 2 * time.Minute

// bench is launchers, measured in turns.
type bench struct {
	launchers []launcher
	launcher  // whose turn it is
	worker    []string
	settle    time.Duration // from when all workers run until one is killed
	out       io.Writer
}

// part is one thing to measure.
type part struct {
	name    string
	measure func(*bench, context.Context, shape) error
}

// jobs are of one agent that is alone, of one that waits a second for another (torchrun can wait no
// less), and of two.
var jobs = []shape{{1, "1", 1}, {1, "1:2", 1}, {2, "1:2", 30}}

var parts = [...]part{{"alone", (*bench).alone}, {"end", (*bench).measureEnd}, {"replace", (*bench).replace}}

func main() {
	if to, ok := os.LookupEnv(witnessVariable); ok {
		if err := report(to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	names := flag.String("launcher", "weft", "some of weft: weft run of this tree; weft-group: with --restart-policy group; torchrun: that of -python")
	python := flag.String("python", "/usr/bin/python3", "an interpreter that has torch, if that is measured, and runs the workers")
	worker := flag.String("worker", "python", "python: worker.py; go: this program, which starts faster")
	only := flag.String("only", "", "some of alone,end,replace; empty: all")
	flag.Parse()
	c, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(c, *names, *python, *worker, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench/elastic:", err)
		os.Exit(1)
	}
}

func run(c context.Context, names, python, worker, only string) (err error) {
	dir, err := os.MkdirTemp("", "bench-elastic-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{out: os.Stdout, settle: time.Second}
	for name := range strings.SplitSeq(names, ",") {
		l, err := chosen(c, name, python, dir)
		if err != nil {
			return err
		}
		b.launchers = append(b.launchers, l)
	}
	if b.worker, err = workers(worker, python); err != nil {
		return err
	}
	return b.run(c, jobs, only)
}

// chosen is the launcher of a name, built in dir where it is ours.
func chosen(c context.Context, name, python, dir string) (launcher, error) {
	switch name {
	case "weft", "weft-group":
		path, err := build(c, dir)
		l := launcher{name: name, argv: []string{path, "run"}, group: name == "weft-group"}
		if !l.group {
			l.argv = append(l.argv, "--restart-policy=worker")
		}
		return l, err
	case "torchrun":
		return launcher{name: name, argv: []string{python, "-m", "torch.distributed.run"}, python: true, group: true}, nil
	}
	return launcher{}, fmt.Errorf("-launcher: expected weft, weft-group or torchrun, got %q", name)
}

// workers is the command of a worker.
func workers(kind, python string) ([]string, error) {
	switch kind {
	case "python":
		_, here, _, _ := runtime.Caller(0)
		return []string{python, filepath.Join(filepath.Dir(here), "worker.py")}, nil
	case "go":
		self, err := os.Executable()
		return []string{self}, err
	}
	return nil, fmt.Errorf("-worker: expected python or go, got %q", kind)
}

func (b *bench) run(c context.Context, shapes []shape, only string) error {
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, w := range wanted {
		if !slices.ContainsFunc(parts[:], func(p part) bool { return p.name == w }) {
			return fmt.Errorf("-only: expected some of alone,end,replace, got %q", w)
		}
	}
	for _, p := range parts {
		if len(wanted) > 0 && !slices.Contains(wanted, p.name) {
			continue
		}
		for _, s := range shapes {
			for _, b.launcher = range b.launchers { // so that what is compared is measured at about one time
				if err := p.measure(b, c, s); err != nil {
					return fmt.Errorf("%s: %s %v: %w", b.name, p.name, s, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) emit(name string, took time.Duration) {
	fmt.Fprintf(b.out, "BenchmarkElastic/lane=%s/%s\t1\t%d ns/op\t%.4g ms\n", b.name, name, took.Nanoseconds(), took.Seconds()*1e3)
}
