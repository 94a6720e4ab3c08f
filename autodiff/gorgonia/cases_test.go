package gorgonia

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fromCase is a graph of Gorgonia's own functions. kind draws the inputs; nil: normal.
type fromCase struct {
	name   string
	shapes [][]int
	f      func(in []node) (node, error)
	kind   func(*rand.Rand, ...int) arg
}

// fromCases is what the gradients of Gorgonia's functions were tried on.
func fromCases() []fromCase {
	cs := fromProducts()
	cs = append(cs, fromBroadcasts()...)
	cs = append(cs, fromRows()...)
	cs = append(cs, fromShapes()...)
	cs = append(cs, fromElements()...)
	cs = append(cs, fromImages()...)
	return append(cs, fromComposed()...)
}

func of(shapes ...[]int) [][]int { return shapes }

func fromProducts() []fromCase {
	mul := func(in []node) (node, error) { return gorgonia.Mul(in[0], in[1]) }
	var cs []fromCase
	for _, s := range [][][]int{{{3, 4}, {4, 5}}, {{3, 4}, {4}}, {{3}, {3, 4}}, {{2, 2}, {2, 1}}, {{1, 2}, {2, 2}}, {{1, 4}, {4, 1}},
		{{3, 1}, {1, 4}}, {{1, 1}, {1, 1}}, {{4}, {4}}, {{1}, {1}}, {{4, 4}, {4}}, {{4}, {4, 4}}} {
		cs = append(cs, fromCase{fmt.Sprint("Mul", s), s, mul, nil})
	}
	for _, s := range [][3]int{{3, 4, 5}, {1, 4, 5}, {3, 4, 1}, {3, 1, 5}, {1, 4, 1}} {
		m, k, n := s[0], s[1], s[2]
		for _, batch := range [][]int{{2}, {1}, {2, 2}} {
			for _, tr := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
				a, b := []int{m, k}, []int{k, n}
				if tr[0] {
					a = []int{k, m}
				}
				if tr[1] {
					b = []int{n, k}
				}
				shapes := of(append(append([]int{}, batch...), a...), append(append([]int{}, batch...), b...))
				cs = append(cs, fromCase{fmt.Sprint("BatchedMatMul", shapes, tr), shapes, func(in []node) (node, error) {
					return gorgonia.BatchedMatMul(in[0], in[1], tr[0], tr[1])
				}, nil})
			}
		}
	}
	dot := func(a, b []int) func(in []node) (node, error) {
		return func(in []node) (node, error) { return gorgonia.Tensordot(a, b, in[0], in[1]) }
	}
	return append(cs,
		fromCase{"OuterProd", of([]int{3}, []int{4}), func(in []node) (node, error) { return gorgonia.OuterProd(in[0], in[1]) }, nil},
		fromCase{"Tensordot of matrices", of([]int{3, 4}, []int{4, 2}), dot([]int{1}, []int{0}), nil},
		fromCase{"Tensordot of two axes", of([]int{2, 3, 4}, []int{4, 3, 2}), dot([]int{1, 2}, []int{1, 0}), nil},
		fromCase{"Tensordot of a middle axis", of([]int{2, 3, 2}, []int{3, 2}), dot([]int{1}, []int{0}), nil})
}

func fromBroadcasts() []fromCase {
	type op = func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error)
	var cs []fromCase
	for _, o := range []struct {
		name string
		f    op
	}{{"Add", gorgonia.BroadcastAdd}, {"Sub", gorgonia.BroadcastSub}, {"HadamardProd", gorgonia.BroadcastHadamardProd},
		{"HadamardDiv", gorgonia.BroadcastHadamardDiv}, {"Pow", gorgonia.BroadcastPow}} {
		for _, p := range []struct {
			a, b []int
			l, r []byte
		}{
			{[]int{3, 4}, []int{3, 4}, nil, nil},
			{[]int{3, 4}, []int{1, 4}, nil, []byte{0}}, {[]int{3, 4}, []int{3, 1}, nil, []byte{1}},
			{[]int{3, 4}, []int{4}, nil, []byte{0}}, {[]int{3, 4}, []int{3}, nil, []byte{1}},
			{[]int{1, 4}, []int{3, 4}, []byte{0}, nil}, {[]int{3, 1}, []int{3, 4}, []byte{1}, nil},
			{[]int{3, 1}, []int{1, 4}, []byte{1}, []byte{0}}, {[]int{1, 4}, []int{3, 1}, []byte{0}, []byte{1}},
			{[]int{2, 3, 4}, []int{1, 3, 4}, nil, []byte{0}}, {[]int{2, 3, 4}, []int{1, 1, 4}, nil, []byte{0, 1}},
			{[]int{2, 3, 4}, []int{2, 1, 4}, nil, []byte{1}}, {[]int{2, 3, 4}, []int{2, 3, 1}, nil, []byte{2}},
			{[]int{2, 1, 1}, []int{2, 3, 4}, []byte{1, 2}, nil},
			{[]int{2, 3, 2, 2}, []int{1, 3, 1, 1}, nil, []byte{0, 2, 3}},
		} {
			cs = append(cs, fromCase{fmt.Sprint("Broadcast", o.name, p.a, p.b), of(p.a, p.b), func(in []node) (node, error) {
				return o.f(in[0], in[1], p.l, p.r)
			}, positive})
		}
	}
	return append(cs,
		fromCase{"Auto", of([]int{3, 4}, []int{3, 1}), func(in []node) (node, error) {
			return gorgonia.Auto(gorgonia.BroadcastAdd, in[0], in[1])
		}, nil},
		fromCase{"a vector and a column", of([]int{3}, []int{3, 1}), func(in []node) (node, error) { return gorgonia.Add(in[0], in[1]) }, nil})
}

func fromRows() []fromCase {
	var cs []fromCase
	for _, shape := range [][]int{{4}, {3, 4}, {3, 1}, {1, 4}, {2, 3, 4}} {
		for axis := -1; axis < len(shape); axis++ {
			var axes []int
			if axis >= 0 {
				axes = []int{axis}
			}
			cs = append(cs,
				fromCase{fmt.Sprint("SoftMax", shape, axes), of(shape), func(in []node) (node, error) { return gorgonia.SoftMax(in[0], axes...) }, nil},
				fromCase{fmt.Sprint("LogSoftMax", shape, axes), of(shape), func(in []node) (node, error) { return gorgonia.LogSoftMax(in[0], axes...) }, nil})
		}
	}
	type reduce = func(a *gorgonia.Node, along ...int) (*gorgonia.Node, error)
	for _, r := range []struct {
		name string
		f    reduce
		axes [][]int
	}{
		{"Sum", gorgonia.Sum, [][]int{nil, {0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}}}, {"Mean", gorgonia.Mean, [][]int{nil, {0}, {1}, {2}, {1, 2}}},
		{"Max", gorgonia.Max, [][]int{nil, {0}, {1}, {2}}},
	} {
		for _, axes := range r.axes {
			cs = append(cs, fromCase{fmt.Sprint(r.name, "[2 3 4]", axes), of([]int{2, 3, 4}), func(in []node) (node, error) { return r.f(in[0], axes...) }, distinct})
		}
		for _, axes := range [][]int{nil, {0}, {1}} {
			cs = append(cs, fromCase{fmt.Sprint(r.name, "[3 4]", axes), of([]int{3, 4}), func(in []node) (node, error) { return r.f(in[0], axes...) }, distinct})
		}
	}
	for _, p := range []int{1, 2, 3} {
		cs = append(cs, fromCase{fmt.Sprint("Norm ", p), of([]int{4}), func(in []node) (node, error) { return gorgonia.Norm(in[0], 0, p) }, positive})
	}
	return append(cs, fromCase{"Norm of rows", of([]int{3, 4}), func(in []node) (node, error) { return gorgonia.Norm(in[0], 1, 2) }, nil})
}

func fromShapes() []fromCase {
	s := gorgonia.S
	var cs []fromCase
	for _, perm := range [][]int{nil, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		cs = append(cs, fromCase{fmt.Sprint("Transpose", perm), of([]int{2, 3, 4}), func(in []node) (node, error) { return gorgonia.Transpose(in[0], perm...) }, nil})
	}
	for _, x := range []struct {
		name  string
		shape []int
		by    []tensor.Slice
	}{
		{"row", []int{3, 4}, []tensor.Slice{s(1)}}, {"rows", []int{3, 4}, []tensor.Slice{s(0, 2)}}, {"columns", []int{3, 4}, []tensor.Slice{nil, s(1, 3)}},
		{"column", []int{3, 4}, []tensor.Slice{nil, s(2)}}, {"both", []int{3, 4}, []tensor.Slice{s(0, 2), s(1, 3)}}, {"element", []int{4}, []tensor.Slice{s(2)}},
		{"middle", []int{2, 3, 4}, []tensor.Slice{nil, s(1), s(0, 3)}}, {"a row and columns", []int{3, 4}, []tensor.Slice{s(2), s(1, 3)}},
		{"every second", []int{6, 2}, []tensor.Slice{s(0, 6, 2)}},
	} {
		cs = append(cs, fromCase{"Slice " + x.name, of(x.shape), func(in []node) (node, error) { return gorgonia.Slice(in[0], x.by...) }, nil})
	}
	concat := func(axis int) func(in []node) (node, error) {
		return func(in []node) (node, error) { return gorgonia.Concat(axis, in...) }
	}
	reshape := func(to ...int) func(in []node) (node, error) {
		return func(in []node) (node, error) { return gorgonia.Reshape(in[0], tensor.Shape(to).Clone()) }
	}
	return append(cs,
		fromCase{"Transpose of a matrix", of([]int{3, 4}), func(in []node) (node, error) { return gorgonia.Transpose(in[0]) }, nil},
		fromCase{"Transpose of four axes", of([]int{2, 3, 4, 2}), func(in []node) (node, error) { return gorgonia.Transpose(in[0], 0, 2, 1, 3) }, nil},
		fromCase{"Concat 0", of([]int{2, 3}, []int{1, 3}), concat(0), nil},
		fromCase{"Concat 1", of([]int{2, 3}, []int{2, 2}), concat(1), nil},
		fromCase{"Concat of three", of([]int{2, 1, 2}, []int{2, 3, 2}, []int{2, 2, 2}), concat(1), nil},
		fromCase{"Concat of vectors", of([]int{2}, []int{3}), concat(0), nil},
		fromCase{"Reshape", of([]int{3, 4}), reshape(2, 6), nil},
		fromCase{"Reshape with a hole", of([]int{3, 4}), reshape(2, -1, 3), nil},
		fromCase{"Ravel", of([]int{3, 4}), func(in []node) (node, error) { return gorgonia.Ravel(in[0]) }, nil},
		fromCase{"Unconcat", of([]int{2, 4}), func(in []node) (node, error) {
			parts, err := gorgonia.Unconcat(in[0], 1, 2)
			if err != nil {
				return nil, err
			}
			return gorgonia.HadamardProd(parts[0], parts[1])
		}, nil})
}

func fromElements() []fromCase {
	var cs []fromCase
	for _, u := range []struct {
		name string
		f    func(*gorgonia.Node) (*gorgonia.Node, error)
		kind func(*rand.Rand, ...int) arg
	}{
		{"Sigmoid", gorgonia.Sigmoid, normal}, {"Tanh", gorgonia.Tanh, normal}, {"Exp", gorgonia.Exp, normal}, {"Log", gorgonia.Log, positive},
		{"Log2", gorgonia.Log2, positive}, {"Sqrt", gorgonia.Sqrt, positive}, {"Square", gorgonia.Square, normal}, {"Cube", gorgonia.Cube, normal},
		{"Neg", gorgonia.Neg, normal}, {"Abs", gorgonia.Abs, nonzero}, {"Inverse", gorgonia.Inverse, positive},
		{"InverseSqrt", gorgonia.InverseSqrt, positive}, {"Softplus", gorgonia.Softplus, normal}, {"Log1p", gorgonia.Log1p, positive},
		{"Expm1", gorgonia.Expm1, normal}, {"Sin", gorgonia.Sin, normal}, {"Cos", gorgonia.Cos, normal}, {"Rectify", gorgonia.Rectify, nonzero},
		{"Mish", gorgonia.Mish, normal}, {"Sign", times(gorgonia.Sign), nonzero}, {"Ceil", times(gorgonia.Ceil), normal}, {"Floor", times(gorgonia.Floor), normal},
		{"LeakyRelu", func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.LeakyRelu(x, 0.1) }, nonzero},
	} {
		for _, shape := range [][]int{{3, 4}, {}} {
			cs = append(cs, fromCase{fmt.Sprint(u.name, shape), of(shape), func(in []node) (node, error) { return u.f(in[0]) }, u.kind})
		}
	}
	for _, c := range []struct {
		name string
		f    func(a, b *gorgonia.Node, same bool) (*gorgonia.Node, error)
	}{{"Lt", gorgonia.Lt}, {"Gt", gorgonia.Gt}, {"Lte", gorgonia.Lte}, {"Gte", gorgonia.Gte}, {"Eq", gorgonia.Eq}, {"Ne", gorgonia.Ne}} {
		cs = append(cs, fromCase{c.name, of([]int{3, 4}, []int{3, 4}), func(in []node) (node, error) {
			is, err := c.f(in[0], in[1], true)
			if err != nil {
				return nil, err
			}
			sum, err := gorgonia.Add(in[0], in[1])
			if err != nil {
				return nil, err
			}
			return gorgonia.HadamardProd(sum, is)
		}, nil})
	}
	two := func(f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) func(in []node) (node, error) {
		return func(in []node) (node, error) { return f(in[0], in[1]) }
	}
	return append(cs,
		fromCase{"MinBetween", of([]int{3, 4}, []int{3, 4}), two(gorgonia.MinBetween), nil},
		fromCase{"MaxBetween", of([]int{3, 4}, []int{3, 4}), two(gorgonia.MaxBetween), nil},
		fromCase{"Add of scalars", of(nil, nil), two(gorgonia.Add), nil},
		fromCase{"a scalar times a matrix", of(nil, []int{3, 4}), two(gorgonia.Mul), nil},
		fromCase{"a matrix over a scalar", of([]int{3, 4}, nil), two(gorgonia.HadamardDiv), positive},
		fromCase{"HadamardProd with itself", of([]int{3, 4}), func(in []node) (node, error) { return gorgonia.HadamardProd(in[0], in[0]) }, nil},
		fromCase{"constants", of([]int{3, 4}), func(in []node) (node, error) {
			x, err := gorgonia.Sub(gorgonia.NewConstant(1.0), in[0])
			if err != nil {
				return nil, err
			}
			c := tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 12)))
			return gorgonia.HadamardProd(x, gorgonia.NewConstant(c, gorgonia.WithName("range")))
		}, nil},
		fromCase{"BinaryXent", of([]int{4}, []int{4}), func(in []node) (node, error) {
			p, err := gorgonia.Sigmoid(in[0])
			if err != nil {
				return nil, err
			}
			return gorgonia.BinaryXent(p, in[1])
		}, nil})
}

// times makes a step differentiable.
func times(f func(*gorgonia.Node) (*gorgonia.Node, error)) func(*gorgonia.Node) (*gorgonia.Node, error) {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		y, err := f(x)
		if err != nil {
			return nil, err
		}
		return gorgonia.HadamardProd(x, y)
	}
}

// must is for bodies of several ops.
func must(n *gorgonia.Node, err error) *gorgonia.Node { return gorgonia.Must(n, err) }

func fromComposed() []fromCase {
	norm := func(in []node) (node, error) {
		x, gamma, beta := in[0], in[1], in[2]
		rows := x.Shape()[0]
		column := func(n *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Reshape(n, tensor.Shape{rows, 1})) }
		centred := must(gorgonia.BroadcastSub(x, column(must(gorgonia.Mean(x, 1))), nil, []byte{1}))
		variance := must(gorgonia.Mean(must(gorgonia.Square(centred)), 1))
		dev := must(gorgonia.Sqrt(must(gorgonia.Add(variance, gorgonia.NewConstant(1e-5)))))
		y := must(gorgonia.BroadcastHadamardDiv(centred, column(dev), nil, []byte{1}))
		y = must(gorgonia.BroadcastHadamardProd(y, gamma, nil, []byte{0}))
		return gorgonia.BroadcastAdd(y, beta, nil, []byte{0})
	}
	attention := func(in []node) (node, error) {
		q, k, v := in[0], in[1], in[2]
		scores := must(gorgonia.BatchedMatMul(q, k, false, true))
		scores = must(gorgonia.HadamardDiv(scores, gorgonia.NewConstant(2.0)))
		return gorgonia.BatchedMatMul(must(gorgonia.SoftMax(scores, 2)), v)
	}
	return []fromCase{
		{"LayerNorm", of([]int{3, 5}, []int{1, 5}, []int{1, 5}), norm, nil},
		{"attention", of([]int{2, 3, 4}, []int{2, 5, 4}, []int{2, 5, 3}), attention, nil},
		{"attention of one query", of([]int{2, 1, 4}, []int{2, 1, 4}, []int{2, 1, 3}), attention, nil},
		{"attention of one head", of([]int{1, 3, 4}, []int{1, 3, 4}, []int{1, 3, 4}), attention, nil},
	}
}

func fromImages() []fromCase {
	pool := func(f func(x *gorgonia.Node, k tensor.Shape, pad, stride []int) (*gorgonia.Node, error), k tensor.Shape, pad, stride []int) func(in []node) (node, error) {
		return func(in []node) (node, error) { return f(in[0], k, pad, stride) }
	}
	conv := func(k tensor.Shape, pad, stride, dilation []int) func(in []node) (node, error) {
		return func(in []node) (node, error) { return gorgonia.Conv2d(in[0], in[1], k, pad, stride, dilation) }
	}
	batchNorm := func(in []node) (node, error) {
		y, _, _, _, err := gorgonia.BatchNorm(in[0], in[1], in[2], 0.1, 1e-5)
		return y, err
	}
	return []fromCase{
		{"Upsample2D", of([]int{2, 2, 2, 3}), func(in []node) (node, error) { return gorgonia.Upsample2D(in[0], 2) }, nil},
		{"GlobalAveragePool2D", of([]int{2, 3, 2, 4}), func(in []node) (node, error) { return gorgonia.GlobalAveragePool2D(in[0]) }, nil},
		{"GroupNorm", of([]int{2, 4, 4, 4}, []int{1, 4, 1, 1}, []int{1, 4, 1, 1}), func(in []node) (node, error) {
			return gorgonia.GroupNorm(in[0], in[1], in[2], 2, 4, 1e-5)
		}, nil},
		{"Conv2d", of([]int{1, 2, 5, 5}, []int{3, 2, 3, 3}), conv(tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}), nil},
		{"Conv2d with strides", of([]int{2, 1, 6, 5}, []int{2, 1, 2, 3}), conv(tensor.Shape{2, 3}, []int{0, 1}, []int{2, 1}, []int{1, 1}), nil},
		{"Conv2d dilated", of([]int{1, 1, 6, 6}, []int{1, 1, 2, 2}), conv(tensor.Shape{2, 2}, []int{1, 1}, []int{1, 1}, []int{2, 2}), nil},
		{"Conv1d", of([]int{2, 2, 1, 7}, []int{3, 2, 1, 3}), func(in []node) (node, error) { return gorgonia.Conv1d(in[0], in[1], 3, 1, 2, 1) }, nil},
		{"Im2Col", of([]int{2, 2, 4, 4}), func(in []node) (node, error) {
			two := tensor.Shape{2, 2}
			return gorgonia.Im2Col(in[0], two, tensor.Shape{1, 1}, tensor.Shape{1, 1}, tensor.Shape{1, 1})
		}, nil},
		{"MaxPool2D", of([]int{1, 2, 4, 4}), pool(gorgonia.MaxPool2D, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}), distinct},
		{"MaxPool2D with padding", of([]int{2, 2, 5, 4}), pool(gorgonia.MaxPool2D, tensor.Shape{3, 2}, []int{1, 1}, []int{2, 1}), distinct},
		{"MaxPool2D with four paddings", of([]int{1, 1, 5, 5}), pool(gorgonia.MaxPool2D, tensor.Shape{3, 3}, []int{1, 0, 0, 1}, []int{1, 1}), distinct},
		{"MaxPool1D", of([]int{1, 2, 1, 6}), func(in []node) (node, error) { return gorgonia.MaxPool1D(in[0], 2, 0, 2) }, distinct},
		{"AveragePool2D", of([]int{1, 2, 4, 6}), pool(gorgonia.AveragePool2D, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}), nil},
		{"AveragePool2D with padding", of([]int{2, 1, 4, 4}), pool(gorgonia.AveragePool2D, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}), nil},
		{"BatchNorm of images", of([]int{3, 2, 2, 3}, []int{1, 2, 1, 1}, []int{1, 2, 1, 1}), batchNorm, nil},
		{"BatchNorm of rows", of([]int{5, 3}, []int{1, 3}, []int{1, 3}), batchNorm, nil},
	}
}
