package autodiff

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// specialOp is an op with rules: what every element of its result has to be, given its operands;
// and what it has to add to the gradient of every element of operand j, given the result and its
// gradient too.
type specialOp struct {
	instr kernels.Instr
	arity int
	last  bool // its result has another shape
	y     func(r rounding, in []nd) []expected
	grad  func(r rounding, in []nd, y, gy nd, j int) []expected // nil where none flows
}

func specialOps(rules []scalarRule) []specialOp {
	var ops []specialOp
	for _, s := range rules {
		ops = append(ops, s.op())
	}
	return append(ops, softmaxRule(false), softmaxRule(true), sumRule(kernels.Sum), sumRule(kernels.Mean), maxRule(), productRule())
}

// op is a rule of elements for tensors of one shape.
func (s scalarRule) op() specialOp {
	o := specialOp{instr: s.instr, arity: 1}
	if _, ok := s.instr.(kernels.Binary); ok {
		o.arity = 2
	}
	at := func(in []nd, k int) (a, b float64) {
		if a = in[0].v[k]; o.arity == 2 {
			b = in[1].v[k]
		}
		return a, b
	}
	o.y = func(r rounding, in []nd) (es []expected) {
		for k := range in[0].v {
			a, b := at(in, k)
			e := expected{terms: []float64{s.y(r, a, b)}, off: s.slack, exact: s.exact, zeros: s.zeros}
			e.relative = s.powers(a, b)
			es = append(es, e)
		}
		return es
	}
	if s.grad != nil {
		o.grad = func(r rounding, in []nd, y, gy nd, j int) (es []expected) {
			for k := range in[0].v {
				a, b := at(in, k)
				es = append(es, expected{terms: []float64{s.grad(r, a, b, y.v[k], gy.v[k])[j]}, off: s.slack * finiteOr0(gy.v[k]), relative: s.powers(a, b)})
			}
			return es
		}
	}
	return o
}

// powers is by how much of the value package math's powers may be off.
func (s scalarRule) powers(a, b float64) float64 {
	if s.instr != (kernels.Binary{Fn: kernels.Pow}) {
		return 0
	}
	return 3e-16 * min((1+finiteOr0(b))*(1+finiteOr0(ruleLog(math.Abs(a)))), 1e9)
}

// eachRow calls fn with the elements of each row of a matrix.
func eachRow(x nd, fn func(row int, of []float64)) {
	c := x.shape[1]
	for row := range x.shape[0] {
		fn(row, x.v[row*c:(row+1)*c])
	}
}

// softmaxRule is that of softmax, or of its logarithm, along rows. What is NaN in a row, or ∞,
// makes all of it NaN.
func softmaxRule(log bool) specialOp {
	o := specialOp{instr: kernels.Softmax{Axis: 1, Log: log}, arity: 1}
	o.y = func(r rounding, in []nd) (es []expected) {
		eachRow(in[0], func(_ int, x []float64) {
			m, s := math.Inf(-1), 0.0
			for _, v := range x {
				m = math.Max(m, v)
				if v != v {
					m = v
				}
			}
			for _, v := range x {
				s += math.Exp(r(v - m))
			}
			for _, v := range x {
				d := r(v - m)
				if log {
					l := math.Log(s)
					es = append(es, expected{terms: []float64{r(d - l)}, off: 4*(math.Abs(l)+1) + 4*finiteOr0(d)})
				} else {
					es = append(es, expected{terms: []float64{r(math.Exp(d) / s)}, relative: 0x1p-23 * min(finiteOr0(d), 110) * softly(r)})
				}
			}
		})
		return es
	}
	o.grad = func(r rounding, in []nd, y, gy nd, _ int) (es []expected) {
		eachRow(y, func(row int, y []float64) {
			g := gy.v[row*len(y):][:len(y)]
			s, size, overflows := 0.0, 0.0, false
			for k, v := range g {
				t := v
				if !log {
					t = v * y[k]
				}
				s += t
				size += finiteOr0(t)
			}
			overflows = r(2*size) > math.MaxFloat64 || math.IsInf(r(2*size), 0)
			for k, v := range g {
				e := expected{anything: overflows}
				if log {
					e.terms, e.off = []float64{r(v - r(math.Exp(y[k])*r(s)))}, 8*(finiteOr0(v)+size)
				} else {
					e.terms, e.off = []float64{r(y[k] * r(v-r(s)))}, 8*finiteOr0(y[k])*(finiteOr0(v)+size)
				}
				es = append(es, e)
			}
		})
		return es
	}
	return o
}

// softly is 1 where elements are float32, whose differences are rounded before they are exponents.
func softly(r rounding) float64 {
	if r(1+0x1p-50) == 1 {
		return 1
	}
	return 0x1p-29
}

// finiteOr0 is |v| where that is a number.
func finiteOr0(v float64) float64 {
	if v-v != 0 {
		return 0
	}
	return math.Abs(v)
}

// sumRule is that of sums or means of rows.
func sumRule(fn kernels.ReduceFn) specialOp {
	o := specialOp{instr: kernels.Reduce{Fn: fn, Axes: []int{1}}, arity: 1, last: true}
	by := func(x nd) float64 {
		if fn == kernels.Mean {
			return float64(x.shape[1])
		}
		return 1
	}
	o.y = func(_ rounding, in []nd) (es []expected) {
		eachRow(in[0], func(_ int, x []float64) {
			e := expected{}
			for _, v := range x {
				e.terms = append(e.terms, v/by(in[0]))
				e.anything = e.anything || finiteOr0(v) > math.MaxFloat64/2/float64(len(x))
			}
			es = append(es, e)
		})
		return es
	}
	o.grad = func(r rounding, in []nd, _, gy nd, _ int) (es []expected) {
		for k := range in[0].v {
			es = append(es, expected{terms: []float64{r(gy.v[k/in[0].shape[1]] / by(in[0]))}})
		}
		return es
	}
	return o
}

// maxRule is that of the largest of a row. Ties share, and so do NaN where there are some:
// PyTorch's max does so too, its amax gives NaN.
func maxRule() specialOp {
	o := specialOp{instr: kernels.Reduce{Fn: kernels.Max, Axes: []int{1}}, arity: 1, last: true}
	of := func(x []float64) (m float64, is []bool, ties float64) {
		m, is = math.Inf(-1), make([]bool, len(x))
		for _, v := range x {
			if m = math.Max(m, v); v != v {
				m = v
				break
			}
		}
		for k, v := range x {
			if is[k] = v == m || v != v && m != m; is[k] {
				ties++
			}
		}
		return m, is, ties
	}
	o.y = func(_ rounding, in []nd) (es []expected) {
		eachRow(in[0], func(_ int, x []float64) {
			m, _, _ := of(x)
			es = append(es, expected{terms: []float64{m}, exact: true})
		})
		return es
	}
	o.grad = func(r rounding, in []nd, _, gy nd, _ int) (es []expected) {
		eachRow(in[0], func(row int, x []float64) {
			_, is, ties := of(x)
			for _, is := range is {
				e := expected{terms: []float64{0}}
				if is {
					e.terms[0] = r(gy.v[row] / ties)
				}
				es = append(es, e)
			}
		})
		return es
	}
	return o
}

// productRule is that of a product of matrices: every product of two elements is a term, those with
// 0 too.
func productRule() specialOp {
	o := specialOp{instr: kernels.MatMul{}, arity: 2, last: true}
	dots := func(rows, cols, terms int, term func(i, j, l int) (a, b float64)) (es []expected) {
		for i := range rows {
			for j := range cols {
				e := expected{}
				for l := range terms {
					a, b := term(i, j, l)
					e.terms = append(e.terms, a*b)
					e.anything = e.anything || a-a == 0 && b-b == 0 && math.IsInf(a*b, 0)
				}
				es = append(es, e)
			}
		}
		return es
	}
	o.y = func(_ rounding, in []nd) []expected {
		n, m := in[0].shape[1], in[1].shape[1]
		return dots(in[0].shape[0], m, n, func(i, j, l int) (a, b float64) { return in[0].v[i*n+l], in[1].v[l*m+j] })
	}
	o.grad = func(_ rounding, in []nd, _, gy nd, j int) []expected {
		rows, n, m := in[0].shape[0], in[0].shape[1], in[1].shape[1]
		if j == 0 {
			return dots(rows, n, m, func(i, j, l int) (a, b float64) { return gy.v[i*m+l], in[1].v[j*m+l] })
		}
		return dots(n, m, rows, func(i, j, l int) (a, b float64) { return in[0].v[l*n+i], gy.v[l*m+j] })
	}
	return o
}

// roundingTo is that of a dtype.
func roundingTo(d device.Dtype) rounding {
	if d == device.Float32 {
		return func(v float64) float64 { return float64(float32(v)) }
	}
	return func(v float64) float64 { return v }
}
