package measure

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/interpreter"
	"github.com/weft-project/weft/kernels/gpu"
)

// need is what Explain says that a function needs beside its inputs, in bytes.
type need struct{ forward, saved, backward float64 }

func needOf(t *testing.T, text string) need {
	t.Helper()
	units := map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	bytes := func(m []string) float64 {
		n, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		return n * units[m[2]]
	}
	runs := regexp.MustCompile(`memory of a run: at most (\S+) (\w+) beside`).FindAllStringSubmatch(text, -1)
	require.Len(t, runs, 2, text)
	n := need{forward: bytes(runs[0]), backward: bytes(runs[1])}
	if saved := regexp.MustCompile(`(\S+) (\w+) beside the inputs`).FindStringSubmatch(strings.Split(text, "saved for")[1]); saved != nil {
		n.saved = bytes(saved)
	}
	return n
}

// TestAStepOfGPT2SmallTakesLessMemoryThanPyTorchs adds up what Explain says: what is held while
// each program runs is what the others have left, and what that needs. PyTorch's figures are
// measured, on an H200 (bench/results/2026-11-27-gpu).
func TestAStepOfGPT2SmallTakesLessMemoryThanPyTorchs(t *testing.T) {
	const eager, compiled = 16.0, 11.4 // GiB
	dev, err := gpu.Config{Precision: gpu.BF16}.On(interpreter.Open(), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	s := gptSize{batch: 16, length: 1024, vocab: 50257, width: 768, heads: 12, layers: 12}
	rows := s.batch * s.length
	some := func(d device.Dtype, shape ...int) *autodiff.Tensor {
		return autodiff.To(autodiff.Zeros(d, shape...), dev)
	}
	params := 0.0
	param := func(shape ...int) *autodiff.Tensor {
		params += 4 * float64(device.Shape(shape).Elems())
		return some(device.Float32, shape...).RequireGrad()
	}
	explained := func(f *autodiff.Func, in ...*autodiff.Tensor) (need, string) {
		var text strings.Builder
		require.NoError(t, f.Explain(&text, in...))
		return needOf(t, text.String()), text.String()
	}
	embed, block, head := gptParts(s)
	tokens, places, ids := param(s.vocab, s.width), param(s.length, s.width), some(device.Int64, s.batch, s.length)
	e, _ := explained(embed, tokens, places, ids)
	x := some(device.Float32, s.batch, s.length, s.width).RequireGrad()
	h, text := explained(head, x, param(s.width), param(s.width), tokens, some(device.Int64, rows))
	outside := params // of the blocks
	norm := func() tensors { return tensors{param(s.width), param(s.width)} }
	linear := func(in, out int) tensors { return tensors{param(in, out), param(out)} }
	in := tensors{x}
	for _, p := range []tensors{norm(), linear(s.width, 3*s.width), linear(s.width, s.width), norm(), linear(s.width, 4*s.width), linear(4*s.width, s.width)} {
		in = append(in, p...)
	}
	b, _ := explained(block, in...)
	for _, m := range regexp.MustCompile(`(\w+)\((\d+), (50257|50264)\)`).FindAllStringSubmatch(text, -1) {
		many, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		require.Less(t, many, rows/4, "logits are whole:\n%s", text)
	}

	stream := 4 * float64(rows*s.width)
	layers, inBlock := float64(s.layers), params-outside
	all := outside + layers*inBlock
	held := 3*all + e.saved + stream // parameters and their two moments; the first block's input
	peak := held + e.forward
	for range s.layers {
		peak = max(peak, held+b.forward)
		held += b.saved + stream
	}
	peak = max(peak, held+h.forward, held+h.saved+h.backward)
	held += outside + stream // gradients; what is pulled back
	for range s.layers {
		peak = max(peak, held+b.backward)
		held += inBlock - b.saved - stream
	}
	peak = max(peak, held+e.backward) / (1 << 30)
	t.Logf("embedding %+v, block %+v, head %+v", e, b, h)
	t.Logf("%.2f GiB: %.2f of PyTorch's eager step, %.2f of its compiled one", peak, peak/eager, peak/compiled)
	require.Less(t, peak, 7.0, "and with whole logits 9.4")
}
