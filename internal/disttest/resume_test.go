package disttest

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/optim"
)

// save writes a checkpoint of a step.
func save(c context.Context, dir *checkpoint.Dir, step int64, model nn.Layer, opt *optim.Local) error {
	state, err := opt.State()
	if err != nil {
		return err
	}
	meta, err := json.Marshal(state.Meta)
	if err != nil {
		return err
	}
	values, err := checkpoint.Pieces("model.", maps.Collect(nn.State(model)))
	if err != nil {
		return err
	}
	slots, err := checkpoint.Pieces("optim.", state.Tensors)
	if err != nil {
		return err
	}
	return dir.Save(c, checkpoint.Part{Step: step, Pieces: append(values, slots...), Notes: map[string]string{"optim": string(meta)}})
}

// resume goes on from the newest checkpoint; its error is checkpoint.ErrNone where there is none.
func resume(dir *checkpoint.Dir, model nn.Layer, opt *optim.Local) (step int64, err error) {
	k, err := dir.Latest()
	if err != nil {
		return 0, err
	}
	defer func() { _ = k.Close() }() // it was only read
	values, err := checkpoint.Tensors(k, "model.", autodiff.FromRaw)
	if err != nil {
		return 0, err
	}
	var state optim.State
	if state.Tensors, err = checkpoint.Tensors(k, "optim.", autodiff.FromRaw); err != nil {
		return 0, err
	}
	if err := json.Unmarshal([]byte(k.Notes["optim"]), &state.Meta); err != nil {
		return 0, err
	}
	if err := nn.Load(model, values); err != nil {
		return 0, err
	}
	return k.Step, opt.Load(state)
}

// blocks is a model whose parts lie in a map.
type blocks struct{ Parts map[string]nn.Layer }

func (b blocks) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	for _, name := range []string{"first", "norm", "drop", "last"} {
		x = b.Parts[name].Forward(x)
	}
	return x
}

func (b blocks) Params() (ps []*autodiff.Tensor) {
	for _, l := range b.Parts {
		ps = append(ps, l.Params()...)
	}
	return ps
}

func newBlocks(t *testing.T, seed uint64) (nn.Layer, *optim.Local) {
	src := rand.New(rand.NewPCG(seed, 1))
	model := blocks{map[string]nn.Layer{
		"first": nn.NewLinear(src, 6, 6), "norm": nn.NewBatchNorm(6), "drop": nn.NewDropout(src, 0.4), "last": nn.NewLinear(src, 6, 6),
	}}
	opt, err := optim.NewGroups(optim.Named(optim.AdamW{LR: 1e-3, WeightDecay: optim.Zero}, nn.Parameters(model)))
	require.NoError(t, err)
	opt.SetSchedule(optim.Cosine(20, 0))
	return model, opt
}

func trainBlocks(t *testing.T, model nn.Layer, opt *optim.Local, from, to int) (losses []float64) {
	for step := from; step < to; step++ {
		rows := rand.New(rand.NewPCG(9, uint64(step))) // the data follow from a seed and the step
		x := autodiff.NormalFrom(rows, 1, 8, 6)
		loss := nn.MSE(model.Forward(x), x)
		grads, err := autodiff.Backward(loss)
		require.NoError(t, err)
		_, err = opt.StepClipped(grads.All(), 0.5)
		require.NoError(t, err)
		opt.Advance()
		v, err := loss.Item()
		require.NoError(t, err)
		losses = append(losses, v)
	}
	return losses
}

func TestTheDocumentationsSampleSavesAndResumesToTheLastBit(t *testing.T) {
	dir, err := checkpoint.Open(t.TempDir(), checkpoint.Config{})
	require.NoError(t, err)
	model, opt := newBlocks(t, 1)
	_, err = resume(dir, model, opt)
	require.ErrorIs(t, err, checkpoint.ErrNone)
	trainBlocks(t, model, opt, 0, 7)
	require.NoError(t, save(t.Context(), dir, 7, model, opt))
	want := trainBlocks(t, model, opt, 7, 20)

	again, opt := newBlocks(t, 2)
	step, err := resume(dir, again, opt)
	require.NoError(t, err)
	require.Equal(t, int64(7), step)
	require.Equal(t, want, trainBlocks(t, again, opt, 7, 20))
}

func TestTheDocumentationHasTheSampleThatRuns(t *testing.T) {
	doc, err := os.ReadFile("../../docs/resume.md")
	require.NoError(t, err)
	source, err := os.ReadFile("resume_test.go")
	require.NoError(t, err)
	blocks := strings.Split(string(doc), "```go\n")[1:]
	require.Len(t, blocks, 2)
	for _, b := range blocks {
		text, _, _ := strings.Cut(b, "```")
		require.Contains(t, string(source), strings.TrimSpace(text))
	}
}
