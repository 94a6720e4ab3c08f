package autodiff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

// specialCase is a random expression of special numbers. Values are numbered: the leaves first,
// then what each step makes.
type specialCase struct {
	dtype  device.Dtype
	leaves []nd
	steps  []specialStep
	gy     nd
}

type specialStep struct {
	op specialOp
	in []int
}

// specialNumber is any number, and often a special one; with a few of them expressions end in
// numbers more often than in NaN.
func specialNumber(r *rand.Rand, d device.Dtype, wild bool) float64 {
	most, normal, least := math.MaxFloat64, 0x1p-1022, 0x1p-1074
	if d == device.Float32 {
		most, normal, least = math.MaxFloat32, 0x1p-126, 0x1p-149
	}
	sign := 1 - 2*float64(r.IntN(2))
	switch n := r.IntN(24); {
	case n < 3 && wild:
		return sign * math.Inf(1)
	case n == 3 && wild:
		return math.NaN()
	case n == 4:
		return sign * most
	case n == 5:
		return sign * least
	case n == 6:
		return sign * normal
	case n == 7:
		return sign * roundingTo(d)(normal*r.Float64()) // subnormal
	case n < 11:
		return sign * 0
	case n < 14:
		return sign * float64(1+r.IntN(3))
	case n == 14:
		return sign * roundingTo(d)(math.Exp2((r.Float64()*2-1)*math.Log2(most)))
	case n == 15:
		return sign * 0.5
	}
	return roundingTo(d)(r.NormFloat64() * 3)
}

func specialND(r *rand.Rand, d device.Dtype, shape ...int) nd {
	x, wild := newND(shape), r.IntN(3) > 0
	for k := range x.v {
		x.v[k] = specialNumber(r, d, wild)
	}
	return x
}

func drawSpecial(r *rand.Rand, ops []specialOp) specialCase {
	c := specialCase{dtype: []device.Dtype{device.Float32, device.Float64}[r.IntN(2)]}
	shape := []int{1 + r.IntN(3), []int{1, 2, 3, 5, 8, 17, 33}[r.IntN(7)]}
	for range 1 + r.IntN(3) {
		c.leaves = append(c.leaves, specialND(r, c.dtype, shape...))
	}
	for n := 1 + r.IntN(4); n > 0; n-- {
		op := ops[r.IntN(len(ops))]
		if op.last && n > 1 {
			n++
			continue
		}
		s := specialStep{op: op}
		for range op.arity {
			s.in = append(s.in, r.IntN(len(c.leaves)+len(c.steps)))
		}
		if n == 1 && r.IntN(2) == 0 { // most expressions go on with what was made
			s.in[0] = len(c.leaves) + len(c.steps) - 1
		}
		c.steps = append(c.steps, s)
	}
	last := &c.steps[len(c.steps)-1]
	shape = []int{shape[0], shape[1]}
	switch last.op.instr.(type) {
	case kernels.MatMul: // the right factor is a leaf of its own
		right := specialND(r, c.dtype, shape[1], 1+r.IntN(4))
		for k := range c.steps {
			for j, v := range c.steps[k].in {
				if v >= len(c.leaves) {
					c.steps[k].in[j]++
				}
			}
		}
		last.in[1] = len(c.leaves)
		c.leaves = append(c.leaves, right)
		shape[1] = right.shape[1]
	case kernels.Reduce:
		shape = shape[:1]
	}
	c.gy = specialND(r, c.dtype, shape...)
	return c
}

func (c specialCase) String() string {
	s := fmt.Sprintf("%v of %d leaves %v:", c.dtype, len(c.leaves), c.leaves[0].shape)
	for k, st := range c.steps {
		s += fmt.Sprintf(" v%d = %v%v;", len(c.leaves)+k, st.op.instr, st.in)
	}
	return s
}

// body is the case as a function.
func (c specialCase) body(g *Graph, in []node) []node {
	for _, s := range c.steps {
		var xs []node
		for _, v := range s.in {
			xs = append(xs, in[v])
		}
		in = append(in[:len(in):len(in)], g.Apply(s.op.instr, xs...))
	}
	return in[len(in)-1:]
}

// specialRun is what the library makes of a case: every value, and every gradient that there is.
type specialRun struct {
	values, grads []nd
	tracked       []bool // by value: it gets a gradient
}

func (c specialCase) inputs(place func(*Tensor) *Tensor) (in []*Tensor) {
	for _, l := range c.leaves {
		in = append(in, place(tensorOf(l, c.dtype)).RequireGrad())
	}
	return in
}

// eagerly runs the case op by op.
func (c specialCase) eagerly(t testing.TB, place func(*Tensor) *Tensor) specialRun {
	t.Helper()
	vals := c.inputs(place)
	for _, s := range c.steps {
		var xs []*Tensor
		for _, v := range s.in {
			xs = append(xs, vals[v])
		}
		vals = append(vals, Run(s.op.instr, xs...))
	}
	run := specialRun{grads: make([]nd, len(vals))}
	for k, v := range vals {
		run.values, run.tracked = append(run.values, nd{v.Shape(), numbers(t, v)}), append(run.tracked, v.RequiresGrad())
		if v.RequiresGrad() && k >= len(c.leaves) {
			_, err := v.OnGrad(func(g *Tensor) *Tensor {
				run.grads[k] = nd{g.Shape(), numbers(t, g)}
				return nil
			})
			require.NoError(t, err)
		}
	}
	c.back(t, place, vals[len(vals)-1], vals[:len(c.leaves)], run.grads)
	return run
}

// back pulls the gradient of y back, and notes those of the leaves.
func (c specialCase) back(t testing.TB, place func(*Tensor) *Tensor, y *Tensor, leaves []*Tensor, grads []nd) {
	t.Helper()
	if !y.RequiresGrad() {
		return
	}
	g, err := BackwardWith(Options{Grads: []*Tensor{place(tensorOf(c.gy, c.dtype))}}, y)
	require.NoError(t, err)
	for k, l := range leaves {
		if d := g.Of(l); d != nil {
			grads[k] = nd{d.Shape(), numbers(t, d)}
		}
	}
}

// compiled runs the case as one function.
func (c specialCase) compiled(t testing.TB, place func(*Tensor) *Tensor) specialRun {
	t.Helper()
	f := &Func{name: "special", arity: -1, build: c.body}
	in := c.inputs(place)
	y := f.Call(in...)
	run := specialRun{values: []nd{{y.Shape(), numbers(t, y)}}, grads: make([]nd, len(in))}
	c.back(t, place, y, in, run.grads)
	return run
}

// check compares each step with its rule, given what the library has made of the steps before, and
// of those after of gradients. It says what is wrong first, what every gradient has to be, and how
// many elements it looked at.
func (c specialCase) check(run specialRun, units float64) (wrong string, sums [][]expected, looked int) {
	r := roundingTo(c.dtype)
	sums = make([][]expected, len(run.values))
	last := len(run.values) - 1
	for _, v := range c.gy.v {
		sums[last] = append(sums[last], expected{terms: []float64{v}})
	}
	for k := len(c.steps) - 1; k >= 0; k-- {
		s, at := c.steps[k], len(c.leaves)+k
		var in []nd
		for _, v := range s.in {
			in = append(in, run.values[v])
		}
		for e, want := range s.op.y(r, in) {
			if got := run.values[at].v[e]; !want.agrees(got, c.dtype, units) {
				return fmt.Sprintf("v%d[%d] is %v, want %v", at, e, got, want), sums, looked
			}
			looked++
		}
		gy := run.grads[at]
		if gy.v == nil || s.op.grad == nil {
			continue
		}
		for j, v := range s.in {
			for e, more := range s.op.grad(r, in, run.values[at], gy, j) {
				if len(sums[v]) == e {
					sums[v] = append(sums[v], expected{})
				}
				sum := &sums[v][e]
				sum.terms = append(sum.terms, more.terms...)
				sum.off += more.off
				sum.relative = max(sum.relative, more.relative)
				sum.anything = sum.anything || more.anything
			}
		}
	}
	for v, sum := range sums {
		for e, want := range sum {
			if !run.tracked[v] {
				continue
			}
			got := 0.0 // where nothing has come
			if run.grads[v].v != nil {
				got = run.grads[v].v[e]
			}
			if !want.agrees(got, c.dtype, units) {
				return fmt.Sprintf("the gradient of v%d[%d] is %v, want %v", v, e, got, want), sums, looked
			}
			looked++
		}
	}
	return "", sums, looked
}

// alike says where a compiled run differs from one op by op: by more than the order of sums
// explains, and the joining of two factors into one.
func (c specialCase) alike(eager, compiled specialRun, sums [][]expected, units float64) string {
	for e, w := range eager.values[len(eager.values)-1].v {
		if got := compiled.values[0].v[e]; !(expected{terms: []float64{w}}).agrees(got, c.dtype, units) {
			return fmt.Sprintf("compiled, the result[%d] is %v, want %v", e, got, w)
		}
	}
	for k := range c.leaves {
		for e, w := range eager.grads[k].v {
			got, size := 0.0, 0.0
			if compiled.grads[k].v != nil {
				got = compiled.grads[k].v[e]
			}
			for _, t := range sums[k][e].terms {
				size += finiteOr0(t)
			}
			want := expected{terms: []float64{w}, off: units * size, anything: len(sums[k][e].terms) > 1 && math.IsInf(roundingTo(c.dtype)(2*size), 0)}
			if !want.agrees(got, c.dtype, units) {
				return fmt.Sprintf("compiled, the gradient of leaf %d[%d] is %v, want %v", k, e, got, w)
			}
		}
	}
	return ""
}

// testSpecial takes by how many units results may be off in float32, and in float64.
func testSpecial(t *testing.T, cases int, place func(*Tensor) *Tensor, in32, in64 float64) {
	t.Helper()
	ops, looked := specialOps(scalarRules()), 0
	for n := range cases {
		c := drawSpecial(rng(uint64(n)), ops)
		units := in32
		if c.dtype == device.Float64 {
			units = in64
		}
		eager := c.eagerly(t, place)
		wrong, sums, did := c.check(eager, units)
		if wrong == "" {
			wrong = c.alike(eager, c.compiled(t, place), sums, units)
		}
		require.Empty(t, wrong, "case %d, %v", n, c)
		looked += did
	}
	t.Logf("%d expressions, %d elements of results and gradients", cases, looked)
}

func TestRandomExpressionsOfSpecialNumbersFollowTheRules(t *testing.T) {
	testSpecial(t, soak.Cases(500), here, 40, 40)
}

func TestTheRulesOfSpecialNumbersSeeWhatIsWrong(t *testing.T) {
	plant := func(of kernels.Instr, wrong func(s *scalarRule)) []specialOp {
		rules := scalarRules()
		k := slices.IndexFunc(rules, func(s scalarRule) bool { return s.instr == of })
		wrong(&rules[k])
		return specialOps(rules)
	}
	grad := func(wrong func(r rounding, a, b, y, gy float64) [2]float64) func(s *scalarRule) {
		return func(s *scalarRule) { s.grad = wrong }
	}
	is := func(b bool) float64 { return map[bool]float64{true: 1}[b] }
	for what, ops := range map[string][]specialOp{
		"a product with a mask": plant(kernels.Binary{Fn: kernels.Maximum}, grad(func(r rounding, a, b, _, gy float64) [2]float64 {
			first := is(!(a < b)) - is(a == b)/2
			return [2]float64{r(gy * first), r(gy * (1 - first))}
		})),
		"1/b that overflows": plant(kernels.Binary{Fn: kernels.Div}, grad(func(r rounding, _, b, y, gy float64) [2]float64 {
			return [2]float64{r(gy / b), -r(r(gy/b) * y)}
		})),
		"a ReLU that stops NaN": plant(kernels.Unary{Fn: kernels.Relu}, grad(func(_ rounding, x, _, _, gy float64) [2]float64 {
			return [2]float64{map[bool]float64{true: gy}[x > 0]}
		})),
		"a logarithm of subnormal numbers": plant(kernels.Unary{Fn: kernels.Log}, func(s *scalarRule) {
			right := s.y
			s.y = func(r rounding, x, _ float64) float64 {
				if x > 0 && x < 0x1p-1022 {
					return -709.09
				}
				return right(r, x, 0)
			}
		}),
		"the sign of a zero": plant(kernels.Unary{Fn: kernels.Neg}, func(s *scalarRule) {
			s.y = func(_ rounding, x, _ float64) float64 { return 0 - x }
		}),
	} {
		found := false
		for n := 0; n < 500 && !found; n++ { // as many as the test above draws
			c := drawSpecial(rng(uint64(n)), ops)
			wrong, _, _ := c.check(c.eagerly(t, here), 40)
			found = wrong != ""
		}
		require.True(t, found, what)
	}
}

func TestOnAGPURandomExpressionsOfSpecialNumbersFollowTheRules(t *testing.T) {
	dev, err := gpu.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	testSpecial(t, soak.Cases(40), func(x *Tensor) *Tensor { return To(x, dev) }, 100, 4000)
}
