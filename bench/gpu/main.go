package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/measure"
	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// commit is what the bundle was made of; the linker sets it.
var commit = "unknown"

func main() { os.Exit(program(run)) }

// grace is how long the program may take to end in good order after a signal, or when all its time
// is used up.
const grace = 8 * time.Second

// program is main, with a run. The first signal ends the context. The second one ends the program,
// and so does time: a driver may hold a goroutine for ever.
func program(run func(c context.Context, args []string, stdout, stderr io.Writer) int) int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // nobody may read what is printed; what is written to files counts
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	c, cancel := context.WithCancelCause(context.Background())
	go func() {
		if len(os.Args) > 1 && os.Args[1] == "hold" {
			return // it ends with the check
		}
		cancel(fmt.Errorf("ended by %s", signalName(<-signals)))
		select {
		case <-signals:
		case <-time.After(grace):
		}
		os.Exit(codeFailed)
	}()
	return run(c, os.Args[1:], os.Stdout, os.Stderr)
}

// signalName is a signal's name, as SIGTERM.
func signalName(s os.Signal) string {
	if number, is := s.(syscall.Signal); is {
		return unix.SignalName(number)
	}
	return s.String()
}

// The exit codes, beside 0.
const (
	codeFailed    = 1
	codeUsage     = 2
	codeUnwritten = 3
)

// errUnwritten says that results could not be written, which has been told already.
var errUnwritten = errors.New("results could not be written")

// run is the program.
func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	verb := "check"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	verbs := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"check": checkMain, "device": report.Device, "bench": func(c context.Context, args []string, stdout, stderr io.Writer) error {
			return measure.Main(c, commit, args, stdout, stderr)
		}, // and what they start:
		"worker": measure.Worker, "machine": machineMain, "hold": holdMain, "awake": awakeMain,
	}
	err := flags.Wrong(fmt.Errorf("no command %q; expected device, bench, or only flags", verb))
	if fn := verbs[verb]; fn != nil {
		err = fn(c, args, stdout, stderr)
		if err == nil && os.Getenv(selfEnv) != "" && (verb == "device" || verb == "bench") {
			fmt.Fprintln(stderr, report.AllDone)
		}
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUnwritten):
		return codeUnwritten
	case errors.Is(err, flags.ErrFailed):
		return codeFailed
	}
	fmt.Fprintln(stderr, "gpucheck:", err)
	if errors.As(err, new(flags.UsageError)) {
		return codeUsage
	}
	return codeFailed
}
