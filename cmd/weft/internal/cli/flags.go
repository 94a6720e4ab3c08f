package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/store"
)

// PetVariable stands for a flag of weft run, as for one of torchrun's.
func PetVariable(flag string) string {
	return "PET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ReadsPET says whether a command takes flags from such variables.
func ReadsPET(cmd *cobra.Command) bool { return cmd.Flags().Lookup("nnodes") != nil }

// blamed is what reword makes.
type blamed struct {
	text string
	error
}

// Reword gives an error other words.
func Reword(text string, err error) error { return blamed{text, err} }

func (b blamed) Error() string { return b.text }

func (b blamed) Unwrap() error { return b.error }

// Plainly says what a flag expects, where its package says what a function of Go's has said.
func Plainly(err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		if text := err.Error(); strings.Contains(text, ": time: ") { // of ParseDuration
			return errors.New(text[:strings.LastIndex(text, ": time: ")] + ": expected a duration, such as 5s or 1m30s")
		}
		return err
	}
	expected := map[string]string{"ParseInt": "a whole number", "ParseFloat": "a number", "ParseBool": "true or false"}[number.Func]
	return errors.New(strings.Replace(err.Error(), number.Error(), "expected "+cmp.Or(expected, "another value"), 1))
}

// CheckListen refuses an address to listen at that has only a port, and says what was expected.
func CheckListen(flag, addr string) error {
	if _, err := strconv.ParseUint(addr, 10, 16); err != nil {
		return nil //nolint:nilerr // it is no port; what else may be wrong, who listens finds
	}
	return fmt.Errorf("--%s: expected HOST:PORT, as in 127.0.0.1:%s, or 0.0.0.0:%s for all addresses; got %q", flag, addr, addr, addr)
}

// ParsePlain reads who may speak plain text with a store.
func ParsePlain(s string) (store.Plain, error) {
	switch s {
	case "auto":
		return store.PlainAuto, nil
	case "always":
		return store.PlainAlways, nil
	case "never":
		return store.PlainNever, nil
	}
	return 0, fmt.Errorf("expected auto, always or never, got %q", s)
}
