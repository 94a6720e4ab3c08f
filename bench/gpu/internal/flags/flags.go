package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrFailed says that something was wrong which has been told already.
var ErrFailed = errors.New("something failed")

// UsageError is a wrong command line.
type UsageError struct{ error }

// Wrong makes a UsageError of an error.
func Wrong(err error) error { return UsageError{err} }

// Parse parses a verb's flags, and accepts nothing else. The error has all that checks find.
func Parse(f *flag.FlagSet, args []string, stderr io.Writer, checks ...func() error) error {
	f.SetOutput(stderr)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return UsageError{err}
	}
	var errs []error
	for _, check := range checks {
		errs = append(errs, check())
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if err := errors.Join(errs...); err != nil {
		return UsageError{err}
	}
	return nil
}

// CheckRounds bounds a median.
func CheckRounds(n int) error {
	if n < 1 || n > 1000 {
		return fmt.Errorf("-rounds %d; expected 1 to 1000", n)
	}
	return nil
}

// Unknown are the words of a list, split by commas, that known does not know, quoted.
func Unknown(list string, known func(word string) bool) string {
	var words []string
	for _, w := range strings.Split(list, ",") {
		if list != "" && !known(w) {
			words = append(words, strconv.Quote(w))
		}
	}
	return strings.Join(words, ", ")
}
