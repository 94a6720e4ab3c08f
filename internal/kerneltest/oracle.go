package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Oracle computes an instruction in float64 by its definition, without regard for speed. The
// operands are such that Infer accepts them, with the given results.
func Oracle(i kernels.Instr, in []Tensor, out []kernels.Type) ([]Tensor, error) {
	res, _, err := oracle(i, in, out)
	return res, err
}

// Slack is by how much more than rounding the elements of each result may be off; nothing for a
// result of which no element may.
func Slack(i kernels.Instr, in []Tensor, out []kernels.Type) [][]float64 {
	_, slack, _ := oracle(i, in, out)
	return slack
}

// oracle also gives by how much more than rounding the elements of each result may be off; nil for
// by nothing.
func oracle(i kernels.Instr, in []Tensor, out []kernels.Type) ([]Tensor, [][]float64, error) {
	switch i := i.(type) {
	case kernels.Narrow:
		return narrowed(i, in, out)
	case kernels.Map:
		res, slack := mapped(i, in, nil, out)
		return res, slack, nil
	case kernels.MatMulThen:
		c := product(i, in)
		res, slack := mapped(i.Then, append([]Tensor{c}, in[2:]...), productSlack(c), out)
		return res, slack, nil
	case kernels.Viewed:
		return oracle(i.Of, seenThrough(i.In, in), out)
	}
	res, err := computed(i, in, out)
	slack := make([][]float64, len(res))
	switch i := i.(type) {
	case kernels.NormalizeGrad:
		slack[0] = normGradSlack(in[0], in[1].V, i.Eps)
	case kernels.LayerNormGrad:
		n := len(in[1].V)
		g := make([]float64, len(in[2].V))
		for k, v := range in[2].V {
			g[k] = v * in[1].V[k%n]
		}
		slack[0] = normGradSlack(in[0], g, i.Eps)
	}
	return res, slack, err
}

// computed is Oracle for what is one computation.
func computed(i kernels.Instr, in []Tensor, out []kernels.Type) ([]Tensor, error) {
	one := func(fn func(idx []int) float64) ([]Tensor, error) { return []Tensor{build(out[0], fn)}, nil }
	switch i := i.(type) {
	case kernels.Unary:
		return one(func(idx []int) float64 { return unary(i, in[0].at(idx)) })
	case kernels.Binary:
		return one(func(idx []int) float64 { return binary(i.Fn, in[0].at(idx), in[1].at(idx)) })
	case kernels.MatMul:
		return one(func(idx []int) float64 { return dot(i, in[0], in[1], idx) })
	case kernels.Reduce:
		return one(func(idx []int) float64 { return reduce(i.Fn, group(in[0], i.Axes, i.Keep, idx)) })
	case kernels.MaxGrad:
		return []Tensor{maxGrad(i, in, out[0])}, nil
	case kernels.Cast:
		return one(func(idx []int) float64 { return in[0].at(idx) })
	case kernels.NonFinite:
		return one(func([]int) float64 { return finiteness(in[0].V) })
	case kernels.Fill:
		return one(func([]int) float64 { return i.C })
	case kernels.OnRows:
		return onRows(i, in)
	case kernels.Attention:
		return attention(i, in, out), nil
	case kernels.AttentionGrad:
		return attentionGrad(i, in, out), nil
	case kernels.Update:
		return updateAll(i, in), nil
	case kernels.UpdateMany:
		var all []Tensor
		nin, _ := i.Width()
		for each := range slices.Chunk(in, nin) {
			all = append(all, updateAll(i.Of, each)...)
		}
		return all, nil
	case kernels.SumSquares:
		return one(func([]int) float64 {
			sum := in[1].V[0]
			for _, v := range in[0].V {
				sum += v * v
			}
			return sum
		})
	case kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
		return one(func(idx []int) float64 { return move(i, in, out[0].Shape, idx) })
	}
	if made, ok := images(i, in, out[0]); ok {
		return []Tensor{made}, nil
	}
	return network(i, in, out[0])
}

func unary(i kernels.Unary, x float64) float64 {
	switch i.Fn {
	case kernels.Neg:
		return -x
	case kernels.Exp:
		return math.Exp(x)
	case kernels.Log:
		return math.Log(x)
	case kernels.Sqrt:
		return math.Sqrt(x)
	case kernels.Tanh:
		return math.Tanh(x)
	case kernels.Sigmoid:
		return 1 / (1 + math.Exp(-x))
	case kernels.Relu:
		return max(x, 0)
	case kernels.Gelu:
		if math.IsInf(x, -1) {
			return 0
		}
		return x * (1 + math.Erf(x/math.Sqrt2)) / 2
	case kernels.Scale:
		return x * i.C
	case kernels.Shift:
		return x + i.C
	case kernels.Abs:
		return math.Abs(x)
	case kernels.Ceil:
		return math.Ceil(x)
	case kernels.Floor:
		return math.Floor(x)
	case kernels.Sin:
		return math.Sin(x)
	case kernels.Cos:
		return math.Cos(x)
	case kernels.Log1p:
		return math.Log1p(x)
	case kernels.Expm1:
		return math.Expm1(x)
	case kernels.Softplus:
		if x > 700 { // the exponential overflows
			return x
		}
		return math.Log1p(math.Exp(x))
	case kernels.Softsign:
		if math.IsInf(x, 0) {
			return math.Copysign(1, x)
		}
		return x / (1 + math.Abs(x))
	}
	panic(fmt.Sprint("no oracle for ", i))
}

func binary(fn kernels.BinaryFn, a, b float64) float64 {
	switch fn {
	case kernels.Add:
		return a + b
	case kernels.Sub:
		return a - b
	case kernels.Mul:
		return a * b
	case kernels.Div:
		return a / b
	case kernels.TanhGrad:
		return b * (1 - a*a)
	case kernels.SigmoidGrad:
		return b * a * (1 - a)
	case kernels.ReluGrad:
		if a <= 0 { // not where a is NaN
			return 0
		}
		return b
	case kernels.GeluGrad:
		if math.IsInf(a, 0) {
			return b * (1 + math.Erf(a)) / 2
		}
		return b * ((1+math.Erf(a/math.Sqrt2))/2 + a*math.Exp(-a*a/2)/math.Sqrt(2*math.Pi))
	case kernels.Pow:
		return math.Pow(a, b)
	case kernels.Maximum:
		return max(a, b)
	case kernels.Minimum:
		return min(a, b)
	}
	return compare(fn, a, b)
}

func compare(fn kernels.BinaryFn, a, b float64) float64 {
	is := false
	switch fn {
	case kernels.Less:
		is = a < b
	case kernels.LessEqual:
		is = a <= b
	case kernels.Equal:
		is = a == b
	default:
		panic(fmt.Sprint("no oracle for ", fn))
	}
	if is {
		return 1
	}
	return 0
}

// dot is one element of a matrix product.
//
//go:norace
func dot(i kernels.MatMul, a, b Tensor, idx []int) float64 {
	r, at := len(idx)-2, slices.Clone(idx)
	pick := func(t Tensor, trans bool, row, col int) float64 {
		if trans {
			row, col = col, row
		}
		// An extent of 1 repeats in at; here it only occurs with index 0, so that is harmless.
		at[r], at[r+1] = row, col
		return t.at(at)
	}
	k := a.Shape[len(a.Shape)-1]
	if i.TransA {
		k = a.Shape[len(a.Shape)-2]
	}
	s := 0.0
	for l := range k {
		s += pick(a, i.TransA, idx[r], l) * pick(b, i.TransB, l, idx[r+1])
	}
	return s
}

// resultIndex is where an element of the operand falls in the result of a reduction.
//
//go:norace
func resultIndex(rank int, axes []int, keep bool, idx []int) []int {
	var out []int
	for k := range rank {
		reduced := axes == nil || slices.Contains(axes, k)
		switch {
		case !reduced:
			out = append(out, idx[k])
		case keep:
			out = append(out, 0)
		}
	}
	return out
}

// group collects the elements that a reduction brings together at idx.
//
//go:norace
func group(x Tensor, axes []int, keep bool, idx []int) []float64 {
	at, over := make([]int, len(x.Shape)), x.Shape.Clone() // over is what the reduction goes along: 1 where it keeps the axis
	for k := range at {
		reduced := axes == nil || slices.Contains(axes, k)
		if !reduced {
			at[k], over[k] = idx[0], 1
		}
		if !reduced || keep {
			idx = idx[1:]
		}
	}
	vs, along := make([]float64, over.Elems()), make([]int, len(at))
	for n := range vs {
		for k, a := range indexInto(along, n, over) {
			along[k] = at[k] + a
		}
		vs[n] = x.at(along)
	}
	return vs
}

//go:norace
func reduce(fn kernels.ReduceFn, vs []float64) float64 {
	s := 0.0
	for _, v := range vs {
		s += v
	}
	switch fn {
	case kernels.Sum:
		return s
	case kernels.Mean:
		return s / float64(len(vs))
	}
	return slices.Max(vs)
}

// maxGrad shares each gradient out among the maxima that tie.
func maxGrad(i kernels.MaxGrad, in []Tensor, out kernels.Type) Tensor {
	x, y := in[0], in[1]
	ties := build(y.Type, func(idx []int) (n float64) {
		for _, v := range group(x, i.Axes, i.Keep, idx) {
			if v == y.at(idx) {
				n++
			}
		}
		return n
	})
	return build(out, func(idx []int) float64 {
		to := resultIndex(len(idx), i.Axes, i.Keep, idx)
		if x.at(idx) != y.at(to) {
			return 0
		}
		return in[2].at(to) / ties.at(to)
	})
}

func move(i kernels.Instr, in []Tensor, out device.Shape, idx []int) float64 {
	x := in[0]
	idx = slices.Clone(idx)
	switch i := i.(type) {
	case kernels.BroadcastTo:
		return x.at(idx)
	case kernels.Reshape:
		flat := 0
		for k, n := range out {
			flat = flat*n + idx[k]
		}
		return x.V[flat]
	case kernels.Transpose:
		from := make([]int, len(idx))
		for k, axis := range i.Perm {
			from[axis] = idx[k]
		}
		return x.at(from)
	case kernels.Slice:
		idx[i.Axis] += i.Start
		return x.at(idx)
	case kernels.Pad:
		idx[i.Axis] -= i.Before
		if idx[i.Axis] < 0 || idx[i.Axis] >= x.Shape[i.Axis] {
			return 0
		}
		return x.at(idx)
	case kernels.Concat:
		for _, t := range in {
			if idx[i.Axis] < t.Shape[i.Axis] {
				return t.at(idx)
			}
			idx[i.Axis] -= t.Shape[i.Axis]
		}
	}
	panic(fmt.Sprint("no oracle for ", i))
}

func finiteness(x []float64) float64 {
	found := kernels.AllFinite
	for _, v := range x {
		if math.IsNaN(v) {
			return float64(kernels.HasNaN)
		}
		if math.IsInf(v, 0) {
			found = kernels.HasInfinity
		}
	}
	return float64(found)
}

// sumLater adds to row n of g the later ones of its id.
func sumLater(ids []float64, n, size int, g Tensor) {
	for c := range size {
		sum := g.V[n*size+c]
		for m := n + 1; m < len(ids); m++ {
			if ids[m] == ids[n] {
				sum += g.V[m*size+c]
			}
		}
		g.V[n*size+c] = round(g.Dtype, sum)
	}
}

// onRows takes one row after another out, updates it alone, and puts it back.
func onRows(i kernels.OnRows, in []Tensor) ([]Tensor, error) {
	last := len(in) - 1
	tables := make([]Tensor, last)
	for k := range tables {
		tables[k] = Tensor{in[k].Type, slices.Clone(in[k].V)}
	}
	count, counts := last, i.Of
	if u, ok := i.Of.(kernels.Update); ok && u.Missed {
		count--
		u.Missed, u.Step = false, u.Step-int(in[count].V[0])
		counts = u
	}
	size := in[0].Shape[1:].Elems()
	row := func(k, n int) Tensor {
		return Tensor{kernels.Type{Dtype: in[k].Dtype, Shape: in[k].Shape[1:]}, tables[k].V[n*size : (n+1)*size]}
	}
	var res []Tensor
	for k := range tables {
		if k != 1 {
			res = append(res, tables[k])
		}
	}
	done := map[float64]bool{}
	for n, id := range in[last].V {
		if id < 0 || int(id) >= in[0].Shape[0] {
			return nil, &kernels.IndexError{Instr: i.String(), ID: int64(id), At: n, N: in[0].Shape[0]}
		}
		if i.Sum {
			if done[id] {
				continue
			}
			done[id] = true
			sumLater(in[last].V, n, size, tables[1])
		}
		var operands []Tensor
		var types []kernels.Type
		for k := range tables[:count] {
			at := int(id)
			if k == 1 {
				at = n
			} else {
				types = append(types, row(k, at).Type)
			}
			operands = append(operands, row(k, at))
		}
		made, err := Oracle(counts, operands, types)
		if err != nil {
			return nil, err
		}
		for k, m := range made {
			to := res[k].V[int(id)*size:]
			for e, v := range m.V {
				to[e] = round(m.Dtype, v)
			}
		}
	}
	return res, nil
}
