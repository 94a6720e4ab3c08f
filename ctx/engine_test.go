package ctx

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
)

// dag is a random computation over several workers, and beside it the same on one.
type dag struct {
	r      *rand.Rand
	w      *world
	parts  []*Pass
	values [][]*value // by worker
	leaves [][2]*autodiff.Tensor
	loss   *value
}

// value is a tensor of one worker and its twin in the oracle.
type value struct {
	here, oracle *autodiff.Tensor
	used         bool
	group        *[]*value // what arrived in one message; FAST mode needs one of them to be used
}

func randomDAG(t testing.TB, r *rand.Rand) *dag {
	w := newWorld(t, 2+r.IntN(3))
	d := &dag{r: r, w: w, values: make([][]*value, len(w.cts))}
	_, p := w.open(t, 0)
	d.parts = append(d.parts, p)
	for _, ct := range w.cts[1:] {
		_, q, done, err := ct.Enter(t.Context(), p.ID(), 0, nil)
		require.NoError(t, err)
		done()
		p.Meet(ct.me)
		d.parts = append(d.parts, q)
	}
	for at := range d.parts {
		d.leaf(at)
	}
	for range 4 + r.IntN(12) {
		at := r.IntN(len(d.parts))
		switch r.IntN(5) {
		case 0:
			d.leaf(at)
		case 1, 2:
			d.carry(t, at, r.IntN(len(d.parts)), 1+r.IntN(3))
		default:
			d.op(at, d.pick(at), d.pick(at))
		}
	}
	d.gather(t)
	return d
}

func (d *dag) put(at int, here, oracle *autodiff.Tensor) *value {
	v := &value{here: here, oracle: oracle}
	d.values[at] = append(d.values[at], v)
	return v
}

func (d *dag) leaf(at int) {
	v := []float64{d.r.Float64(), d.r.NormFloat64()}
	here, oracle := autodiff.New(v), autodiff.New(v)
	if d.r.IntN(4) > 0 {
		here.RequireGrad()
		oracle.RequireGrad()
		d.leaves = append(d.leaves, [2]*autodiff.Tensor{here, oracle})
	}
	d.put(at, here, oracle)
}

func (d *dag) pick(at int) *value { return d.values[at][d.r.IntN(len(d.values[at]))] }

func (d *dag) op(at int, a, b *value) *value {
	ops := []func(a, b *autodiff.Tensor) *autodiff.Tensor{
		autodiff.Add, autodiff.Sub, autodiff.Mul,
		func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Add(autodiff.Tanh(a), b) },
		func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Scale(autodiff.Mul(a, b), 0.3) },
	}
	return d.apply(at, ops[d.r.IntN(len(ops))], a, b)
}

func (d *dag) apply(at int, op func(a, b *autodiff.Tensor) *autodiff.Tensor, a, b *value) *value {
	a.used, b.used = true, true
	return d.put(at, op(a.here, b.here), op(a.oracle, b.oracle))
}

// carry brings some values of a worker to another in one message.
func (d *dag) carry(t testing.TB, from, to, n int) {
	var vs []*value
	var ts []*autodiff.Tensor
	for range n {
		v := d.pick(from)
		v.used = true
		vs, ts = append(vs, v), append(ts, v.here)
	}
	group := &[]*value{}
	for i, here := range carry(t, d.parts[from], d.parts[to], ts) {
		v := d.put(to, here, vs[i].oracle)
		v.group = group
		*group = append(*group, v)
	}
}

// gather makes the loss of what nobody used, except for some of what came with something that is.
func (d *dag) gather(t testing.TB) {
	for at := len(d.parts) - 1; at >= 0; at-- {
		all := d.values[at]
		sum := d.op(at, all[0], all[0])
		for _, v := range all {
			spare := false
			if v.group != nil {
				for _, o := range *v.group {
					spare = spare || o != v && o.used && o.here.RequiresGrad()
				}
			}
			if !v.used && !(spare && d.r.IntN(2) == 0) {
				sum = d.apply(at, autodiff.Add, sum, v)
			}
		}
		if at > 0 {
			got := carry(t, d.parts[at], d.parts[0], tensors(sum.here))
			d.put(0, got[0], sum.oracle)
			continue
		}
		d.loss = &value{here: autodiff.Sum(sum.here), oracle: autodiff.Sum(sum.oracle)}
	}
}

// post is gradients on their way to a worker.
type post struct {
	from, to int
	id       MessageID
	grads    []*autodiff.Tensor
}

// schedule runs one backward of a dag: it holds everything that may happen next and picks among it
// at random.
type schedule struct {
	d       *dag
	retain  bool
	failAt  int // the event that fails; −1: none
	cause   error
	engines []*engine
	grads   []autodiff.Gradients
	acts    []func() // actions handed out and not yet performed
	mail    []post
	parents map[int]int // worker → who waits for it
	over    []bool
	busy    []int // actions that worker's engine waits for
	arrived []map[MessageID]bool
}

func (s *schedule) run(t testing.TB) {
	n := len(s.d.parts)
	s.engines, s.grads, s.over, s.parents = make([]*engine, n), make([]autodiff.Gradients, n), make([]bool, n), map[int]int{}
	s.arrived, s.busy = make([]map[MessageID]bool, n), make([]int, n)
	edges, first, err := autodiff.Roots(autodiff.Options{}, tensors(s.d.loss.here))
	require.NoError(t, err)
	s.engines[0] = s.engine(0, edges)
	s.engines[0].start(edges, first)
	for event := 0; ; event++ {
		moves := s.moves()
		if len(moves) == 0 {
			break
		}
		if event == s.failAt {
			s.fail(t)
			continue
		}
		moves[s.d.r.IntN(len(moves))]()
	}
}

func (s *schedule) engine(at int, edges []autodiff.Edge) *engine {
	p := s.d.parts[at]
	s.arrived[at] = map[MessageID]bool{}
	sends := map[MessageID]*sendFunction{}
	for id, f := range p.sends {
		sends[id] = f
	}
	return newEngine(edges, sends, p.recvs, nil)
}

// moves lists what may happen next.
func (s *schedule) moves() (moves []func()) {
	for i := range s.acts {
		moves = append(moves, func() {
			act := s.acts[i]
			s.acts = append(s.acts[:i], s.acts[i+1:]...)
			act()
		})
	}
	for i := range s.mail {
		moves = append(moves, func() {
			p := s.mail[i]
			s.mail = append(s.mail[:i], s.mail[i+1:]...)
			s.deliver(p)
		})
	}
	for at, e := range s.engines {
		if e == nil || s.over[at] {
			continue
		}
		if e.finished() {
			moves = append(moves, func() { s.finish(at) })
		} else if len(e.task.Waiting()) < e.task.Left() && e.err == nil { // something is ready
			moves = append(moves, func() { s.take(at) })
		}
	}
	return moves
}

// take has an engine hand out an action, which is performed some time later.
func (s *schedule) take(at int) {
	e := s.engines[at]
	a, ok := e.next()
	if !ok {
		panic("nothing was ready")
	}
	s.busy[at]++
	s.acts = append(s.acts, func() {
		if a.recv == nil {
			s.busy[at]--
		}
		switch {
		case a.recv != nil:
			s.mail = append(s.mail, post{at, int(a.recv.from), a.recv.id, a.grads})
		case a.leaf != nil:
			if a.grads[0] != nil {
				e.done(s.grads[at].Accumulate(a.leaf, a.grads[0]))
			} else {
				e.done(nil)
			}
		default:
			outs, err := a.node.PullWith(a.grads, autodiff.Pull{Retain: s.retain})
			autodiff.Release(a.grads...)
			e.ran(a.node, outs, err)
		}
	})
}

// deliver brings gradients to a worker, which begins with the first.
func (s *schedule) deliver(p post) {
	first := s.engines[p.to] == nil
	if first && s.cause != nil { // cancelled with its sender
		autodiff.Release(p.grads...)
		s.answer(p.from, s.cause)
		return
	}
	if first {
		s.engines[p.to] = s.engine(p.to, nil)
		s.parents[p.to] = p.from
	}
	s.arrived[p.to][p.id] = true
	err := s.engines[p.to].arrived(p.id, p.grads)
	if !first {
		s.answer(p.from, err)
	}
}

// answer ends the wait of a worker for one that it sent gradients to.
func (s *schedule) answer(to int, err error) {
	s.busy[to]--
	s.engines[to].done(err)
}

// finish ends a worker's part and answers who waits for it.
func (s *schedule) finish(at int) {
	if s.busy[at] > 0 {
		panic("finished while something is under way")
	}
	s.engines[at].drop()
	s.over[at] = true
	if parent, ok := s.parents[at]; ok {
		s.answer(parent, s.engines[at].err)
	}
}

// fail breaks something that is under way: an action, a message, or an engine from outside. All
// engines hear of it in the end, as a root's failure cancels the rest.
func (s *schedule) fail(t testing.TB) {
	s.cause = errors.New("injected")
	switch {
	case len(s.mail) > 0 && s.d.r.IntN(2) == 0: // a message is lost
		p := s.mail[0]
		s.mail = s.mail[1:]
		autodiff.Release(p.grads...)
		s.answer(p.from, s.cause)
	default:
		s.engines[0].fail(s.cause)
	}
	for at, e := range s.engines {
		if e == nil {
			continue
		}
		requireStalled(t, s.d.parts[at], e, s.arrived[at])
		if !s.over[at] {
			s.acts = append(s.acts, func() { e.fail(s.cause) })
		}
	}
}

// requireStalled holds what an engine says it waits for against the messages that came.
func requireStalled(t testing.TB, p *Pass, e *engine, arrived map[MessageID]bool) {
	t.Helper()
	err := e.stalled(Fast)
	if len(arrived) == len(p.sends) {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, ErrStalled)
	for id := range p.sends {
		if name := fmt.Sprintf("send %v to", id); arrived[id] {
			require.NotContains(t, err.Error(), name)
		} else {
			require.ErrorContains(t, err, name)
		}
	}
}

// requireOver checks that every engine that began has ended, and returns the gradients.
func (s *schedule) requireOver(t testing.TB) {
	t.Helper()
	require.Empty(t, s.acts)
	require.Empty(t, s.mail)
	for at, e := range s.engines {
		if s.cause == nil {
			require.Equal(t, e != nil, at == 0 || len(s.d.parts[at].sends) > 0, "worker %d takes part", at)
		}
		if e != nil {
			require.True(t, s.over[at], "worker %d waits for %v", at, e.task.Waiting())
			require.NoError(t, errors.Join(e.err, s.cause))
			require.NoError(t, e.stalled(Fast))
		}
	}
}

func (s *schedule) requireSums(t testing.TB) {
	t.Helper()
	want, err := autodiff.BackwardWith(autodiff.Options{RetainGraph: true}, s.d.loss.oracle)
	require.NoError(t, err)
	n := 0
	for _, leaf := range s.d.leaves {
		var got *autodiff.Tensor
		for i := range s.grads {
			if g := s.grads[i].Of(leaf[0]); g != nil {
				require.Nil(t, got, "a leaf lies on one worker")
				got = g
				n++
			}
		}
		w := want.Of(leaf[1])
		if w == nil {
			require.Nil(t, got)
			continue
		}
		require.InDeltaSlice(t, values(t, w), values(t, got), 1e-9)
	}
	require.Equal(t, want.Len(), n)
}

// TestEnginesComputeTheGradientsOfOneTaskUnderEverySchedule runs every random computation under
// several schedules, some of which fail.
func TestEnginesComputeTheGradientsOfOneTaskUnderEverySchedule(t *testing.T) {
	failed := 0
	for i := range soak.Cases(200) {
		seed := uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { failed += underSchedules(t, rand.New(rand.NewPCG(seed, 0))) })
	}
	require.Greater(t, failed, 100, "schedules in which something failed")
}

func underSchedules(t *testing.T, r *rand.Rand) (failed int) {
	before := device.Host().Stats().Live
	d := randomDAG(t, r)
	made := device.Host().Stats().Live
	for n := range 10 {
		s := &schedule{d: d, retain: n < 9, failAt: -1}
		if n%3 == 1 {
			s.failAt = r.IntN(40)
		}
		s.run(t)
		if s.cause == nil {
			s.requireOver(t)
			s.requireSums(t)
		} else {
			failed++
			for at, e := range s.engines {
				require.True(t, e == nil || s.over[at], "worker %d waits after a failure", at)
			}
		}
		for i := range s.grads {
			s.grads[i].Free()
		}
		if s.retain {
			require.Equal(t, made, device.Host().Stats().Live, "gradients are released")
		}
	}
	d.parts[0].Leave()
	d.w.settle(t)
	require.Equal(t, before, device.Host().Stats().Live)
	return failed
}
