package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
)

// newTrainer is a trainer that writes and reads a folder.
func newTrainer(t *testing.T, folder string, hidden int, said *bytes.Buffer) *trainer {
	t.Helper()
	data, err := table.Load("", 1)
	require.NoError(t, err)
	d, err := checkpoint.Open(folder, checkpoint.Config{})
	require.NoError(t, err)
	tr := &trainer{settings: settings{hidden: hidden, batch: 8, lr: 0.1, seed: 1, epochs: 1}, data: data, saved: d, out: newReporter(settings{}, said)}
	tr.model = tr.newModel()
	tr.opt, err = optim.NewGroups(optim.Named(tr.rule(), nn.Parameters(tr.model)))
	require.NoError(t, err)
	return tr
}

// step makes a step alone, and gives its loss.
func (t *trainer) step(test *testing.T) float64 {
	test.Helper()
	loss, err := t.loss(test.Context(), t.rows().Of(uint64(len(t.Losses)), 0, 1))
	require.NoError(test, err)
	v, err := loss.Item()
	require.NoError(test, err)
	grads, err := autodiff.Backward(loss)
	require.NoError(test, err)
	require.NoError(test, t.opt.Step(grads.All()))
	loss.Owner().Free()
	t.Losses = append(t.Losses, v)
	return v
}

func TestTrainingGoesOnBitForBitFromWhatWasSaved(t *testing.T) {
	folder := t.TempDir()
	var said bytes.Buffer
	tr := newTrainer(t, folder, 4, &said)
	for range 3 {
		tr.step(t)
	}
	require.NoError(t, tr.save(t.Context()))
	require.NoError(t, tr.saving.wait())
	other := newTrainer(t, folder, 4, &said)
	require.NoError(t, other.resume())
	require.Equal(t, tr.history, other.history)
	for range 3 {
		require.Equal(t, tr.step(t), other.step(t))
	}
	require.ErrorContains(t, newTrainer(t, folder, 5, &said).resume(), "is of another --hidden")
	mixed := newTrainer(t, folder, 4, &said)
	mixed.seed = 2
	require.ErrorContains(t, mixed.resume(), "the checkpoint of step 3 is of --seed 1, and this is --seed 2: rows that it has learnt would test it; "+
		"name another folder (--checkpoints), or give the same")
	mixed.seed, mixed.batch = 1, 16
	require.ErrorContains(t, mixed.resume(), "the checkpoint of step 3 is of --batch 8, and this is --batch 16: its steps are other rows; name another folder")
	require.Empty(t, mixed.Losses)
}

func TestACheckpointThatWasCutIsPassedOver(t *testing.T) {
	folder := t.TempDir()
	var said bytes.Buffer
	tr := newTrainer(t, folder, 4, &said)
	for range 2 {
		tr.step(t)
		require.NoError(t, tr.save(t.Context()))
		require.NoError(t, tr.saving.wait())
	}
	files, err := filepath.Glob(filepath.Join(folder, "*2.0", "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Truncate(files[0], 10))
	for range 2 {
		other := newTrainer(t, folder, 4, &said)
		require.NoError(t, other.resume())
		require.Len(t, other.Losses, 1)
	}
	require.Regexp(t, `^(the checkpoint of step 2 is refused: corrupt checkpoint: `+regexp.QuoteMeta(files[0])+` has 10 bytes.*\n){2}$`, said.String())
}
