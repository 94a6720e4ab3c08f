package autodiff

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

// lossCase is a loss of a product of x (rows in one axis or two, 5) and w, and what else a model
// may do.
type lossCase struct {
	rows, groups, classes                      int
	bias, turned, transposed, tied, mixed, out bool
}

func drawLoss(r *rand.Rand, rows int) lossCase {
	some := func(n int) bool { return r.IntN(n) == 0 }
	c := lossCase{rows: rows, classes: 1 + r.IntN(9), bias: some(2), turned: some(2), tied: some(4), mixed: some(3), out: some(6)}
	if c.transposed = some(4); rows%3 == 0 && some(2) {
		c.groups = 3
	}
	return c
}

const lossWidth = 5

// whole and pieces are one function, that is compiled with losses as they are and in pieces.
func (c lossCase) functions(p expr.Pieces) (whole, pieces *Func) {
	define := func(p expr.Pieces) *Func {
		f := Define("loss", func(g *Graph, x, w, b, next node) node {
			flat := x
			if c.tied { // w is an embedding's, too
				rows := w
				if !c.turned {
					rows = g.Transpose(w)
				}
				flat = g.Add(g.Reshape(x, c.rows, lossWidth), g.Embedding(rows, next))
				if c.groups > 0 {
					flat = g.Reshape(flat, c.groups, c.rows/c.groups, lossWidth)
				}
			}
			turned := c.turned
			if c.transposed {
				w, turned = g.Transpose(w), !turned
			}
			y := g.MatMulT(flat, w, false, turned)
			if c.bias {
				y = g.Add(y, b)
			}
			y = g.Reshape(y, c.rows, c.classes)
			loss := g.CrossEntropy(y, next)
			if c.mixed {
				loss = g.Add(g.Mul(loss, loss), g.Mean(x))
			}
			if c.out { // somebody else reads the logits
				loss = g.Add(loss, g.Mean(g.Tanh(y)))
			}
			return loss
		})
		f.pieces = p
		return f
	}
	return define(expr.Pieces{Bytes: 1 << 40}), define(p)
}

func (c lossCase) inputs(r *rand.Rand, d device.Dtype) []*Tensor {
	shape := []int{c.rows, lossWidth}
	if c.groups > 0 {
		shape = []int{c.groups, c.rows / c.groups, lossWidth}
	}
	weight := []int{lossWidth, c.classes}
	if c.turned {
		weight = []int{c.classes, lossWidth}
	}
	in := []*Tensor{drawnTensor(r, d, shape...), drawnTensor(r, d, weight...), drawnTensor(r, d, c.classes)}
	next := make([]int32, c.rows)
	for k := range next {
		next[k] = int32(r.IntN(c.classes))
	}
	return append(in, New(next))
}

func drawnTensor(r *rand.Rand, d device.Dtype, shape ...int) *Tensor {
	v := make([]float64, device.Shape(shape).Elems())
	for k := range v {
		v[k] = r.NormFloat64()
	}
	return Cast(New(v, shape...), d).Detach()
}

// requireOneLoss compares a function's loss and gradients with another's.
func requireOneLoss(t *testing.T, want, got *Func, in, there []*Tensor, tol float64) {
	t.Helper()
	y, z := want.Call(in...), got.Call(there...)
	loss, err := y.Item()
	require.NoError(t, err)
	same, err := z.Item()
	require.NoError(t, err)
	require.InDelta(t, loss, same, tol*(1+max(loss, -loss)))
	if !y.RequiresGrad() {
		require.False(t, z.RequiresGrad())
		return
	}
	wants, err := Backward(y)
	require.NoError(t, err)
	gots, err := Backward(z)
	require.NoError(t, err)
	for k, x := range in {
		w, g := wants.Of(x), gots.Of(there[k])
		require.Equal(t, w == nil, g == nil, "input %d", k)
		if w != nil {
			requireNear(t, Cast(w, device.Float32), Cast(g, device.Float32), tol)
		}
	}
}

func inPieces(t *testing.T, f *Func, in []*Tensor) bool {
	t.Helper()
	var text strings.Builder
	require.NoError(t, f.Explain(&text, in...))
	return strings.Contains(text.String(), "from row")
}

func TestALossInPiecesIsThatOfWholeLogitsOnBothSidesOfTheThresholds(t *testing.T) {
	sizes := thresholds.Around(thresholds.Pieces)
	for seed := range soak.Cases(150) {
		at, side := sizes.Next()
		r := rng(uint64(seed))
		p, d := expr.Pieces{Bytes: 1, Rows: 1 + r.IntN(8)}, []device.Dtype{device.Float32, device.Float64}[r.IntN(2)]
		c := drawLoss(r, max(p.Rows+side, 1))
		expected := side > 0
		if at.Unit == thresholds.Bytes {
			c = drawLoss(r, p.Rows*(1+r.IntN(3))+1+r.IntN(p.Rows))
			p.Bytes = c.rows*c.classes*d.Size() - side
			expected = side >= 0
		}
		whole, pieces := c.functions(p)
		in := c.inputs(r, d)
		for _, x := range in[:3] {
			if r.IntN(4) > 0 {
				x.RequireGrad()
			}
		}
		name := fmt.Sprintf("seed %d: %+v, %+v, %v", seed, c, p, d)
		require.False(t, inPieces(t, whole, in), name)
		require.Equal(t, expected && !c.out, inPieces(t, pieces, in), name)
		tol := 1e-5
		if d == device.Float64 {
			tol = 1e-7 // what is compared is float32
		}
		requireOneLoss(t, whole, pieces, in, in, tol)
	}
	require.Empty(t, sizes.Missing())
}

// Explain compiles, and computes nothing.
func TestLogitsOf64MiBAndMoreRowsThanAPieceHasAreInPiecesUnlessAsked(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	for _, c := range []struct {
		dev           device.Device
		rows, classes int
		dtype         device.Dtype
		pieces        int
	}{
		{device.Host(), 4096, 4095, device.Float32, 0},
		{device.Host(), 4096, 4096, device.Float32, 8},
		{device.Host(), 4097, 4096, device.Float32, 9},
		{device.Host(), 4096, 2047, device.Float64, 0},
		{device.Host(), 4096, 2048, device.Float64, 8},
		{device.Host(), 512, 1 << 16, device.Float32, 0},
		{device.Host(), 513, 1 << 16, device.Float32, 2},
		{dev, 4096, 4096, device.Float32, 2},
		{dev, 2048, 1 << 16, device.Float32, 0},
		{dev, 2049, 1 << 16, device.Float32, 2},
	} {
		f := Define("head", func(g *Graph, x, w, next node) node { return g.CrossEntropy(g.MatMul(x, w), next) })
		in := movedTo(c.dev, []*Tensor{Zeros(c.dtype, c.rows, 1), Zeros(c.dtype, 1, c.classes), Zeros(device.Int32, c.rows)})
		var text strings.Builder
		require.NoError(t, f.Explain(&text, in...))
		require.Equal(t, c.pieces, strings.Count(text.String(), "CrossEntropyGrad(from row"), "%+v", c)
	}
}

func TestOnAGPUALossInPiecesIsThatOfWholeLogits(t *testing.T) {
	for _, precision := range []gpu.Precision{gpu.Float32, gpu.TF32, gpu.BF16} {
		dev := narrowDevice(t, precision)
		for seed := range soak.Cases(12) {
			r := rng(uint64(seed))
			c := drawLoss(r, 7+r.IntN(9))
			if c.classes = 3 + r.IntN(6); seed%3 == 0 {
				c.classes = 509 + r.IntN(12) // some of these are made longer
			}
			whole, pieces := c.functions(expr.Pieces{Bytes: 1, Rows: 4})
			in := c.inputs(r, device.Float32)
			there := make([]*Tensor, len(in))
			for k, x := range in {
				if there[k] = To(x, dev); k < 3 && r.IntN(4) > 0 {
					x.RequireGrad()
					there[k].RequireGrad()
				}
			}
			require.Equal(t, !c.out, inPieces(t, pieces, there))
			tol := map[gpu.Precision]float64{gpu.Float32: 1e-5, gpu.TF32: 4e-3, gpu.BF16: 3e-2}[precision]
			requireOneLoss(t, whole, pieces, in, there, tol)
		}
	}
}

func TestAnEvaluationOfALossInPiecesMakesTheLossAlone(t *testing.T) {
	c := lossCase{rows: 24, classes: 12, bias: true}
	whole, f := c.functions(expr.Pieces{Bytes: 1, Rows: 4})
	for _, dev := range []device.Device{device.Host(), narrowDevice(t, gpu.BF16)} {
		in := movedTo(dev, c.inputs(rng(1), device.Float32))
		for _, x := range in[:3] {
			x.RequireGrad()
		}
		for range 2 { // with what was compiled before
			y := f.Evaluate(in...)
			require.False(t, y.RequiresGrad())
			var text strings.Builder
			_, p, err := f.find(in, false)
			require.NoError(t, err)
			require.NoError(t, p.fn.Forward.Explain(&text))
			require.Equal(t, 6, strings.Count(text.String(), " CrossEntropy(from row"), text.String())
			require.NotContains(t, text.String(), "CrossEntropyGrad")
			require.Len(t, p.fn.Forward.Types(), 1, "nothing is saved")
			_, err = Backward(y)
			require.ErrorIs(t, err, ErrNoGrad)
			all := f.EvaluateAll(in...)
			require.Len(t, all, 1)
			require.False(t, all[0].RequiresGrad())
			loss, err := y.Item()
			require.NoError(t, err)
			same, err := all[0].Item()
			require.NoError(t, err)
			require.Equal(t, loss, same)
			there, err := f.Call(in...).Item()
			require.NoError(t, err)
			require.InEpsilon(t, there, loss, 1e-6)
			requireOneLoss(t, whole, f, in, in, 3e-2)
		}
	}
	require.ErrorContains(t, Define("two", func(g *Graph, x node) (node, node) { return x, x }).Evaluate(New([]float32{1})).Err(), "use CallAll")
}

func TestATrainingThatEvaluatesNowAndThenCompilesOnceForEach(t *testing.T) {
	drawn := 0
	f := Define("square", func(g *Graph, x node) node { drawn++; return g.Sum(g.Mul(x, x)) })
	x := New([]float32{1, 2, 3}).RequireGrad()
	for range 3 {
		require.True(t, f.Call(x).RequiresGrad())
		require.False(t, f.Evaluate(x).RequiresGrad())
	}
	require.Equal(t, 2, drawn)
}

// What many pieces add up to is not rounded on the way, though all that is added is.
func TestInBFloat16TheGradientsOfAWeightAreAddedUpInFloat32(t *testing.T) {
	c := lossCase{rows: 64, classes: 12}
	_, f := c.functions(expr.Pieces{Bytes: 1, Rows: 2})
	in := movedTo(narrowDevice(t, gpu.BF16), c.inputs(rng(1), device.Float32))
	var text strings.Builder
	require.NoError(t, f.Explain(&text, in...))
	made, _, _ := strings.Cut(text.String(), "\ngiven")
	require.Equal(t, 64, strings.Count(made, "bfloat16(2, 12)"), "pieces of logits, and of their gradients")
	require.Equal(t, 1, strings.Count(made, "bfloat16(5, 12)"), "the weight, which is rounded once")
	require.Equal(t, 1, strings.Count(made, "bfloat16(64, 5)"), "and what it is multiplied with")
	require.Equal(t, 66, strings.Count(made, "bfloat16"))
}

func TestABadLabelInALaterPieceIsNamedByItsRowAmongAll(t *testing.T) {
	c := lossCase{rows: 11, classes: 6}
	_, f := c.functions(expr.Pieces{Bytes: 1, Rows: 4})
	in := c.inputs(rng(1), device.Float32)
	in[3] = New([]int64{0, 1, 2, 3, 4, 5, 0, 1, 2, 6, 4})
	for _, dev := range []device.Device{device.Host(), narrowDevice(t, gpu.BF16)} {
		there := make([]*Tensor, len(in))
		for k, x := range in {
			there[k] = To(x, dev)
		}
		require.True(t, inPieces(t, f, there))
		_, err := f.Call(there...).Item()
		var index *kernels.IndexError
		require.ErrorAs(t, err, &index)
		require.Equal(t, []int64{6, 9, 6}, []int64{index.ID, int64(index.At), int64(index.N)})
	}
}
