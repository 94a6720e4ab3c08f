package autodiff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

var scalarType = kernels.Type{Dtype: device.Float64, Shape: device.Shape{}}

func transient(t testing.TB, v float64) *Tensor {
	t.Helper()
	b, err := fill(device.Host(), scalarType, v)
	require.NoError(t, err)
	return manual(scalarType, b)
}

// dag is a random tape over scalars: node i leads only to nodes before it.
type dag struct {
	nodes   []*Node
	weights map[*Node][][]float64 // gradient of input j = Σ weights[j][i]·gradient of result i; a nil row gives none
	ran     map[*Node]int
	roots   []Edge
	sources []*Node
	given   map[Edge]float64 // what roots and sources are given; absent: nil
}

func randomDAG(t *testing.T, r *rand.Rand) *dag {
	d := &dag{weights: map[*Node][][]float64{}, ran: map[*Node]int{}, given: map[Edge]float64{}}
	for i := range 3 + r.IntN(10) {
		n := &Node{rare: &rare{name: fmt.Sprint("n", i)}}
		for range 1 + r.IntN(3) {
			n.rare.outs = append(n.rare.outs, scalarType)
		}
		for range r.IntN(4) {
			var e Edge
			if i > 0 && r.IntN(6) > 0 {
				e.Node = d.nodes[r.IntN(i)]
				e.Slot = r.IntN(len(e.Node.Results()))
			}
			n.rare.next = append(n.rare.next, e)
			var row []float64
			if r.IntN(5) > 0 {
				for range n.Results() {
					row = append(row, float64(r.IntN(7)-3))
				}
			}
			d.weights[n] = append(d.weights[n], row)
		}
		n.rare.pull = func(gys []*Tensor, _ Pull) ([]*Tensor, error) { d.ran[n]++; return d.pull(t, n, gys), nil }
		d.nodes = append(d.nodes, n)
	}
	isSource := func(n *Node) bool { // nothing leads there
		return !slices.ContainsFunc(d.nodes, func(m *Node) bool {
			return slices.ContainsFunc(m.Next(), func(e Edge) bool { return e.Node == n })
		})
	}
	for _, n := range d.nodes {
		if isSource(n) && r.IntN(2) == 0 {
			d.sources = append(d.sources, n)
			for s := range n.Results() {
				if r.IntN(3) > 0 {
					d.given[Edge{n, s}] = float64(r.IntN(9) - 4)
				}
			}
		} else if r.IntN(3) == 0 {
			e := Edge{n, r.IntN(len(n.Results()))}
			d.roots = append(d.roots, e)
			d.given[e] += float64(1 + r.IntN(3))
		}
	}
	return d
}

func (d *dag) pull(t *testing.T, n *Node, gys []*Tensor) []*Tensor {
	out := make([]*Tensor, len(n.Next()))
	if !slices.ContainsFunc(gys, func(g *Tensor) bool { return g != nil }) {
		return out
	}
	for j, row := range d.weights[n] {
		if row == nil {
			continue
		}
		sum := 0.0
		for i, g := range gys {
			if g != nil {
				sum += row[i] * numbers(t, g)[0]
			}
		}
		out[j] = transient(t, sum)
	}
	return out
}

// gradient is the oracle: by recursion, from the consumers. ok says that one arrives at all.
func (d *dag) gradient(at Edge) (sum float64, ok bool) {
	sum, ok = d.given[at]
	for _, p := range d.nodes {
		for j, e := range p.Next() {
			if e != at || !d.takesPart(p) || d.weights[p][j] == nil {
				continue
			}
			some := false
			for i := range p.Results() {
				if g, have := d.gradient(Edge{p, i}); have {
					some, sum = true, sum+d.weights[p][j][i]*g
				}
			}
			ok = ok || some
		}
	}
	return sum, ok
}

// takesPart says that a root or a source leads to n.
func (d *dag) takesPart(n *Node) bool {
	if slices.Contains(d.sources, n) || slices.ContainsFunc(d.roots, func(e Edge) bool { return e.Node == n }) {
		return true
	}
	return slices.ContainsFunc(d.nodes, func(m *Node) bool {
		return slices.ContainsFunc(m.Next(), func(e Edge) bool { return e.Node == n }) && d.takesPart(m)
	})
}

func TestATaskOverRandomGraphsGivesWhatTheRecursionGivesWhateverTheOrder(t *testing.T) {
	before := device.Host().Stats()
	for i := range soak.Cases(300) {
		r := rng(uint64(i))
		d := randomDAG(t, r)
		task := NewTask(d.roots, slices.Concat(d.sources, d.sources)) // twice is once
		got := map[Edge]*float64{}
		events := make([]func(), 0, 8)
		for _, e := range d.roots {
			events = append(events, func() { require.NoError(t, task.Deliver(e, transient(t, d.given[e]))) })
		}
		for _, n := range d.sources {
			events = append(events, func() {
				grads := make([]*Tensor, len(n.Results()))
				for s := range grads {
					if v, ok := d.given[Edge{n, s}]; ok {
						grads[s] = transient(t, v)
					}
				}
				require.NoError(t, task.Start(n, grads))
			})
		}
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for {
			if len(events) > 0 && r.IntN(2) == 0 {
				events[0]()
				events = events[1:]
				continue
			}
			n, gys, ok := task.Next()
			if !ok {
				if len(events) == 0 {
					break
				}
				continue
			}
			for s, g := range gys {
				got[Edge{n, s}] = nil
				if g != nil {
					v := numbers(t, g)[0]
					got[Edge{n, s}] = &v
				}
			}
			outs, err := n.PullWith(gys, Pull{})
			require.NoError(t, err)
			freeAll(gys)
			require.NoError(t, task.Complete(n, outs))
		}
		require.Zero(t, task.Left())
		require.Empty(t, task.Waiting())
		for _, n := range d.nodes {
			if !d.takesPart(n) {
				require.Zero(t, d.ran[n])
				continue
			}
			require.Equal(t, 1, d.ran[n])
			for s := range n.Results() {
				want, ok := d.gradient(Edge{n, s})
				v := got[Edge{n, s}]
				require.Equal(t, ok, v != nil, "%d: %s result %d", i, n.Name(), s)
				if ok {
					require.InDelta(t, want, *v, 1e-9, "%d: %s result %d", i, n.Name(), s)
				}
			}
		}
		task.Free()
	}
	require.Equal(t, before.Live, device.Host().Stats().Live)
}

func TestATaskThatIsNotFinishedSaysWhoWaitsAndFreesWhatItHolds(t *testing.T) {
	before := device.Host().Stats().Live
	x := Scalar(2.0).RequireGrad()
	y := Exp(x)
	source := NewSource("send 7", []*Tensor{y})
	root := Mul(y, x)
	task := NewTask([]Edge{root.edge}, []*Node{source})
	require.NoError(t, task.Deliver(root.edge, transient(t, 1)))
	none := func(_, g *Tensor) error { g.free(); return nil }
	ran, err := task.step(Pull{}, none)
	require.True(t, ran)
	require.NoError(t, err)
	ran, err = task.step(Pull{}, none)
	require.False(t, ran, "Exp waits for the source")
	require.NoError(t, err)
	require.Equal(t, 3, task.Left())
	var names []string
	for _, n := range task.Waiting() {
		names = append(names, n.Name())
	}
	slices.Sort(names)
	require.Equal(t, []string{"Exp", "accumulate", "send 7"}, names)
	task.Free()
	task.Free()
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestATaskRefusesGradientsThatDoNotFitAndNamesTheOp(t *testing.T) {
	before := device.Host().Stats().Live
	x := Scalar(2.0).RequireGrad()
	y := Exp(x)
	source := NewSource("send 7", []*Tensor{y, x})
	task := NewTask([]Edge{y.edge}, []*Node{source})
	wrong := func() *Tensor {
		typ := kernels.Type{Dtype: device.Float64, Shape: device.Shape{2}}
		b, err := fill(device.Host(), typ, 1)
		require.NoError(t, err)
		return manual(typ, b)
	}
	check := func(err error, want string) {
		t.Helper()
		require.ErrorIs(t, err, ErrGradient)
		require.ErrorContains(t, err, want)
	}
	check(task.Deliver(y.edge, wrong()), "Exp: bad gradient: float64(2) for result 0, which is float64()")
	check(task.Deliver(y.edge, failed(ErrFreed)), "Exp: bad gradient: tensor was freed")
	check(task.Deliver(Edge{y.edge.Node, 1}, transient(t, 1)), "Exp: bad gradient")
	check(task.Deliver(Exp(x).edge, transient(t, 1)), "when none was expected")
	check(task.Start(source, []*Tensor{transient(t, 1)}), "send 7: bad gradient: 1 gradients came for 2 tensors")
	check(task.Start(source, []*Tensor{transient(t, 1), wrong()}), "send 7: bad gradient: float64(2) for tensor 1, which is float64()")
	check(task.Start(NewSource("send 8", nil), nil), "send 8")
	require.NoError(t, task.Deliver(Edge{}, transient(t, 1)), "an edge that leads nowhere takes anything")
	require.NoError(t, task.Start(source, []*Tensor{transient(t, 1), nil}))
	check(task.Start(source, []*Tensor{transient(t, 1), nil}), "a second time")
	require.NoError(t, task.Deliver(y.edge, transient(t, 1)))
	task.Free()
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestASourcePassesOnAndASinkTakesAway(t *testing.T) {
	before := device.Host().Stats().Live
	arrived := []*Tensor{Scalar(2.0), Scalar(3.0), Scalar(4.0), Scalar(int64(1))}
	var took []float64
	sink := NewSink("recv 1", arrived, []bool{true, true, false, true}, func(gs []*Tensor) error {
		require.Len(t, gs, 4)
		require.Nil(t, gs[1], "its result was not used")
		require.Nil(t, gs[2])
		require.Nil(t, gs[3])
		took = append(took, numbers(t, gs[0])...)
		return nil
	})
	require.Equal(t, "recv 1", sink.Name())
	require.Empty(t, sink.Next())
	require.Len(t, sink.Results(), 4)
	require.False(t, arrived[0].IsLeaf())
	require.True(t, arrived[0].RequiresGrad())
	require.False(t, arrived[2].RequiresGrad(), "it was not asked for")
	require.False(t, arrived[3].RequiresGrad(), "integers have none")
	y := Mul(arrived[0], arrived[2])
	source := NewSource("send 2", []*Tensor{y, arrived[1], arrived[2]})
	task := NewTask(nil, []*Node{source})
	require.NoError(t, task.Start(source, []*Tensor{transient(t, 5), nil, transient(t, 9)}))
	for {
		ran, err := task.step(Pull{}, func(_, _ *Tensor) error { panic("there is no leaf") })
		require.NoError(t, err)
		if !ran {
			break
		}
	}
	require.Equal(t, []float64{20}, took)
	require.Zero(t, task.Left())
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestASinksErrorNamesTheNode(t *testing.T) {
	before := device.Host().Stats().Live
	x := Scalar(2.0)
	NewSink("recv 1", []*Tensor{x}, []bool{true}, func([]*Tensor) error { return errKernel })
	_, err := Backward(Exp(x))
	require.ErrorIs(t, err, errKernel)
	require.ErrorContains(t, err, "backward of recv 1: kernel failed")
	var ne *NodeError
	require.ErrorAs(t, err, &ne)
	require.Equal(t, "recv 1", ne.Node.Name())
	require.Equal(t, before, device.Host().Stats().Live)
}
