package autodiff

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// cases is the table over all differentiable ops.
func cases() []opCase {
	cs := elementCases()
	cs = append(cs, productCases()...)
	cs = append(cs, reduceCases()...)
	cs = append(cs, moveCases()...)
	cs = append(cs, imageCases()...)
	cs = append(cs, attentionCases()...)
	return append(cs, networkCases()...)
}

func elementCases() []opCase {
	type unaryOp struct {
		name string
		kind func(*rand.Rand, ...int) arg
		f    func(g *Graph, x node) node
		alt  func(*gorgonia.Node) (*gorgonia.Node, error)
	}
	var cs []opCase
	for _, u := range []unaryOp{
		{"Neg", normal, (*Graph).Neg, gorgonia.Neg}, {"Exp", normal, (*Graph).Exp, gorgonia.Exp},
		{"Log", positive, (*Graph).Log, gorgonia.Log}, {"Sqrt", positive, (*Graph).Sqrt, gorgonia.Sqrt},
		{"Tanh", normal, (*Graph).Tanh, gorgonia.Tanh}, {"Sigmoid", normal, (*Graph).Sigmoid, gorgonia.Sigmoid},
		{"ReLU", nonzero, (*Graph).ReLU, gorgonia.Rectify}, {"GELU", normal, (*Graph).GELU, nil},
		{"Abs", nonzero, (*Graph).Abs, gorgonia.Abs}, {"Sin", normal, (*Graph).Sin, gorgonia.Sin}, {"Cos", normal, (*Graph).Cos, gorgonia.Cos},
		{"Log1p", positive, (*Graph).Log1p, gorgonia.Log1p}, {"Expm1", normal, (*Graph).Expm1, gorgonia.Expm1},
		{"Softplus", normal, (*Graph).Softplus, gorgonia.Softplus}, {"Softsign", normal, (*Graph).Softsign, nil},
		{"Ceil", normal, func(g *Graph, x node) node { return g.Mul(x, g.Ceil(x)) }, nil},
		{"Floor", normal, func(g *Graph, x node) node { return g.Mul(x, g.Floor(x)) }, nil},
		{"Scale", normal, func(g *Graph, x node) node { return g.Scale(x, -2.5) }, nil},
		{"Shift", normal, func(g *Graph, x node) node { return g.Shift(x, 1.25) }, nil},
		{"Cast to float64 and back", normal, func(g *Graph, x node) node {
			return g.Cast(g.Cast(x, device.Float64), g.Type(x).Dtype)
		}, nil},
	} {
		body := func(g *Graph, in []node) node { return u.f(g, in[0]) }
		c := opCase{u.name, func(r *rand.Rand) []arg { return []arg{u.kind(r, extents(r, 1+r.IntN(3))...)} }, body, nil}
		if u.alt != nil {
			c.in = fixed(u.kind, []int{3, 4})
			c.counterpart = func(in []node) (node, error) { return u.alt(in[0]) }
		}
		cs = append(cs, c,
			opCase{u.name + " of a scalar", fixed(u.kind, []int{}), body, nil},
			opCase{u.name + " of nothing", fixed(u.kind, []int{2, 0, 3}), body, nil})
	}
	for _, b := range []struct {
		name string
		f    func(g *Graph, a, b node) node
		alt  func(a, b *gorgonia.Node, l, r []byte) (*gorgonia.Node, error)
	}{
		{"Add", (*Graph).Add, gorgonia.BroadcastAdd}, {"Sub", (*Graph).Sub, gorgonia.BroadcastSub},
		{"Mul", (*Graph).Mul, gorgonia.BroadcastHadamardProd}, {"Div", (*Graph).Div, gorgonia.BroadcastHadamardDiv},
	} {
		body := func(g *Graph, in []node) node { return b.f(g, in[0], in[1]) }
		for _, s := range []struct {
			a, b []int
			l, r []byte // Gorgonia is told what to repeat
			alt  bool
		}{
			{[]int{3, 4}, []int{3, 4}, nil, nil, true}, {[]int{3, 4}, []int{1, 4}, nil, []byte{0}, true},
			{[]int{3, 1}, []int{3, 4}, []byte{1}, nil, true}, {[]int{3, 1}, []int{1, 4}, []byte{1}, []byte{0}, true},
			{[]int{2, 3, 4}, []int{2, 1, 4}, nil, []byte{1}, true}, {[]int{3, 4}, []int{4}, nil, nil, false},
			{[]int{4}, []int{2, 3, 1}, nil, nil, false}, {[]int{}, []int{2, 3}, nil, nil, false},
			{[]int{2, 1}, []int{}, nil, nil, false}, {[]int{}, []int{}, nil, nil, false},
			{[]int{1, 1}, []int{1}, nil, nil, false}, {[]int{0, 3}, []int{3}, nil, nil, false},
			{[]int{0, 3}, []int{1, 1}, nil, nil, false}, {[]int{1, 0}, []int{4, 1}, nil, nil, false},
		} {
			c := opCase{fmt.Sprint(b.name, s.a, s.b), fixed(nonzero, s.a, s.b), body, nil}
			if s.alt {
				c.counterpart = func(in []node) (node, error) { return b.alt(in[0], in[1], s.l, s.r) }
			}
			cs = append(cs, c)
		}
		cs = append(cs, opCase{b.name + " the other way round", fixed(nonzero, []int{2, 3}, []int{2, 3}), func(g *Graph, in []node) node {
			return b.f(g, in[1], in[0])
		}, nil}, opCase{b.name + " with itself", fixed(nonzero, []int{2, 3}), func(g *Graph, in []node) node {
			return b.f(g, in[0], in[0])
		}, nil})
	}
	step := func(f func(g *Graph, a, b node) node) func(g *Graph, a, b node) node {
		return func(g *Graph, a, b node) node { return g.Mul(g.Add(a, b), f(g, a, b)) }
	}
	for _, b := range []struct {
		name string
		f    func(g *Graph, a, b node) node
	}{
		{"Pow", (*Graph).Pow}, {"Maximum", (*Graph).Maximum}, {"Minimum", (*Graph).Minimum},
		{"Less", step((*Graph).Less)}, {"LessEqual", step((*Graph).LessEqual)}, {"Equal", step((*Graph).Equal)},
	} {
		body := func(g *Graph, in []node) node { return b.f(g, in[0], in[1]) }
		for _, s := range [][2][]int{{{3, 4}, {3, 4}}, {{3, 1}, {4}}, {{}, {2, 3}}, {{}, {}}, {{0, 3}, {1}}} {
			cs = append(cs, opCase{fmt.Sprint(b.name, s), fixed(positive, s[0], s[1]), body, nil})
		}
	}
	return cs
}

func productCases() []opCase {
	var cs []opCase
	for _, tr := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		body := func(g *Graph, in []node) node { return g.MatMulT(in[0], in[1], tr[0], tr[1]) }
		swap := func(s []int, yes bool) []int {
			if n := len(s); yes {
				s = append(append([]int{}, s[:n-2]...), s[n-1], s[n-2])
			}
			return s
		}
		for _, s := range [][2][]int{
			{{3, 4}, {4, 5}}, {{1, 4}, {4, 1}}, {{3, 1}, {1, 5}}, {{1, 1}, {1, 1}},
			{{2, 3, 4}, {2, 4, 5}}, {{2, 3, 4}, {1, 4, 2}}, {{1, 3, 4}, {2, 4, 2}}, {{2, 3, 4}, {4, 2}}, {{3, 4}, {2, 4, 2}},
			{{2, 1, 3, 4}, {1, 2, 4, 2}}, {{2, 1, 2, 3}, {3, 3, 2}}, {{2, 2, 1, 4}, {2, 2, 4, 3}},
			{{0, 4}, {4, 2}}, {{3, 0}, {0, 2}}, {{0, 3, 4}, {4, 2}}, {{2, 3, 4}, {2, 4, 0}},
		} {
			c := opCase{fmt.Sprint("MatMul", s, tr), fixed(normal, swap(s[0], tr[0]), swap(s[1], tr[1])), body, nil}
			a, b := s[0], s[1]
			switch {
			case device.Shape(a).Elems()*device.Shape(b).Elems() == 0:
			case len(a) == 2 && len(b) == 2 && !tr[0] && !tr[1] && a[0] > 1 && b[1] > 1 && a[1] > 1:
				c.counterpart = func(in []node) (node, error) { return gorgonia.Mul(in[0], in[1]) }
			case len(a) == 3 && len(b) == 3 && a[0] == b[0]:
				c.counterpart = func(in []node) (node, error) { return gorgonia.BatchedMatMul(in[0], in[1], tr[0], tr[1]) }
			}
			cs = append(cs, c)
		}
		cs = append(cs, opCase{fmt.Sprint("MatMul of random shapes", tr), func(r *rand.Rand) []arg {
			d := extents(r, 4)
			return []arg{normal(r, swap([]int{d[3], d[0], d[1]}, tr[0])...), normal(r, swap([]int{d[3], d[1], d[2]}, tr[1])...)}
		}, body, nil}, opCase{fmt.Sprint("MatMul with itself", tr), fixed(normal, []int{3, 3}), func(g *Graph, in []node) node {
			return g.MatMulT(in[0], in[0], tr[0], tr[1])
		}, nil})
	}
	return cs
}

func reduceCases() []opCase {
	var cs []opCase
	for _, s := range []struct {
		shape, axes []int
		alt         bool
	}{
		{[]int{3, 4}, nil, true}, {[]int{3, 4}, []int{0}, true}, {[]int{3, 4}, []int{1}, true}, {[]int{3, 4}, []int{-1}, false},
		{[]int{2, 3, 4}, []int{1}, true}, {[]int{2, 3, 4}, []int{-3, 2}, false}, {[]int{2, 3, 4}, []int{2, 0}, false},
		{[]int{2, 1, 4}, []int{1}, false}, {[]int{1}, []int{0}, false}, {[]int{}, nil, false}, {[]int{5}, nil, false},
		{[]int{0, 3}, []int{1}, false},
	} {
		for _, f := range []struct {
			name string
			f    func(g *Graph, x node, axes ...int) node
			alt  func(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error)
		}{{"Sum", (*Graph).Sum, gorgonia.Sum}, {"Mean", (*Graph).Mean, gorgonia.Mean}, {"Max", (*Graph).Max, gorgonia.Max}} {
			c := opCase{fmt.Sprint(f.name, s.shape, s.axes), fixed(distinct, s.shape), func(g *Graph, in []node) node {
				return f.f(g, in[0], s.axes...)
			}, nil}
			if s.alt {
				c.counterpart = func(in []node) (node, error) { return f.alt(in[0], s.axes...) }
			}
			cs = append(cs, c)
		}
	}
	keep := func(fn kernels.ReduceFn, axes ...int) func(g *Graph, in []node) node {
		return func(g *Graph, in []node) node { return g.Apply(kernels.Reduce{Fn: fn, Axes: axes, Keep: true}, in[0]) }
	}
	none := func(g *Graph, in []node) node { return g.Apply(kernels.Reduce{Fn: kernels.Mean, Axes: []int{}}, in[0]) }
	return append(cs,
		opCase{"Sum of an empty axis", fixed(normal, []int{0, 3}), func(g *Graph, in []node) node { return g.Sum(in[0], 0) }, nil},
		opCase{"Sum keeping axes", fixed(normal, []int{2, 3}), keep(kernels.Sum, 0), nil},
		opCase{"Mean keeping axes", fixed(normal, []int{2, 3, 2}), keep(kernels.Mean, 0, 2), nil},
		opCase{"Max keeping axes", fixed(distinct, []int{2, 3}), keep(kernels.Max, 1), nil},
		opCase{"Mean over no axis", fixed(normal, []int{2, 3}), none, nil})
}

func moveCases() []opCase {
	one := func(f func(g *Graph, x node) node) func(g *Graph, in []node) node {
		return func(g *Graph, in []node) node { return f(g, in[0]) }
	}
	var cs []opCase
	for _, to := range [][]int{{6, 2}, {12}, {2, -1, 3}, {1, 12, 1}} {
		cs = append(cs, opCase{fmt.Sprint("Reshape", to), fixed(normal, []int{3, 4}), one(func(g *Graph, x node) node { return g.Reshape(x, to...) }), nil})
	}
	for _, b := range [][2][]int{{{3}, {2, 3}}, {{3, 1}, {3, 4}}, {{}, {2, 2}}, {{1, 1}, {4, 2, 3}}, {{2, 3}, {2, 3}}, {{3}, {0, 3}}, {{1}, {0}}} {
		cs = append(cs, opCase{fmt.Sprint("BroadcastTo", b), fixed(normal, b[0]), one(func(g *Graph, x node) node { return g.BroadcastTo(x, b[1]...) }), nil})
	}
	for _, p := range [][]int{nil, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {-1, 0, 1}, {0, 1, 2}} {
		c := opCase{fmt.Sprint("Transpose", p), fixed(normal, []int{2, 3, 4}), one(func(g *Graph, x node) node { return g.Transpose(x, p...) }), nil}
		if len(p) == 3 && p[0] >= 0 && p[0]+p[1] != 1 {
			c.counterpart = func(in []node) (node, error) { return gorgonia.Transpose(in[0], p...) }
		}
		cs = append(cs, c)
	}
	for _, s := range [][3]int{{0, 1, 3}, {1, 0, 2}, {-1, 2, 4}, {0, 2, 2}, {1, 0, 4}} {
		c := opCase{fmt.Sprint("Slice", s), fixed(normal, []int{3, 4}), one(func(g *Graph, x node) node { return g.Slice(x, s[0], s[1], s[2]) }), nil}
		if s[0] == 0 && s[1] == 1 {
			c.counterpart = func(in []node) (node, error) { return gorgonia.Slice(in[0], gorgonia.S(1, 3)) }
		}
		cs = append(cs, c)
	}
	concat := func(axis int) func(g *Graph, in []node) node {
		return func(g *Graph, in []node) node { return g.Concat(axis, in...) }
	}
	other := func(axis int) func(in []node) (node, error) {
		return func(in []node) (node, error) { return gorgonia.Concat(axis, in...) }
	}
	return append(cs,
		opCase{"Transpose of a matrix", fixed(normal, []int{3, 4}), one(func(g *Graph, x node) node { return g.Transpose(x) }),
			func(in []node) (node, error) { return gorgonia.Transpose(in[0]) }},
		opCase{"Reshape of nothing", fixed(normal, []int{0, 3}), one(func(g *Graph, x node) node { return g.Reshape(x, 5, 0) }), nil},
		opCase{"Reshape to a scalar", fixed(normal, []int{1, 1}), one(func(g *Graph, x node) node { return g.Reshape(x) }), nil},
		opCase{"Pad", fixed(normal, []int{2, 3}), one(func(g *Graph, x node) node { return g.Apply(kernels.Pad{Axis: 1, Before: 2, After: 1}, x) }), nil},
		opCase{"Concat 0", fixed(normal, []int{2, 3}, []int{1, 3}), concat(0), other(0)},
		opCase{"Concat 1", fixed(normal, []int{2, 3}, []int{2, 2}), concat(1), other(1)},
		opCase{"Concat of many", fixed(normal, []int{2, 1, 2}, []int{2, 0, 2}, []int{2, 3, 2}, []int{2, 1, 2}, []int{2, 2, 2}, []int{2, 1, 2}), concat(-2), nil},
		opCase{"Concat of one", fixed(normal, []int{2, 3}), concat(0), nil},
		opCase{"Concat with itself", fixed(normal, []int{2, 3}), func(g *Graph, in []node) node { return g.Concat(0, in[0], in[0]) }, nil})
}

func networkCases() []opCase {
	var cs []opCase
	for _, s := range []struct {
		shape []int
		axis  int
		alt   bool
	}{{[]int{3, 4}, 0, true}, {[]int{3, 4}, 1, true}, {[]int{3, 4}, -1, false}, {[]int{2, 3, 4}, 0, false}, {[]int{2, 3, 4}, 1, true},
		{[]int{2, 3, 4}, 2, true}, {[]int{5}, 0, false}, {[]int{3, 1}, 1, false}, {[]int{0, 3}, 1, false}, {[]int{3, 0}, 1, false}} {
		soft := opCase{fmt.Sprint("Softmax", s.shape, s.axis), fixed(normal, s.shape), func(g *Graph, in []node) node { return g.Softmax(in[0], s.axis) }, nil}
		log := opCase{fmt.Sprint("LogSoftmax", s.shape, s.axis), soft.in, func(g *Graph, in []node) node { return g.LogSoftmax(in[0], s.axis) }, nil}
		if s.alt {
			soft.counterpart = func(in []node) (node, error) { return gorgonia.SoftMax(in[0], s.axis) }
			log.counterpart = func(in []node) (node, error) { return gorgonia.LogSoftMax(in[0], s.axis) }
		}
		cs = append(cs, soft, log)
	}
	for _, d := range []device.Dtype{device.Int32, device.Int64} {
		for _, shape := range [][]int{{6}, {2, 3}, {}, {0}} {
			cs = append(cs, opCase{fmt.Sprint("Embedding ", d, shape), func(r *rand.Rand) []arg {
				return []arg{normal(r, 3, 2), ids(r, d, 3, shape...)} // six of three: some repeat
			}, func(g *Graph, in []node) node { return g.Embedding(in[0], in[1]) }, nil})
		}
		cs = append(cs, opCase{fmt.Sprint("CrossEntropy ", d), func(r *rand.Rand) []arg {
			n, classes := 1+r.IntN(4), 1+r.IntN(4)
			return []arg{normal(r, n, classes), ids(r, d, classes, n)}
		}, func(g *Graph, in []node) node { return g.CrossEntropy(in[0], in[1]) }, nil},
			opCase{fmt.Sprint("ScatterAdd ", d), func(r *rand.Rand) []arg { return []arg{ids(r, d, 4, 3), normal(r, 3, 2)} },
				func(g *Graph, in []node) node { return g.Apply(kernels.ScatterAdd{Rows: 4}, in[0], in[1]) }, nil})
	}
	norm := func(g *Graph, in []node) node { return g.LayerNorm(in[0], in[1], in[2], 1e-3) }
	return append(cs,
		opCase{"LayerNorm", fixed(normal, []int{3, 5}, []int{5}, []int{5}), norm, nil},
		opCase{"LayerNorm of three axes", fixed(normal, []int{2, 2, 4}, []int{4}, []int{4}), norm, nil},
		opCase{"LayerNorm of one element", fixed(normal, []int{3, 1}, []int{1}, []int{1}), norm, nil},
		opCase{"LayerNorm with parameters that broadcast", fixed(normal, []int{3, 5}, []int{1, 5}, []int{1}), norm, nil},
		opCase{"Linear", fixed(normal, []int{3, 4}, []int{4, 2}, []int{2}), func(g *Graph, in []node) node { return g.Linear(in[0], in[1], in[2]) },
			func(in []node) (node, error) {
				xw, err := gorgonia.Mul(in[0], in[1])
				if err != nil {
					return nil, err
				}
				b, err := gorgonia.Reshape(in[2], tensor.Shape{1, 2})
				if err != nil {
					return nil, err
				}
				return gorgonia.BroadcastAdd(xw, b, nil, []byte{0})
			}},
		opCase{"a perceptron with cross entropy", func(r *rand.Rand) []arg {
			return []arg{normal(r, 4, 3), normal(r, 3, 5), normal(r, 5), normal(r, 5, 3), normal(r, 3), ids(r, device.Int64, 3, 4)}
		}, func(g *Graph, in []node) node {
			return g.CrossEntropy(g.Linear(g.GELU(g.Linear(in[0], in[1], in[2])), in[3], in[4]), in[5])
		}, nil},
		opCase{"attention", fixed(normal, []int{2, 3, 4}, []int{2, 5, 4}, []int{2, 5, 3}), func(g *Graph, in []node) node {
			return g.MatMul(g.Softmax(g.Scale(g.MatMulT(in[0], in[1], false, true), 0.5), -1), in[2])
		}, nil})
}
