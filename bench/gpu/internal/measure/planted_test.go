//go:build !race

package measure

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// unmasked is a GPU whose attention looks at what comes later, too, in its forward and its
// backward.
type unmasked struct {
	cuda.Driver
	of   gptSize
	done *int // launches that it changed
}

type unmaskedStream struct {
	cuda.Stream
	of *unmasked
}

func (d *unmasked) Stream() (cuda.Stream, error) {
	s, err := d.Driver.Stream()
	return &unmaskedStream{s, d}, err
}

// Run clears the flag that says so, which comes behind the extents: common.cuh's Heads.
func (s *unmaskedStream) Run(l *cuda.List) error {
	args, of := slices.Clone(l.Args), s.of.of
	for _, x := range l.Launches {
		if !strings.HasPrefix(x.Func.Name(), "attention") {
			continue
		}
		var heads []byte
		for _, n := range []int{of.length, of.length, of.width / of.heads, of.heads, 1, 1} {
			heads = binary.LittleEndian.AppendUint32(heads, uint32(n))
		}
		if at := bytes.Index(args[x.Off:x.Off+x.Len], heads); at >= 0 {
			args[x.Off+at+len(heads)-4] = 0
			*s.of.done++
		}
	}
	return s.Stream.Run(&cuda.List{Launches: l.Launches, Args: args})
}

// withTurnedGradient has a layer's weight gradient be its transpose: the value is the weight's, the
// gradient goes to where the transpose's would.
func withTurnedGradient(s mlpSize) model {
	m := newLarge(s)
	right := m.loss
	m.loss = func(p, in tensors) *autodiff.Tensor {
		p = slices.Clone(p)
		w := p[2]
		turned := autodiff.Transpose(w)
		p[2] = autodiff.Add(autodiff.Sub(w.Detach(), turned.Detach()), turned)
		return right(p, in)
	}
	return m
}

// withoutBias has a layer's product forget its bias, whose gradient is as ever.
func withoutBias(s mlpSize) model {
	m := newLarge(s)
	right := m.loss
	m.loss = func(p, in tensors) *autodiff.Tensor {
		p = slices.Clone(p)
		p[3] = autodiff.Sub(p[3], p[3].Detach())
		return right(p, in)
	}
	return m
}

// Each of these faults passes for right by its losses, as they were compared when there was nothing
// else.
func TestAFaultThatLossesDoNotShowIsFoundByGradients(t *testing.T) {
	changed := 0
	as := func(d cuda.Driver) cuda.Driver { return d }
	for name, f := range map[string]struct {
		right, planted model
		driver         func(cuda.Driver) cuda.Driver
		said           []string
		least          int // gradients that it makes wrong
	}{
		"attention ignores its mask": {
			newGPT(tinyCheck.gpt), newGPT(tinyCheck.gpt), func(d cuda.Driver) cuda.Driver { return &unmasked{d, tinyCheck.gpt, &changed} },
			[]string{"block 1 query-key-value weight by", " more"}, 15,
		},
		"a transposed weight gradient": {newLarge(tinyCheck.large), withTurnedGradient(tinyCheck.large), as, []string{": layer 2 weight by 1."}, 1},
		"a product without its bias":   {newLarge(tinyCheck.large), withoutBias(tinyCheck.large), as, []string{"layer 1 weight by", "layer 4 weight by"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			right, err := f.right.right()
			require.NoError(t, err)
			dev, err := gpu.Config{Precision: gpu.BF16}.On(f.driver(ptxtest.New(ptx.Config{})), device.CUDA(0))
			require.NoError(t, err)
			var l checked
			err = l.compare(f.planted, dev, gpu.BF16, right)
			t.Log(err)
			for _, said := range f.said {
				require.ErrorContains(t, err, said)
			}
			require.NotContains(t, err.Error(), "training:")
			wrong := 0
			for _, by := range l.Gradients {
				if by > f.right.allowed(gpu.BF16) {
					wrong++
				}
			}
			require.GreaterOrEqual(t, wrong, f.least)
			require.NoError(t, dev.Close())
		})
	}
	require.Positive(t, changed)
}

func TestAGradientThatIsNoNumberIsWrong(t *testing.T) {
	want := gradients{loss: 1, of: [][]float64{{1, 2}, {3}}}
	names := []string{"weight", "bias"}
	require.NoError(t, new(checked).gradients(names, want, want, 0))
	err := new(checked).gradients(names, gradients{loss: 1, of: [][]float64{{1, math.NaN()}, {3}}}, want, 0.1)
	require.ErrorContains(t, err, "weight by 1.8e+308")
	require.NotContains(t, err.Error(), "bias")
	err = new(checked).gradients(names, gradients{loss: math.Inf(1), of: want.of}, want, 0.1)
	require.ErrorContains(t, err, "the loss is +Inf; in float64 on the CPU it is 1")
}
