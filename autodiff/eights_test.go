package autodiff

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// eights is a GPU whose products of so many multiplications are of factors in e4m3.
func eights(t *testing.T, from int) device.Device {
	dev, err := gpu.Config{Precision: gpu.FP8, FP8From: from}.On(ptxtest.NewLibrary(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// apart is how long a difference is, as a share of what is right.
func apart(t *testing.T, want, got *Tensor) float64 {
	t.Helper()
	w, err := Values[float32](want)
	require.NoError(t, err)
	g, err := Values[float32](got)
	require.NoError(t, err)
	require.Len(t, g, len(w))
	var off, size float64
	for k := range w {
		off, size = off+math.Pow(float64(g[k]-w[k]), 2), size+math.Pow(float64(w[k]), 2)
	}
	return math.Sqrt(off / size)
}

// A head's logits have longer rows, in multiples of 16, and its losses pieces of 16 rows, so that
// all of its products can be of factors in e4m3. A number is rounded to that by at most a 16th.
func TestAHeadOfAnyNumberOfClassesIsInE4M3AsAWholeAndInPieces(t *testing.T) {
	const width = 32
	head := func(bias, tied bool, p expr.Pieces) *Func {
		f := Define("head", func(g *Graph, x, w, b, next node) node {
			y := g.MatMulT(x, w, false, tied)
			if bias {
				y = g.Add(y, b)
			}
			return g.CrossEntropy(y, next)
		})
		f.pieces = p
		return f
	}
	for k, c := range []struct {
		rows, classes, most, padded int
		whole                       bool
		lacks                       string // of why products are bfloat16
	}{
		{64, 512, 32, 512, false, ""}, {64, 513, 32, 528, false, ""}, {64, 520, 48, 528, false, ""}, {96, 527, 64, 528, false, ""},
		{64, 529, 1 << 20, 544, true, ""}, {64, 528, 1 << 20, 528, true, ""}, {80, 513, 32, 528, false, ""},
		{72, 513, 48, 528, false, "no multiples of 16"}, // the last piece
		{32, 513, 32, 520, true, "small"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r := rng(uint64(k))
			bias, tied := k%2 == 0, k%3 == 0
			weight := []int{width, c.classes}
			if tied {
				weight = []int{c.classes, width}
			}
			next := make([]int64, c.rows)
			for k := range next {
				next[k] = r.Int64N(int64(c.classes))
			}
			in := []*Tensor{drawnTensor(r, device.Float32, c.rows, width), drawnTensor(r, device.Float32, weight...), drawnTensor(r, device.Float32, c.classes), New(next)}
			for _, x := range in[:3] {
				x.RequireGrad()
			}
			from := 1 // multiplications
			if c.lacks == "small" {
				from = 1 << 20
			}
			dev := eights(t, from)
			there := movedTo(dev, in)
			f := head(bias, tied, expr.Pieces{Bytes: 1, Rows: c.most})
			var text strings.Builder
			require.NoError(t, f.Explain(&text, there...))
			require.Equal(t, !c.whole, strings.Contains(text.String(), "from row"), text.String())
			require.Contains(t, text.String(), fmt.Sprintf(", %d)", c.padded), text.String())
			for _, odd := range regexp.MustCompile("in bfloat16, as (.*)").FindAllString(text.String(), -1) {
				require.NotEmpty(t, c.lacks, odd)
				require.Contains(t, odd, c.lacks)
			}
			require.Equal(t, c.lacks != "", strings.Contains(text.String(), "in bfloat16"), text.String())
			y, z := head(bias, tied, expr.Pieces{Bytes: 1 << 40}).Call(in...), f.Call(there...)
			want, err := y.Item()
			require.NoError(t, err)
			got, err := z.Item()
			require.NoError(t, err)
			require.InEpsilon(t, want, got, 0.03)
			wants, err := Backward(y)
			require.NoError(t, err)
			gots, err := Backward(z)
			require.NoError(t, err)
			for k, x := range in[:3] {
				if w := wants.Of(x); w != nil {
					by := apart(t, w, gots.Of(there[k]))
					require.LessOrEqual(t, by, 0.12, "input %d", k)
				} else {
					require.Nil(t, gots.Of(there[k]))
				}
			}
		})
	}
}
