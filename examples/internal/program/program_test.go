package program

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// told is the exit code of a program that has a flag --steps, and what it says.
func told(c context.Context, fails error, args ...string) (int, string) {
	var says bytes.Buffer
	f := flag.NewFlagSet("sample", flag.ContinueOnError)
	f.Int("steps", 1, "how many steps")
	err := Parse(f, args, &says)
	if err != nil {
		err = Wrong(err)
	} else {
		err = fails
	}
	return End(c, "sample", err, &says), says.String()
}

func TestAWrongCommandLineIsToldInOneLineWithOneThatLeadsToTheHelp(t *testing.T) {
	for arg, says := range map[string]string{
		"--step=1":  "sample: flag provided but not defined: -step\nsee sample --help\n",
		"--steps=x": "sample: invalid value \"x\" for flag -steps: parse error\nsee sample --help\n",
	} {
		code, said := told(t.Context(), nil, arg)
		require.Equal(t, 2, code)
		require.Equal(t, says, said)
	}
	code, said := told(t.Context(), nil, "--help")
	require.Zero(t, code)
	require.Contains(t, said, "how many steps")
}

func TestAProgramWithoutFlagsRefusesThemAndSaysWhichWorkerItIs(t *testing.T) {
	ran := 0
	sample := plain("sample", func(context.Context) error { ran++; return nil })
	for arg, says := range map[string]string{
		"--epochs": "sample: flag provided but not defined: -epochs\nsee sample --help\n",
		"more":     "sample: unexpected argument \"more\"\nsee sample --help\n",
	} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, sample(t.Context(), []string{arg}, &out, &errs))
		require.Equal(t, says, errs.String())
	}
	var out bytes.Buffer
	require.Zero(t, sample(t.Context(), []string{"--help"}, &out, &out))
	require.Equal(t, "sample has no flags\n", out.String())
	require.Zero(t, ran)
	out.Reset()
	require.Zero(t, sample(t.Context(), nil, &out, &out))
	require.Empty(t, out.String())
	t.Setenv("RANK", "1")
	t.Setenv("WORLD_SIZE", "3")
	require.Zero(t, sample(t.Context(), nil, &out, &out))
	require.Equal(t, "rank 1 of 3\n", out.String())
	require.Equal(t, 2, ran)
}

func TestWhatAllWorkersWouldSayTheFirstSaysAndTheOthersReport(t *testing.T) {
	for _, c := range []struct {
		rank string
		file bool
		says bool
	}{{"", true, true}, {"0", true, true}, {"1", true, false}, {"1", false, true}} {
		file := filepath.Join(t.TempDir(), "error.json")
		t.Setenv("RANK", c.rank)
		t.Setenv("TORCHELASTIC_ERROR_FILE", "")
		if c.file {
			t.Setenv("TORCHELASTIC_ERROR_FILE", file)
		}
		code, said := told(t.Context(), Wrong(errors.New("a small mistake")))
		require.Equal(t, 2, code)
		require.Equal(t, c.says, said != "", c)
		report, err := os.ReadFile(file)
		require.Equal(t, c.says, err != nil, c)
		if !c.says {
			require.Contains(t, string(report), "a small mistake")
		}
	}
}

func TestAFailureIsToldAndWhatBreaksAfterASignalIsNot(t *testing.T) {
	t.Setenv("RANK", "1")
	code, said := told(t.Context(), errors.New("no more"))
	require.Equal(t, 1, code)
	require.Equal(t, "sample: no more\n", said)
	c, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to end"))
	_, said = told(c, errors.New("broken pipe"))
	require.Equal(t, "sample: told to end\n", said)
}
