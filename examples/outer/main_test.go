package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/examples/internal/exampletest"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/outer"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestTheDemonstrationComparesWithStepsOfAllTogether(t *testing.T) {
	t.Setenv("WEFT_TTY", "")
	for exchanges, args := range map[string][]string{
		"3":   {}, // the last begins with the last step, and nothing is left for another
		`\d+`: {"--first-calls", "--fragments", "2", "--delay", "2", "--wire", "int4"},
	} {
		plot := filepath.Join(t.TempDir(), "loss.svg")
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"--data", "digits", "--workers", "3", "--links", "2ms", "--pace", "1ms", "--steps", "60", "--every", "20",
			"--delay", "12", "--plot", plot}, args...), &out, &errs)
		require.Zero(t, code, errs.String())
		require.Regexp(t, `step \d+/60  loss \d\.\d+  exchange 1 took`, out.String())
		require.Regexp(t, `test loss \d\.\d+, [5-9]\d\.\d\d% right; `+exchanges+` exchanges, [\d.]+ kB sent by each worker`, out.String())
		require.Regexp(t, `a step of all workers together takes .*: this took [\d.]+ s \(\S+% of it\) and sent [\d.]+ kB \([0-9.]+%\)`, out.String())
		info, err := os.Stat(plot)
		require.NoError(t, err)
		require.NotZero(t, info.Size())
	}
}

func TestWorkersOfAJobTrainOverTheNetworkThatThereIs(t *testing.T) {
	out := exampletest.Job(t, 2, "--data", "digits", "--steps", "120", "--plot", "")
	require.Len(t, regexp.MustCompile(`worker \d is process \d+`).FindAllString(out, -1), 2, out)
	require.Len(t, regexp.MustCompile(`test loss \d\.\d+, [5-9]\d\.\d\d% right; 3 exchanges`).FindAllString(out, -1), 1, out)
}

func TestTheFirstThatWasThereTellsWhoIsLostAndANewcomerOfItself(t *testing.T) {
	ch := outer.Change{Round: 7, Members: []string{"worker0", "worker1", "worker2"}, Lost: []string{"worker0"}, Came: []string{"worker0"}}
	for rank, says := range []string{
		"this worker is new, from exchange 8 on; it goes on with 3 workers\n",
		"before exchange 8: lost: worker0; new: worker0; it goes on with 3 workers\n",
		"",
	} {
		var out bytes.Buffer
		r := newReporter(settings{}, &out)
		ch.Rank, ch.Lost = rank, []string{"worker0"}
		if rank == 0 {
			ch.Lost = nil
		}
		r.changed(ch)
		require.Equal(t, says, out.String(), "rank %d", rank)
		require.NoError(t, r.conclude(result{Totals: outer.Totals{Exchanges: 3}}))
		require.Equal(t, rank == 0, strings.Contains(out.String(), "3 exchanges since it came, "), out.String())
	}
}

func TestAWorkerThatIsToldToEndBetweenExchangesDoesSo(t *testing.T) {
	s, k := learning(t, "digits", 1)
	g, err := collective.Open(t.Context(), rpctest.World(t, rpctest.Net(), 1)[0], "outer")
	require.NoError(t, err)
	defer g.Close()
	w, err := newTrainer(s, k, 0)
	require.NoError(t, err)
	w.g = g
	c, stop := context.WithCancel(t.Context())
	w.told = func(_ float64, l *outer.Loop) {
		if l.Steps() == 3 {
			stop()
		}
	}
	r, err := w.train(c)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, r.Losses, 3)
}

func TestAWrongCommandLineIsRefusedWithAllThatIsWrong(t *testing.T) {
	var out, errs bytes.Buffer
	wrong := []string{"--data", "no", "--workers", "0", "--links", "-1s", "--lr", "0", "--wire", "int2", "--plot", "x.txt", "more"}
	require.Equal(t, 2, run(t.Context(), wrong, &out, &errs))
	for _, what := range []string{
		`--data "no"; expected digits or text`, "--workers 0", "--links -1s", "--lr 0", `--wire "int2"; expected float32, bfloat16, int8 or int4`,
		"--plot x.txt", `"more"`,
	} {
		require.Contains(t, errs.String(), what)
	}
	errs.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"--every", "8", "--fragments", "2", "--delay", "4"}, &out, &errs))
	require.Contains(t, errs.String(), "--delay 4; expected 0 to 3, less than --every / --fragments")
	for args, want := range map[string]int{"": 45, "--every 10": 9, "--every 1": 0, "--every 8 --delay 2": 2} {
		s, _, err := parse(append(strings.Fields(args), "--data", "digits"), &out)
		require.NoError(t, err)
		require.Equal(t, want, s.outer.Delay, args)
	}
	for arg, what := range map[string]string{
		"--lr=NaN": "--lr NaN; expected a positive number", "--outer-lr=NaN": "--outer-lr NaN; expected a positive number",
		"--outer-lr=0": "--outer-lr 0;", "--mix=2": "--mix 2; expected 0 to less than 1", "--mix=NaN": "--mix NaN;",
		"--outer-momentum=1": "--outer-momentum 1; expected 0 to less than 1", "--outer-momentum=-1": "--outer-momentum -1;",
	} {
		errs.Reset()
		require.Equal(t, 2, run(t.Context(), []string{"--data", "digits", arg}, &out, &errs), arg)
		require.Contains(t, errs.String(), what)
	}
	for arg, want := range map[string]float64{"--outer-momentum=0": optim.Zero, "--outer-momentum=0.3": 0.3, "--mix=0": 0.5} {
		s, _, err := parse([]string{"--data", "digits", arg}, &out)
		require.NoError(t, err)
		require.Equal(t, want, s.outer.Momentum, arg)
	}
	late := []string{"--data", "digits", "--workers", "2", "--links", "0s", "--fragments", "20", "--plot", ""}
	require.Equal(t, 1, run(t.Context(), late, &out, &errs))
	require.Contains(t, errs.String(), "Fragments is 20; expected")
	_, err := letters("too short")
	require.ErrorContains(t, err, "a text of 9 bytes is too short")
}
