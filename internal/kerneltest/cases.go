package kerneltest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Families are the names that [Case] knows, one per kind of instruction.
func Families() []string {
	return []string{
		"Unary", "Binary", "MatMul", "Reduce", "MaxGrad", "BroadcastTo", "Reshape", "Transpose", "Slice", "Pad",
		"Concat", "Gather", "ScatterAdd", "Softmax", "SoftmaxGrad", "CrossEntropy", "CrossEntropyGrad", "Normalize",
		"NormalizeGrad", "LayerNorm", "LayerNormGrad", "Cast", "Fill", "Update", "UpdateMany", "SumSquares", "NonFinite", "OnRows", "Map", "Viewed",
		"Im2col", "Col2im", "Conv2d", "Conv2dGradX", "Conv2dGradW", "MaxPool2d", "MaxPool2dGrad", "AvgPool2d", "AvgPool2dGrad",
		"Random", "Dropout", "MatMulThen", "ViewedMatMul", "ViewedMatMulThen", "ViewedMove",
		"Attention", "AttentionGrad", "ViewedAttention",
	}
}

// gen draws random operands.
type gen struct {
	*rand.Rand
	sized *sized // nil where all sizes are random
}

func (g gen) chance(p float64) bool { return g.Float64() < p }

// extent is often 1, seldom 0, and now and then beyond a vector or a tile.
func (g gen) extent() int {
	if n, ok := g.sized.takeExtent(); ok {
		return n
	}
	switch p := g.Float64(); {
	case p < 0.04:
		return 0
	case p < 0.25:
		return 1
	case p < 0.93:
		return 2 + g.IntN(5)
	}
	return 7 + g.IntN(40)
}

// shape has at least min axes, and few enough elements for a naive oracle.
func (g gen) shape(min int) device.Shape {
	if s, ok := g.sized.takeShape(g, min); ok {
		return s
	}
	for {
		s := make(device.Shape, min+g.IntN(4))
		for k := range s {
			s[k] = g.extent()
		}
		if s.Elems() <= 1500 {
			return s
		}
	}
}

func (g gen) float() device.Dtype { return device.Float32 + device.Dtype(g.IntN(2)) }
func (g gen) int() device.Dtype   { return device.Int32 + device.Dtype(g.IntN(2)) }
func (g gen) dtype() device.Dtype { return device.Float32 + device.Dtype(g.IntN(4)) }

// tensor draws values of a few units; in one case of three only small integers, so that maxima tie.
func (g gen) tensor(d device.Dtype, s device.Shape) Tensor {
	whole := g.chance(1./3) || g.sized != nil && g.sized.exact()
	return g.filled(d, s, func() float64 {
		if whole {
			return float64(g.IntN(5) - 2)
		}
		return g.NormFloat64() * 2
	})
}

func (g gen) filled(d device.Dtype, s device.Shape, fn func() float64) Tensor {
	t := Tensor{kernels.Type{Dtype: d, Shape: s}, make([]float64, s.Elems())}
	for k := range t.V {
		t.V[k] = round(d, fn())
	}
	return t
}

// ids draws from [0, n); with n = 0 there is no good id.
func (g gen) ids(s device.Shape, n int) Tensor {
	return g.filled(g.int(), s, func() float64 { return float64(g.IntN(max(n, 1))) })
}

// thinned is a shape that broadcasts to s.
func (g gen) thinned(s device.Shape) device.Shape {
	t := s.Clone()[g.IntN(len(s)/2+1):]
	for k := range t {
		if g.chance(0.3) {
			t[k] = 1
		}
	}
	return t
}

// pair is two shapes that broadcast with each other, often equal.
func (g gen) pair() (a, b device.Shape) {
	s := g.shape(0)
	switch g.IntN(4) {
	case 0:
		return s, s
	case 1:
		return s, g.thinned(s)
	case 2:
		return g.thinned(s), s
	}
	return g.thinned(s), g.thinned(s)
}

// axes are some of a shape's axes, in any order; nil for all.
func (g gen) axes(rank int) []int {
	if g.chance(0.25) {
		return nil
	}
	return g.Perm(rank)[:g.IntN(rank+1)]
}

// Case draws an instruction of a family and operands that its Infer accepts.
func Case(r *rand.Rand, family string) (kernels.Instr, []Tensor) { return gen{Rand: r}.draw(family) }

// draw is Case.
func (g gen) draw(family string) (kernels.Instr, []Tensor) {
	d := g.float()
	switch family {
	case "Unary":
		i := kernels.Unary{Fn: kernels.UnaryFn(g.IntN(kernels.UnaryFns)), C: g.NormFloat64()}
		x := g.tensor(d, g.shape(0))
		if i.Fn == kernels.Log || i.Fn == kernels.Sqrt {
			for k, v := range x.V {
				x.V[k] = max(v, -v)
			}
		}
		return i, []Tensor{x}
	case "Binary":
		a, b := g.pair()
		return kernels.Binary{Fn: kernels.BinaryFn(g.IntN(kernels.BinaryFns))}, []Tensor{g.tensor(d, a), g.tensor(d, b)}
	case "MatMul":
		return g.matMul(d)
	case "MatMulThen":
		return g.matMulThen(d)
	case "ViewedMatMul":
		return g.viewed(g.matMul(d))
	case "ViewedMove":
		moves := []string{"BroadcastTo", "Reshape", "Transpose", "Slice", "Pad", "Concat"}
		return g.viewed(g.move(moves[g.IntN(len(moves))]))
	case "ViewedMatMulThen":
		return g.viewed(g.matMulThen(d))
	case "Attention", "AttentionGrad":
		return g.attention(d, family != "Attention")
	case "ViewedAttention":
		return g.viewedAttention(d)
	case "Cast":
		return kernels.Cast{To: g.dtype()}, []Tensor{g.tensor(g.dtype(), g.shape(0))}
	case "NonFinite":
		return kernels.NonFinite{}, []Tensor{g.spoiled(g.tensor(d, g.shape(0)))}
	case "Fill":
		return kernels.Fill{Type: kernels.Type{Dtype: g.dtype(), Shape: g.shape(0)}, C: g.NormFloat64() * 4}, nil
	case "Reduce", "MaxGrad":
		return g.reduction(family, d)
	case "BroadcastTo", "Reshape", "Transpose", "Slice", "Pad", "Concat":
		return g.move(family)
	case "Update":
		all := Updates()
		return g.update(all[g.IntN(len(all))], d)
	case "UpdateMany":
		all := Updates()
		u, in := g.update(all[g.IntN(len(all))], d)
		for range g.IntN(4) {
			s := g.shape(0)
			in = append(append(in, g.tensor(d, s), g.tensor(d, s)), g.state(u, d, s)...)
		}
		return kernels.UpdateMany{Of: u}, in
	case "SumSquares":
		return kernels.SumSquares{}, []Tensor{g.tensor(d, g.shape(0)), g.filled(device.Float64, nil, g.Float64)}
	case "OnRows":
		return g.onRows(d)
	case "Map":
		return g.mapCase(d)
	case "Viewed":
		i, in := g.mapCase(d)
		return g.viewed(i, in)
	case "Random":
		return kernels.Random{Fn: kernels.RandomFn(g.IntN(2)), Type: kernels.Type{Dtype: d, Shape: g.shape(0)}, P: g.Float64()}, []Tensor{g.key()}
	case "Dropout":
		return kernels.Dropout{P: g.Float64()}, []Tensor{g.tensor(d, g.shape(0)), g.key()}
	case "Im2col", "Col2im", "Conv2d", "Conv2dGradX", "Conv2dGradW", "MaxPool2d", "MaxPool2dGrad", "AvgPool2d", "AvgPool2dGrad":
		return g.images(family, d)
	}
	return g.network(family, d)
}

// spoiled has NaN and infinities among its elements, in three cases of four.
func (g gen) spoiled(x Tensor) Tensor {
	bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.NaN()}
	for range min(g.IntN(4), len(x.V)) {
		x.V[g.IntN(len(x.V))] = bad[g.IntN(len(bad))]
	}
	return x
}

func (g gen) matMul(d device.Dtype) (kernels.Instr, []Tensor) {
	if g.sized != nil {
		return g.sizedMatMul(d)
	}
	a, b := g.pair()
	a, b = a[:min(len(a), 2)], b[:min(len(b), 2)]
	if !(len(a) == len(b) || len(a) == 0 || len(b) == 0) || len(a) == 2 && len(b) == 2 && g.chance(0.5) {
		b = nil
	}
	for k := range min(len(a), len(b)) { // cutting may have parted what fitted
		if a[k] != b[k] && a[k] != 1 && b[k] != 1 {
			b = b.Clone()
			b[k] = a[k]
		}
	}
	i := kernels.MatMul{TransA: g.chance(0.5), TransB: g.chance(0.5)}
	m, n, k := g.extent(), g.extent(), g.extent()
	am, bm := device.Shape{m, k}, device.Shape{k, n}
	if i.TransA {
		slices.Reverse(am)
	}
	if i.TransB {
		slices.Reverse(bm)
	}
	return i, []Tensor{g.tensor(d, slices.Concat(a, am)), g.tensor(d, slices.Concat(b, bm))}
}

// matMulThen draws an expression of a product and of up to three more operands, which broadcast to
// it.
func (g gen) matMulThen(d device.Dtype) (kernels.Instr, []Tensor) {
	of, in := g.matMul(d)
	c, err := of.Infer(types(in))
	if err != nil {
		panic(err)
	}
	s := c[0].Shape
	for range g.IntN(4) {
		in = append(in, g.tensor(d, g.thinned(s)))
	}
	return kernels.MatMulThen{MatMul: of.(kernels.MatMul), Then: g.expression(s, len(in)-1)}, in
}

func (g gen) reduction(family string, d device.Dtype) (kernels.Instr, []Tensor) {
	s := g.shape(0)
	i := kernels.Reduce{Fn: kernels.ReduceFn(g.IntN(3)), Axes: g.axes(len(s)), Keep: g.chance(0.5)}
	if s.Elems() == 0 {
		i.Fn = kernels.Sum
	}
	x := g.tensor(d, s)
	if family == "Reduce" {
		return i, []Tensor{x}
	}
	if s.Elems() == 0 {
		x = g.tensor(d, device.Shape{3, 2})
		i.Axes = []int{0}
	}
	i.Fn = kernels.Max
	out, err := i.Infer([]kernels.Type{x.Type})
	if err != nil {
		panic(err)
	}
	y, err := Oracle(i, []Tensor{x}, out)
	if err != nil {
		panic(err)
	}
	return kernels.MaxGrad{Axes: i.Axes, Keep: i.Keep}, []Tensor{x, y[0], g.tensor(d, out[0].Shape)}
}

func (g gen) move(family string) (kernels.Instr, []Tensor) {
	d, s := g.dtype(), g.shape(1)
	axis := g.IntN(len(s))
	x := g.tensor(d, s)
	switch family {
	case "BroadcastTo":
		return kernels.BroadcastTo{Shape: s}, []Tensor{g.tensor(d, g.thinned(s))}
	case "Reshape":
		to := s.Clone()
		g.Shuffle(len(to), func(a, b int) { to[a], to[b] = to[b], to[a] })
		return kernels.Reshape{Shape: append(to, 1)}, []Tensor{x}
	case "Transpose":
		return kernels.Transpose{Perm: g.Perm(len(s))}, []Tensor{x}
	case "Slice":
		from := g.IntN(s[axis] + 1)
		return kernels.Slice{Axis: axis, Start: from, Stop: from + g.IntN(s[axis]-from+1)}, []Tensor{x}
	case "Pad":
		return kernels.Pad{Axis: axis, Before: g.IntN(4), After: g.IntN(4)}, []Tensor{x}
	}
	in := []Tensor{x}
	for range g.IntN(3) {
		t := s.Clone()
		t[axis] = g.extent()
		in = append(in, g.tensor(d, t))
	}
	return kernels.Concat{Axis: axis}, in
}

func (g gen) network(family string, d device.Dtype) (kernels.Instr, []Tensor) {
	s := g.shape(1)
	axis, eps := g.IntN(len(s)), 1e-5
	x := g.tensor(d, s)
	switch family {
	case "Gather":
		return kernels.Gather{}, []Tensor{x, g.ids(g.thinned(device.Shape{3, 2, 2}), s[0])}
	case "ScatterAdd":
		i := kernels.ScatterAdd{Rows: g.extent()}
		return i, []Tensor{g.ids(s[:axis], i.Rows), x}
	case "Softmax":
		return kernels.Softmax{Axis: axis, Log: g.chance(0.5)}, []Tensor{x}
	case "SoftmaxGrad":
		return kernels.SoftmaxGrad{Axis: axis, Log: g.chance(0.5)}, []Tensor{x, g.tensor(d, s)}
	case "Normalize":
		return kernels.Normalize{Eps: eps}, []Tensor{x}
	case "NormalizeGrad":
		return kernels.NormalizeGrad{Eps: eps}, []Tensor{x, g.tensor(d, s)}
	case "LayerNorm":
		return kernels.LayerNorm{Eps: eps}, []Tensor{x, g.tensor(d, s[len(s)-1:]), g.tensor(d, s[len(s)-1:])}
	case "LayerNormGrad":
		return kernels.LayerNormGrad{Eps: eps}, []Tensor{x, g.tensor(d, s[len(s)-1:]), g.tensor(d, s)}
	}
	n, c, classes := 1+g.IntN(9), 1+g.IntN(12), 0
	width := c
	if g.chance(0.5) { // rows lie apart
		width, classes = c+g.IntN(9), c
	}
	i, labels := kernels.CrossEntropy{Classes: classes}, n
	if g.chance(0.3) { // they are some of the rows
		i.First = g.IntN(5)
		labels += i.First + g.IntN(5)
		i.Rows = labels
	}
	in := []Tensor{g.tensor(d, device.Shape{n, width}), g.ids(device.Shape{labels}, c)}
	if family == "CrossEntropy" {
		return i, in
	}
	return kernels.CrossEntropyGrad(i), append(in, g.tensor(d, device.Shape{}))
}

// Updates is every rule with its options one by one, and some together.
func Updates() []kernels.Update {
	adam := kernels.Update{Rule: kernels.Adam, LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
	amsgrad, adamW := adam, adam
	amsgrad.AMSGrad, adamW.Rule = true, kernels.AdamW
	rms := kernels.Update{Rule: kernels.RMSprop, LR: 0.01, Beta2: 0.9, Eps: 1e-8}
	centered, moving, both := rms, rms, rms
	centered.Centered, moving.Momentum, both.Centered, both.Momentum = true, 0.9, true, 0.9
	all := []kernels.Update{
		{Rule: kernels.SGD, LR: 0.1}, {Rule: kernels.SGD, LR: 0.1, Momentum: 0.9}, {Rule: kernels.SGD, LR: 0.1, Momentum: 0.9, Nesterov: true},
		{Rule: kernels.SGD, LR: 0.1, Momentum: 0.9, Dampening: 0.3}, adam, amsgrad, adamW,
		{Rule: kernels.Adagrad, LR: 0.1, LRDecay: 0.1, Initial: 0.1, Eps: 1e-10}, {Rule: kernels.Adadelta, LR: 1, Beta2: 0.9, Eps: 1e-6},
		rms, centered, moving, both, {Rule: kernels.Rprop, LR: 0.1, EtaMinus: 0.5, EtaPlus: 1.2, MinStep: 0.2, MaxStep: 0.7},
		{Rule: kernels.Adamax, LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8},
	}
	for k := range all {
		all[k].Step = 1
	}
	return all
}

// update draws what a rule's options leave open, and operands.
func (g gen) update(i kernels.Update, d device.Dtype) (kernels.Update, []Tensor) {
	i.WeightDecay, i.Scale, i.Step = float64(g.IntN(2))*0.1, []float64{0, 1, -1, 0.3}[g.IntN(4)], 1+g.IntN(5)
	i.EpsFirst, i.Missed = g.chance(0.3), g.chance(0.5)
	s := g.shape(0)
	return i, append([]Tensor{g.tensor(d, s), g.tensor(d, s)}, g.state(i, d, s)...)
}

// state draws state that a rule may have come to: a mean's square is less than the mean square.
func (g gen) state(i kernels.Update, d device.Dtype, s device.Shape) (state []Tensor) {
	for _, slot := range i.Slots() {
		fn := func() float64 { return 1 + g.Float64() }
		switch slot.Name {
		case "momentum_buffer", "exp_avg", "grad_avg", "prev":
			fn = func() float64 { return 1.8*g.Float64() - 0.9 }
		}
		state = append(state, g.filled(d, s, fn))
	}
	if i.Missed {
		state = append(state, New(device.Int64, device.Shape{}, float64(g.IntN(i.Step))))
	}
	return state
}

// onRows draws an update of some rows, some of them more than once.
func (g gen) onRows(d device.Dtype) (kernels.Instr, []Tensor) {
	v, row := g.extent(), g.shape(0)
	row = row[:min(len(row), 2)]
	n := min(v, 1) * g.extent() // no row of no rows
	table := slices.Concat(device.Shape{v}, row)
	in := []Tensor{g.tensor(d, table), g.tensor(d, slices.Concat(device.Shape{n}, row))}
	of := kernels.Instr(kernels.Binary{Fn: kernels.Add})
	sum := false
	if all := Updates(); g.chance(0.7) {
		u, _ := g.update(all[g.IntN(len(all))], d)
		of, in, sum = u, append(in, g.state(u, d, table)...), g.chance(0.5)
	}
	return kernels.OnRows{Of: of, Sum: sum}, append(in, g.ids(device.Shape{n}, v))
}
