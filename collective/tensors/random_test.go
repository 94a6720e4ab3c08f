package tensors

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/rpc"
)

// program is a random computation of all members: each step gives every member a further matrix, or
// none. In one process a step is a function of all members' matrices, on a worker of its own.
type program struct {
	r       *rand.Rand
	size    int
	groups  [][]int // their members
	steps   []step
	params  [][]float64
	shapes  []device.Shape // of the parameters, by rank
	losses  [][]int        // the variables in each member's loss
	returns []bool         // the member's loss is there
}

type step struct {
	what  string
	whole func(vars [][]*autodiff.Tensor) []*autodiff.Tensor // of all members: vars[v][rank] → by rank
	mine  func(c context.Context, w *world, gs [][]*collective.Group, r int, vars []*autodiff.Tensor) (*autodiff.Tensor, error)
}

// remote is a function that is called on another worker, in the caller's pass.
var remote = rpc.Define("remote", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
	return distant(x), nil
})

func distant(x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.Scale(autodiff.Sin(x), 0.7)
}

// blend mixes two matrices of any shapes into one like the first.
func blend(a, b *autodiff.Tensor, f float64) *autodiff.Tensor {
	more := autodiff.BroadcastTo(autodiff.Reshape(autodiff.Scale(autodiff.Sum(b), f/float64(max(1, b.Shape().Elems()))), 1, 1), a.Shape()...)
	return autodiff.Tanh(autodiff.Add(a, more))
}

func newProgram(r *rand.Rand, size int) *program {
	p := &program{r: r, size: size, groups: [][]int{nil}, params: make([][]float64, size), losses: make([][]int, size)}
	for k := range size {
		p.groups[0] = append(p.groups[0], k)
	}
	if size > 2 { // overlapping ones
		p.groups = append(p.groups, []int{0, 1}, p.groups[0][1:])
	}
	for range size {
		p.shapes = append(p.shapes, device.Shape{1 + r.IntN(4), 3})
	}
	if r.IntN(2) == 0 {
		for k := range p.shapes {
			p.shapes[k] = p.shapes[0]
		}
	}
	for k := range size {
		for range p.shapes[k].Elems() {
			p.params[k] = append(p.params[k], r.NormFloat64())
		}
	}
	return p
}

// leaves are the parameters of a member; nil for a member that has a constant.
func (p *program) leaf(k int) *autodiff.Tensor { return autodiff.New(p.params[k], p.shapes[k]...) }

// some is a variable for each member: one and the same, or different ones.
func (p *program) some(n int) []int {
	all := make([]int, p.size)
	all[0] = p.r.IntN(n)
	for k := range all[1:] {
		if all[k+1] = all[0]; p.r.IntN(2) == 0 {
			all[k+1] = p.r.IntN(n)
		}
	}
	return all
}

// draw adds a step to what there is, if that can be.
func (p *program) draw(vars [][]*autodiff.Tensor) (s step, ok bool) {
	r := p.r
	a, b := p.some(len(vars)), p.some(len(vars))
	f := r.NormFloat64()
	switch r.IntN(10) {
	case 0, 1, 2:
		return step{"blend", func(v [][]*autodiff.Tensor) []*autodiff.Tensor {
			out := make([]*autodiff.Tensor, p.size)
			for k := range out {
				if v[a[k]][k] != nil && v[b[k]][k] != nil {
					out[k] = blend(v[a[k]][k], v[b[k]][k], f)
				}
			}
			return out
		}, func(_ context.Context, _ *world, _ [][]*collective.Group, k int, v []*autodiff.Tensor) (*autodiff.Tensor, error) {
			if v[a[k]] == nil || v[b[k]] == nil {
				return nil, nil
			}
			return blend(v[a[k]], v[b[k]], f), nil
		}}, true
	case 3:
		return step{"call", func(v [][]*autodiff.Tensor) []*autodiff.Tensor {
			out := make([]*autodiff.Tensor, p.size)
			for k := range out {
				if v[a[k]][k] != nil {
					out[k] = distant(v[a[k]][k])
				}
			}
			return out
		}, func(c context.Context, w *world, _ [][]*collective.Group, k int, v []*autodiff.Tensor) (*autodiff.Tensor, error) {
			if v[a[k]] == nil {
				return nil, nil
			}
			return remote.Call(c, w.ws[(k+1)%p.size].Name(), v[a[k]])
		}}, true
	}
	which := r.IntN(len(p.groups))
	have := make([]*autodiff.Tensor, p.size)
	for k := range have {
		have[k] = vars[a[k]][k]
	}
	return p.collective(which, r.IntN(kinds), a, have)
}

// kinds is how many operations there are.
const kinds = 10

// collective draws an operation of that kind of a group on what its members have.
func (p *program) collective(which, kind int, a []int, have []*autodiff.Tensor) (s step, ok bool) {
	r, members := p.r, p.groups[which]
	root, dim := r.IntN(len(members)), r.IntN(2)
	equal, fit := true, true
	for _, k := range members {
		if have[k] == nil {
			return s, false
		}
		equal = equal && have[k].Shape().Equal(have[members[0]].Shape())
		fit = fit && have[k].Shape()[1-dim] == have[members[0]].Shape()[1-dim]
	}
	ops := []collective.Op{collective.Sum, collective.Mean, collective.Scaled(0.3), collective.Prod, collective.Max, collective.Min}
	op := ops[r.IntN(len(ops))]
	type call = func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor
	type oracle = func(xs []*autodiff.Tensor) []*autodiff.Tensor
	var mine call
	var whole oracle
	copies := func(y *autodiff.Tensor, at func(i int) bool) []*autodiff.Tensor {
		out := make([]*autodiff.Tensor, len(members))
		for i := range out {
			if at(i) {
				out[i] = y
			}
		}
		return out
	}
	all, atRoot := func(int) bool { return true }, func(i int) bool { return i == root }
	shares := func(y *autodiff.Tensor, dim int) []*autodiff.Tensor {
		out := make([]*autodiff.Tensor, len(members))
		for i := range out {
			lo, hi := collective.Share(y.Shape()[dim], len(members), i)
			out[i] = autodiff.Slice(y, dim, lo, hi)
		}
		return out
	}
	if !equal && kind != 1 && kind != 3 && kind != 4 && kind != 9 || !fit && (kind == 1 || kind == 3) {
		return s, false
	}
	name := ""
	switch kind {
	case 0:
		name, mine = fmt.Sprint("AllReduce ", op), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return AllReduce(c, g, x, op)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor { return copies(defined(op, xs), all) }
	case 1:
		name, mine = fmt.Sprint("AllGather ", dim), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return AllGather(c, g, x, dim)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor { return copies(autodiff.Concat(dim, xs...), all) }
	case 2:
		name, mine = fmt.Sprint("ReduceScatter ", dim, op), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return ReduceScatter(c, g, x, dim, op)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor { return shares(defined(op, xs), dim) }
	case 3:
		name, mine = fmt.Sprint("Gather ", dim, root), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return Gather(c, g, x, dim-2, root)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor {
			return copies(autodiff.Concat(dim, xs...), atRoot)
		}
	case 4:
		for _, k := range members {
			if have[k].Shape()[1] != have[members[0]].Shape()[1] {
				return s, false
			}
		}
		cuts := make([][]int, len(members))
		for i, k := range members {
			left := have[k].Shape()[0]
			for range members[1:] {
				n := r.IntN(left + 1)
				cuts[i], left = append(cuts[i], n), left-n
			}
			cuts[i] = append(cuts[i], left)
		}
		name, mine = fmt.Sprint("AllToAll ", cuts), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return AllToAll(c, g, x, cuts[g.Rank()]...)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor {
			out := make([]*autodiff.Tensor, len(members))
			at := make([]int, len(members))
			for to := range members {
				var rows []*autodiff.Tensor
				for from := range members {
					rows = append(rows, autodiff.Slice(xs[from], 0, at[from], at[from]+cuts[from][to]))
					at[from] += cuts[from][to]
				}
				out[to] = autodiff.Concat(0, rows...)
			}
			return out
		}
	case 5:
		name, mine = fmt.Sprint("Broadcast ", root), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return Broadcast(c, g, x, root)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor { return copies(xs[root], all) }
	case 6:
		name, mine = fmt.Sprint("Reduce ", root, op), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return Reduce(c, g, x, op, root)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor { return copies(defined(op, xs), atRoot) }
	case 7:
		name, mine = fmt.Sprint("Scatter ", dim, root), func(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
			return Scatter(c, g, x, dim, root)
		}
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor { return shares(xs[root], dim) }
	case 8:
		name, mine = "Enter", Enter
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor {
			more := make([]*autodiff.Tensor, len(xs)) // zero, with a gradient
			for i, x := range xs {
				more[i] = autodiff.Sub(x, x.Detach())
			}
			out := make([]*autodiff.Tensor, len(xs))
			for i := range xs {
				out[i] = autodiff.Add(xs[i].Detach(), defined(collective.Sum, more))
			}
			return out
		}
	case 9:
		if !equal {
			return s, false
		}
		name, mine = "Leave", Leave
		whole = func(xs []*autodiff.Tensor) []*autodiff.Tensor {
			sum := defined(collective.Sum, xs).Detach()
			out := make([]*autodiff.Tensor, len(xs))
			for i, x := range xs {
				out[i] = autodiff.Add(sum, autodiff.Sub(x, x.Detach()))
			}
			return out
		}
	}
	return step{fmt.Sprintf("%s of %v in %v", name, a, members), func(v [][]*autodiff.Tensor) []*autodiff.Tensor {
		xs := make([]*autodiff.Tensor, len(members))
		for i, k := range members {
			xs[i] = v[a[k]][k]
		}
		out := make([]*autodiff.Tensor, p.size)
		for i, y := range whole(xs) {
			out[members[i]] = y
		}
		return out
	}, func(c context.Context, _ *world, gs [][]*collective.Group, k int, v []*autodiff.Tensor) (*autodiff.Tensor, error) {
		if gs[which][k] == nil {
			return nil, nil
		}
		y := mine(c, gs[which][k], v[a[k]])
		if y == nil {
			return nil, nil
		}
		return y, y.Err()
	}}, true
}

// defined is the sum of tensors, or what else op makes of them, in the order of ranks.
func defined(op collective.Op, xs []*autodiff.Tensor) *autodiff.Tensor {
	if op == collective.Max || op == collective.Min {
		rows := make([]*autodiff.Tensor, len(xs))
		for i, x := range xs {
			if rows[i] = autodiff.Reshape(x, append([]int{1}, x.Shape()...)...); op == collective.Min {
				rows[i] = autodiff.Neg(rows[i])
			}
		}
		y := autodiff.Max(autodiff.Concat(0, rows...), 0)
		if op == collective.Min {
			y = autodiff.Neg(y)
		}
		return y
	}
	y := xs[0]
	for _, x := range xs[1:] {
		if op == collective.Prod {
			y = autodiff.Mul(y, x)
		} else {
			y = autodiff.Add(y, x)
		}
	}
	if w, ok := op.Weight(len(xs)); ok {
		y = autodiff.Scale(y, w)
	}
	return y
}

// loss is of what a member has of the variables in its loss; of none it is zero times its leaf.
func loss(leaf *autodiff.Tensor, vars []*autodiff.Tensor, in []int) *autodiff.Tensor {
	l := autodiff.Scale(autodiff.Sum(leaf), 0)
	for i, v := range in {
		if vars[v] != nil {
			l = autodiff.Add(l, autodiff.Scale(autodiff.Sum(autodiff.Mul(vars[v], vars[v])), 1/float64(i+2)))
		}
	}
	return l
}

// whole draws the program up to so many steps, and computes all gradients in one process.
func (p *program) whole(t *testing.T, steps int) [][]float64 {
	leaves := make([]*autodiff.Tensor, p.size)
	for k := range leaves {
		leaves[k] = p.leaf(k)
		if p.r.IntN(5) > 0 || k == 0 {
			leaves[k].RequireGrad()
		}
	}
	p.returns = make([]bool, p.size)
	for k := range leaves {
		p.returns[k] = leaves[k].RequiresGrad()
	}
	vars := [][]*autodiff.Tensor{leaves}
	for _, s := range p.steps {
		vars = append(vars, s.whole(vars))
	}
	for tries := 0; len(p.steps) < steps && tries < 20*steps; tries++ {
		if s, ok := p.draw(vars); ok {
			p.steps = append(p.steps, s)
			vars = append(vars, s.whole(vars))
		}
	}
	var total *autodiff.Tensor
	for k := range p.size {
		for v := range vars {
			if steps > 0 && p.r.IntN(4) == 0 {
				p.losses[k] = append(p.losses[k], v)
			}
		}
		var mine []*autodiff.Tensor
		for _, v := range vars {
			mine = append(mine, v[k])
		}
		l := loss(leaves[0], mine, p.losses[k])
		if total == nil {
			total = l
		} else {
			total = autodiff.Add(total, l)
		}
	}
	grads, err := autodiff.Backward(total)
	require.NoError(t, err)
	out := make([][]float64, p.size)
	for k, l := range leaves {
		if g := grads.Of(l); g != nil {
			out[k], err = autodiff.Values[float64](g)
			require.NoError(t, err)
		}
	}
	return out
}

// run computes a member's part on its worker.
func (p *program) run(c context.Context, w *world, gs [][]*collective.Group, k int, o ctx.Options) ([]float64, error) {
	leaf, own := p.leaf(k), autodiff.New([]float64{1}).RequireGrad()
	if p.returns[k] {
		leaf.RequireGrad()
	}
	vars := []*autodiff.Tensor{leaf}
	for i, s := range p.steps {
		y, err := s.mine(c, w, gs, k, vars)
		if err != nil {
			return nil, fmt.Errorf("step %d, %s: %w", i, s.what, err)
		}
		vars = append(vars, y)
	}
	l := loss(own, vars, p.losses[k])
	if o.RetainGraph { // once more
		if err := ctx.BackwardWith(c, o, l); err != nil {
			return nil, err
		}
		o.RetainGraph = false
	}
	if err := ctx.BackwardWith(c, o, l); err != nil {
		return nil, err
	}
	return gradientOf(c, leaf)
}

func TestGradientsAreThoseOfOneProcessOnBothSidesOfEveryThreshold(t *testing.T) {
	const size = 3
	w := newWorld(t, size)
	gs := [][]*collective.Group{w.group("g")}
	sizes := thresholds.Around(thresholds.Groups)
	for kind := range kinds {
		for i := range 4 {
			r := rand.New(rand.NewPCG(uint64(kind), uint64(i)))
			threshold, side := sizes.Next()
			n := threshold.Elems(8, side)
			if n > 1<<14 { // of all members together
				n = (n-side)/size + side
			}
			p := newProgram(r, size)
			p.shapes = nil
			for k := range size {
				p.shapes = append(p.shapes, device.Shape{n, 1})
				if i%2 == 0 {
					p.shapes[k] = device.Shape{2, n}
				}
				p.params[k] = make([]float64, p.shapes[k].Elems())
				for j := range p.params[k] {
					p.params[k][j] = r.NormFloat64()
				}
			}
			s, ok := p.collective(0, kind, make([]int, size), []*autodiff.Tensor{p.leaf(0), p.leaf(1), p.leaf(2)})
			require.True(t, ok)
			p.steps = []step{s}
			p.losses = [][]int{{1}, {1}, {0, 1}}
			want := p.whole(t, 0)
			w.eachPass(func(c context.Context, k int) error {
				got, err := p.run(c, w, gs, k, ctx.Options{})
				if err != nil {
					return err
				}
				return close6(got, want[k], s.what)
			})
		}
	}
	require.Empty(t, sizes.Missing())
}

func TestGradientsOfRandomGraphsWithCallsAreThoseOfOneProcess(t *testing.T) {
	for size := 2; size <= 4; size++ {
		t.Run(fmt.Sprintf("p=%d", size), func(t *testing.T) {
			w := newWorld(t, size, remote)
			var gs [][]*collective.Group
			for i, ranks := range newProgram(rand.New(rand.NewPCG(1, 1)), size).groups {
				gs = append(gs, w.group(fmt.Sprint("g", i), ranks...))
			}
			for i := range soak.Cases(60) {
				r := rand.New(rand.NewPCG(uint64(size), uint64(i)))
				p := newProgram(r, size)
				want := p.whole(t, 2+r.IntN(12))
				what := fmt.Sprintf("p=%d, case %d:", size, i)
				for k, s := range p.steps {
					what += fmt.Sprintf("\n%d: %s", k+1, s.what)
				}
				what += fmt.Sprint("\nlosses of ", p.losses)
				o := ctx.Options{RetainGraph: i%4 == 0, Anomaly: i%3 == 0}
				if o.RetainGraph { // gradients of two backwards add up
					for k := range want {
						for j := range want[k] {
							want[k][j] *= 2
						}
					}
				}
				w.eachPass(func(c context.Context, k int) error {
					got, err := p.run(c, w, gs, k, o)
					if err != nil {
						return fmt.Errorf("%s\n%w", what, err)
					}
					return close6(got, want[k], what)
				})
			}
		})
	}
}

// close6 says where gradients differ by more than 1e-6.
func close6(got, want []float64, what string) error {
	for i := range max(len(got), len(want)) {
		g, v := 0.0, 0.0
		if got != nil {
			g = got[i]
		}
		if want != nil {
			v = want[i]
		}
		if !(math.Abs(g-v) <= 1e-6*(1+math.Abs(v))) {
			return fmt.Errorf("%s\ngradient %v; expected %v", what, got, want)
		}
	}
	return nil
}
