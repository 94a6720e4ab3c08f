package kerneltest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// network is Oracle for the instructions that work on lines of elements or on ids.
func network(i kernels.Instr, in []Tensor, out kernels.Type) ([]Tensor, error) {
	one := func(fn func(idx []int) float64) ([]Tensor, error) { return []Tensor{build(out, fn)}, nil }
	switch i := i.(type) {
	case kernels.Gather:
		if err := outOfRange(in[1], in[0].Shape[0]); err != nil {
			return nil, err
		}
		r := len(in[1].Shape)
		return one(func(idx []int) float64 {
			return in[0].at(append([]int{int(in[1].at(idx[:r]))}, idx[r:]...))
		})
	case kernels.ScatterAdd:
		return scatterAdd(i, in, out)
	case kernels.CrossEntropy:
		return crossEntropy(i, in, out)
	case kernels.CrossEntropyGrad:
		return crossEntropy(kernels.CrossEntropy(i), in, out)
	case kernels.Softmax:
		return []Tensor{byLine(out, i.Axis, func(idx []int) []float64 { return softmax(lineOf(in[0], i.Axis, idx), i.Log) })}, nil
	case kernels.SoftmaxGrad:
		return []Tensor{byLine(out, i.Axis, func(idx []int) []float64 {
			return softmaxGrad(lineOf(in[0], i.Axis, idx), lineOf(in[1], i.Axis, idx), i.Log)
		})}, nil
	case kernels.Normalize:
		last := len(out.Shape) - 1
		return []Tensor{byLine(out, last, func(idx []int) []float64 {
			hat, _ := normalize(lineOf(in[0], last, idx), i.Eps)
			return hat
		})}, nil
	case kernels.LayerNorm:
		last := len(out.Shape) - 1
		return []Tensor{byLine(out, last, func(idx []int) []float64 {
			hat, _ := normalize(lineOf(in[0], last, idx), i.Eps)
			for k := range hat {
				hat[k] = hat[k]*in[1].V[k] + in[2].V[k]
			}
			return hat
		})}, nil
	case kernels.LayerNormGrad:
		return layerNormGrad(in, i.Eps), nil
	case kernels.NormalizeGrad:
		last := len(out.Shape) - 1
		return []Tensor{byLine(out, last, func(idx []int) []float64 {
			hat, rstd := normalize(lineOf(in[0], last, idx), i.Eps)
			return normalizeGrad(hat, lineOf(in[1], last, idx), rstd)
		})}, nil
	}
	panic(fmt.Sprint("no oracle for ", i))
}

// byLine makes a tensor of lines along an axis.
func byLine(t kernels.Type, axis int, fn func(idx []int) []float64) Tensor {
	next := t.Shape[axis+1:].Elems()
	out := Tensor{t, make([]float64, t.Shape.Elems())}
	for k := range out.V {
		if idx := index(k, t.Shape); idx[axis] == 0 {
			for n, v := range fn(idx) {
				out.V[k+n*next] = v
			}
		}
	}
	return out
}

// lineOf collects the elements along an axis through idx.
func lineOf(x Tensor, axis int, idx []int) []float64 {
	idx, line := slices.Clone(idx), make([]float64, x.Shape[axis])
	for k := range line {
		idx[axis] = k
		line[k] = x.at(idx)
	}
	return line
}

func outOfRange(ids Tensor, n int) error {
	for k, id := range ids.V {
		if id < 0 || id >= float64(n) {
			return &kernels.IndexError{ID: int64(id), At: k, N: n}
		}
	}
	return nil
}

func scatterAdd(i kernels.ScatterAdd, in []Tensor, out kernels.Type) ([]Tensor, error) {
	if err := outOfRange(in[0], i.Rows); err != nil {
		return nil, err
	}
	res := Tensor{out, make([]float64, out.Shape.Elems())}
	if len(in[1].V) == 0 {
		return []Tensor{res}, nil
	}
	row := len(in[1].V) / len(in[0].V)
	for k, id := range in[0].V {
		for j := range row {
			res.V[int(id)*row+j] += in[1].V[k*row+j]
		}
	}
	return []Tensor{res}, nil
}

func softmax(x []float64, log bool) []float64 {
	m, s := slices.Max(x), 0.0
	for _, v := range x {
		s += math.Exp(v - m)
	}
	y := make([]float64, len(x))
	for k, v := range x {
		y[k] = v - m - math.Log(s)
		if !log {
			y[k] = math.Exp(y[k])
		}
	}
	return y
}

// softmaxGrad multiplies gy by the Jacobian, element by element.
func softmaxGrad(y, gy []float64, log bool) []float64 {
	out := make([]float64, len(y))
	for at := range y {
		p := math.Exp(y[at])
		for k := range y {
			same := 0.0
			if k == at {
				same = 1
			}
			if log {
				out[at] += gy[k] * (same - p)
			} else {
				out[at] += gy[k] * y[k] * (same - y[at])
			}
		}
	}
	return out
}

// crossEntropy is the loss, or with a third operand its gradient.
func crossEntropy(i kernels.CrossEntropy, in []Tensor, out kernels.Type) ([]Tensor, error) {
	n, width := in[0].Shape[0], in[0].Shape[1]
	c, labels := i.Of(width), in[1]
	labels.V = labels.V[i.First:][:n]
	if err := (*kernels.IndexError)(nil); errors.As(outOfRange(labels, c), &err) {
		err.At += i.First
		return nil, err
	}
	res, loss := Tensor{out, make([]float64, out.Shape.Elems())}, 0.0
	for r, label := range labels.V {
		l := softmax(in[0].V[r*width:][:c], true)
		loss -= l[int(label)] / float64(n)
		for k := 0; k < c && len(in) == 3; k++ {
			g := math.Exp(l[k])
			if k == int(label) {
				g--
			}
			res.V[r*width+k] = g * in[2].V[0] / float64(n)
		}
	}
	if len(in) == 2 {
		res.V[0] = loss
	}
	return []Tensor{res}, nil
}

func normalize(x []float64, eps float64) (hat []float64, rstd float64) {
	n, mean, variance := float64(len(x)), 0.0, 0.0
	for _, v := range x {
		mean += v / n
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / n
	}
	rstd = 1 / math.Sqrt(variance+eps)
	hat = make([]float64, len(x))
	for k, v := range x {
		hat[k] = (v - mean) * rstd
	}
	return hat, rstd
}

// layerNormGrad gives the gradients of x, gamma and beta.
func layerNormGrad(in []Tensor, eps float64) []Tensor {
	x, gamma, gy := in[0], in[1], in[2]
	n := len(gamma.V)
	out := []Tensor{{x.Type, make([]float64, len(x.V))}, {gamma.Type, make([]float64, n)}, {gamma.Type, make([]float64, n)}}
	for at := 0; at < len(x.V); at += n {
		row, g := x.V[at:at+n], slices.Clone(gy.V[at:at+n])
		hat, rstd := normalize(row, eps)
		for k := range g {
			out[1].V[k] += g[k] * hat[k]
			out[2].V[k] += g[k]
			g[k] *= gamma.V[k]
		}
		copy(out[0].V[at:], normalizeGrad(hat, g, rstd))
	}
	return out
}

// normGradSlack is what rounding of g, and of what is taken from it, comes to where rows are nearly
// constant: the difference may be 0, and is multiplied by up to 1/sqrt(eps); so may that from the
// mean. A GPU that joins a product to a difference rounds one of the two alone.
func normGradSlack(x Tensor, g []float64, eps float64) []float64 {
	n, slack := x.Shape[len(x.Shape)-1], make([]float64, len(x.V))
	for at := 0; at < len(x.V); at += n {
		hat, rstd := normalize(x.V[at:at+n], eps)
		whole, along, most := 0.0, 0.0, 0.0
		for k := range n {
			most = max(most, math.Abs(x.V[at+k]))
			whole += math.Abs(g[at+k]) / float64(n)
			along += math.Abs(g[at+k]*hat[k]) / float64(n)
		}
		off := most * rstd // of what is normalised: its difference from the mean is rounded
		for k := range n {
			slack[at+k] = unitOf(x.Dtype) * rstd * (math.Abs(g[at+k]) + whole + math.Abs(hat[k])*along + off*(along+math.Abs(hat[k])*whole))
		}
	}
	return slack
}

// unitOf is the distance from 1 to the next number.
func unitOf(d device.Dtype) float64 {
	if d == device.Float64 {
		return math.Ldexp(1, -52)
	}
	return math.Ldexp(1, -23)
}

// normalizeGrad multiplies gy by the Jacobian, element by element, from what normalize gives.
func normalizeGrad(hat, gy []float64, rstd float64) []float64 {
	n, out := float64(len(hat)), make([]float64, len(hat))
	for at := range out {
		for k := range hat {
			d := -1/n - hat[k]*hat[at]/n
			if k == at {
				d++
			}
			out[at] += gy[k] * d * rstd
		}
	}
	return out
}
