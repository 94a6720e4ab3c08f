package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// errFailed says that something was wrong which has been told already.
var errFailed = errors.New("something failed")

// errUnwritten says that results could not be written, which has been told already.
var errUnwritten = errors.New("results could not be written")

// usageError is a wrong command line.
type usageError struct{ error }

// allDone is the last line of steps that are this program, where they end well.
const allDone = "done"

// run is the program.
func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	verb := "check"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	verbs := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"check": checkMain, "device": deviceMain, "bench": benchMain, // and what they start:
		"worker": workerMain, "machine": machineMain, "hold": holdMain, "awake": awakeMain,
	}
	err := error(usageError{fmt.Errorf("no command %q; expected device, bench, or only flags", verb)})
	if fn := verbs[verb]; fn != nil {
		err = fn(c, args, stdout, stderr)
		if err == nil && os.Getenv(selfEnv) != "" && (verb == "device" || verb == "bench") {
			fmt.Fprintln(stderr, allDone)
		}
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUnwritten):
		return codeUnwritten
	case errors.Is(err, errFailed):
		return codeFailed
	}
	fmt.Fprintln(stderr, "gpucheck:", err)
	if errors.As(err, new(usageError)) {
		return codeUsage
	}
	return codeFailed
}

// parse parses a verb's flags, and accepts nothing else. The error has all that checks find.
func parse(f *flag.FlagSet, args []string, stderr io.Writer, checks ...func() error) error {
	f.SetOutput(stderr)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	var errs []error
	for _, check := range checks {
		errs = append(errs, check())
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// checkRounds bounds a median.
func checkRounds(n int) error {
	if n < 1 || n > 1000 {
		return fmt.Errorf("-rounds %d; expected 1 to 1000", n)
	}
	return nil
}

// unknown are the words of a list, split by commas, that known does not know, quoted.
func unknown(list string, known func(word string) bool) string {
	var words []string
	for _, w := range strings.Split(list, ",") {
		if list != "" && !known(w) {
			words = append(words, strconv.Quote(w))
		}
	}
	return strings.Join(words, ", ")
}
