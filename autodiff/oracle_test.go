package autodiff

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// nd is a dumb array: everything is a float64, everything goes by index tuples. It is the oracle of the forward and, by
// finite differences, of every gradient.
type nd struct {
	shape device.Shape
	v     []float64
}

func newND(shape device.Shape) nd { return nd{shape, make([]float64, shape.Elems())} }

// each calls f with every index tuple of a shape, in row-major order.
func each(shape device.Shape, f func(i int, at []int)) {
	at := make([]int, len(shape))
	for i := range shape.Elems() {
		for a, rest := len(shape)-1, i; a >= 0; a-- {
			at[a] = rest % shape[a]
			rest /= shape[a]
		}
		f(i, at)
	}
}

// get reads by a tuple that may have more axes (leading ones are dropped) or exceed axes of extent 1: broadcasting.
func (x nd) get(at []int) float64 {
	at = at[len(at)-len(x.shape):]
	i := 0
	for a, d := range x.shape {
		k := at[a]
		if d == 1 {
			k = 0
		}
		i = i*d + k
	}
	return x.v[i]
}

// evaluate computes one instruction. shape is what Infer says of the result: shapes are checked by kernels' own tests.
func evaluate(i kernels.Instr, in []nd, shape device.Shape) nd {
	y := newND(shape)
	switch i := i.(type) {
	case kernels.Unary:
		for k, x := range in[0].v {
			y.v[k] = unaryOracle(i, x)
		}
	case kernels.Binary:
		each(shape, func(k int, at []int) { y.v[k] = binaryOracle(i.Fn, in[0].get(at), in[1].get(at)) })
	case kernels.MatMul:
		matmulOracle(i, in[0], in[1], y)
	case kernels.Reduce:
		reduceOracle(i, in[0], y)
	case kernels.BroadcastTo:
		each(shape, func(k int, at []int) { y.v[k] = in[0].get(at) })
	case kernels.Reshape:
		copy(y.v, in[0].v)
	case kernels.Cast:
		for k, x := range in[0].v {
			if y.v[k] = x; !i.To.IsFloat() {
				y.v[k] = math.Trunc(x)
			}
		}
	case kernels.Transpose:
		each(in[0].shape, func(k int, at []int) {
			to := make([]int, len(at))
			for a, p := range i.Perm {
				to[a] = at[p]
			}
			y.set(to, in[0].v[k])
		})
	case kernels.Slice:
		each(shape, func(k int, at []int) { at = slices.Clone(at); at[i.Axis] += i.Start; y.v[k] = in[0].at(at) })
	case kernels.Pad:
		each(in[0].shape, func(k int, at []int) { at = slices.Clone(at); at[i.Axis] += i.Before; y.set(at, in[0].v[k]) })
	case kernels.Concat:
		begin := 0
		for _, x := range in {
			each(x.shape, func(k int, at []int) { at = slices.Clone(at); at[i.Axis] += begin; y.set(at, x.v[k]) })
			begin += x.shape[i.Axis]
		}
	case kernels.Gather:
		r := len(in[1].shape)
		each(shape, func(k int, at []int) {
			y.v[k] = in[0].at(append([]int{int(in[1].at(at[:r]))}, at[r:]...))
		})
	case kernels.ScatterAdd:
		r := len(in[0].shape)
		each(in[1].shape, func(k int, at []int) {
			to := append([]int{int(in[0].at(at[:r]))}, at[r:]...)
			y.set(to, y.at(to)+in[1].v[k])
		})
	default:
		lineOracle(i, in, y)
	}
	return y
}

func (x nd) index(at []int) int {
	i := 0
	for a, d := range x.shape {
		i = i*d + at[a]
	}
	return i
}

func (x nd) at(at []int) float64     { return x.v[x.index(at)] }
func (x nd) set(at []int, v float64) { x.v[x.index(at)] = v }

func unaryOracle(i kernels.Unary, x float64) float64 {
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
		return math.Max(x, 0)
	case kernels.Gelu:
		return x * 0.5 * math.Erfc(-x/math.Sqrt2)
	case kernels.Scale:
		return x * i.C
	case kernels.Shift:
		return x + i.C
	}
	panic(fmt.Sprint("no oracle for ", i))
}

func binaryOracle(fn kernels.BinaryFn, a, b float64) float64 {
	switch fn {
	case kernels.Add:
		return a + b
	case kernels.Sub:
		return a - b
	case kernels.Mul:
		return a * b
	case kernels.Div:
		return a / b
	}
	panic(fmt.Sprint("no oracle for ", fn))
}

func matmulOracle(i kernels.MatMul, a, b, y nd) {
	inner := a.shape[len(a.shape)-1]
	if i.TransA {
		inner = a.shape[len(a.shape)-2]
	}
	pick := func(x nd, batch []int, row, col int, swap bool) float64 {
		if swap {
			row, col = col, row
		}
		at := append(slices.Clone(batch), row, col)
		at = at[len(at)-len(x.shape):]
		for k := range len(at) - 2 {
			if x.shape[k] == 1 {
				at[k] = 0
			}
		}
		return x.at(at)
	}
	each(y.shape, func(k int, at []int) {
		n := len(at)
		for p := range inner {
			y.v[k] += pick(a, at[:n-2], at[n-2], p, i.TransA) * pick(b, at[:n-2], p, at[n-1], i.TransB)
		}
	})
}

func reduceOracle(i kernels.Reduce, x, y nd) {
	kept := nd{keptShape(x.shape, i.Axes), y.v} // same elements, reduced axes still there
	if i.Fn == kernels.Max {
		for k := range y.v {
			y.v[k] = math.Inf(-1)
		}
	}
	each(x.shape, func(k int, at []int) {
		to := slices.Clone(at)
		for a := range to {
			if kept.shape[a] == 1 {
				to[a] = 0
			}
		}
		if v := kept.at(to); i.Fn == kernels.Max {
			kept.set(to, math.Max(v, x.v[k]))
		} else {
			kept.set(to, v+x.v[k])
		}
	})
	if i.Fn == kernels.Mean {
		for k := range y.v {
			y.v[k] /= float64(len(x.v) / len(y.v))
		}
	}
}

// lineOracle computes what looks at a whole line along one axis.
func lineOracle(i kernels.Instr, in []nd, y nd) {
	x := in[0]
	axis := len(x.shape) - 1
	if s, ok := i.(kernels.Softmax); ok {
		axis = s.Axis
	}
	each(x.shape, func(k int, at []int) {
		line := make([]float64, x.shape[axis])
		to := slices.Clone(at)
		for j := range line {
			to[axis] = j
			line[j] = x.at(to)
		}
		mean, sum, variance := 0.0, 0.0, 0.0
		for _, v := range line {
			mean += v / float64(len(line))
			sum += math.Exp(v)
		}
		for _, v := range line {
			variance += (v - mean) * (v - mean) / float64(len(line))
		}
		switch i := i.(type) {
		case kernels.Softmax:
			if y.v[k] = math.Exp(x.v[k]) / sum; i.Log {
				y.v[k] = x.v[k] - math.Log(sum)
			}
		case kernels.Normalize:
			y.v[k] = (x.v[k] - mean) / math.Sqrt(variance+i.Eps)
		case kernels.CrossEntropy:
			if int(in[1].v[at[0]]) == at[1] {
				y.v[0] -= (x.v[k] - math.Log(sum)) / float64(x.shape[0])
			}
		default:
			panic(fmt.Sprint("no oracle for ", i))
		}
	})
}
