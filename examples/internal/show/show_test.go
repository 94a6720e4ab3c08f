package show

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgressIsLinesWhereThereIsNoTerminal(t *testing.T) {
	t.Setenv("WEFT_TTY", "")
	var out bytes.Buffer
	p := NewProgress(&out, 2)
	p.Step(1)
	p.Line("step %d", 2)
	p.Say("news")
	p.Done()
	require.Equal(t, "step 2\nnews\n", out.String())
}

func TestProgressIsABarWhereTheLauncherSaysThatThereIsATerminal(t *testing.T) {
	t.Setenv("WEFT_TTY", "1")
	var out bytes.Buffer
	p := NewProgress(&out, 2)
	p.Step(1)
	p.Step(0.5)
	p.Line("never")
	p.Say("news")
	p.Done()
	require.Contains(t, out.String(), "loss 0.5000")
	require.Contains(t, out.String(), "2/2")
	require.NotContains(t, out.String(), "never")
	require.Contains(t, out.String(), "\rnews\n")
}

func TestAPictureThatCouldNotBeWrittenIsRefusedBefore(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, CheckPlot(""))
	for _, name := range []string{"loss.png", "loss.svg"} {
		file := filepath.Join(dir, name)
		require.NoError(t, CheckPlot(file))
		require.NoError(t, PlotLosses(file, "a title", []float64{3, 2, 1}))
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.NotZero(t, info.Size())
	}
	require.ErrorContains(t, CheckPlot(filepath.Join(dir, "loss.txt")), ".png")
	require.ErrorIs(t, CheckPlot(filepath.Join(dir, "no", "loss.png")), os.ErrNotExist)
	require.ErrorContains(t, CheckPlot(filepath.Join(dir, "loss.png", "x.png")), "is not a folder")
}
