// Package program is how the example programs begin and end.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weft-project/weft/elastic"
)

// Main runs a program until it ends, or is told to by SIGINT or SIGTERM. It is 0 for success, 1 for
// a failure, 2 for a wrong command line.
func Main(run func(c context.Context, args []string, stdout, stderr io.Writer) int) {
	c, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(c, os.Args[1:], os.Stdout, os.Stderr))
}

// Run is Main for a program without flags. Where a launcher has started it, it says as which
// worker.
func Run(run func(c context.Context) error) { Main(plain(filepath.Base(os.Args[0]), run)) }

func plain(name string, run func(c context.Context) error) func(c context.Context, args []string, stdout, stderr io.Writer) int {
	return func(c context.Context, args []string, stdout, stderr io.Writer) int {
		f := flag.NewFlagSet(name, flag.ContinueOnError)
		f.Usage = func() { fmt.Fprintf(f.Output(), "%s has no flags\n", name) }
		err := Parse(f, args, stdout)
		switch rank := os.Getenv("RANK"); {
		case err == nil && f.NArg() > 0:
			err = Wrong(fmt.Errorf("unexpected argument %q", f.Arg(0)))
		case err != nil:
			err = Wrong(err)
		case rank != "":
			fmt.Fprintf(stdout, "rank %s of %s\n", rank, os.Getenv("WORLD_SIZE"))
			fallthrough
		default:
			err = run(c)
		}
		return End(c, name, err, stderr)
	}
}

// Quiet is a logger for a program that says itself who is lost.
func Quiet(stderr io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// Parse reads the flags of a command line. For --help it says what there are, and fails with
// flag.ErrHelp.
func Parse(f *flag.FlagSet, args []string, help io.Writer) error {
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(help)
		f.Usage()
	}
	return err
}

// Wrong marks an error of the command line, which is the same for all workers of a job.
func Wrong(err error) error { return alike{err, 2} }

// Alike marks another error that all workers of a job have.
func Alike(err error) error { return alike{err, 1} }

type alike struct {
	error
	code int
}

func (a alike) Unwrap() error { return a.error }

// End says on stderr why a program fails, and gives its exit code. What all workers would say alike
// the first of them says, and the others leave it to the report of their launcher. What broke when
// c had ended is no news.
func End(c context.Context, name string, err error, stderr io.Writer) int {
	all := alike{code: 1}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &all):
		if rank := os.Getenv("RANK"); rank != "" && rank != "0" && os.Getenv(elastic.ErrorFileVariable) != "" && elastic.WriteError(err) == nil {
			return all.code
		}
	case c.Err() != nil:
		err = context.Cause(c)
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if all.code == 2 {
		fmt.Fprintf(stderr, "see %s --help\n", name)
	}
	return all.code
}
