package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/internal/soak"
)

// value is what a slot holds: a sum depends on the order in which it was made.
type value uint64

func raw(member, piece int) value { return value(1 + member*1000 + piece) }

func sum(size, piece int, of func(member int) value) (v value) {
	for r := range size {
		v = 31*v + of(r)
	}
	return v
}

// wanted is what a slot must hold.
func wanted(s plan.Slot, size int) value {
	if s.Of == plan.All {
		return sum(size, s.Piece, func(r int) value { return raw(r, s.Piece) })
	}
	return raw(s.Of, s.Piece)
}

// brought is what a member has before it begins.
func brought(kind plan.Kind, size, rank, root int) map[plan.Slot]value {
	has := map[plan.Slot]value{}
	for i := range size {
		var brings bool
		switch kind {
		case plan.Broadcast, plan.Scatter:
			brings = rank == root
		case plan.AllGather, plan.Gather, plan.Barrier:
			brings = i == rank
		default:
			brings = true
		}
		if brings {
			has[plan.Raw(rank, i)] = raw(rank, i)
		}
	}
	return has
}

// layout puts members on hosts: on one, on one each, on two in turn, on two of any sizes, on three,
// on four and on five.
func layout(size, root int) []int {
	at := make([]int, size)
	for r := range at {
		at[r] = []int{0, r, r % 2, min(r/(1+size/3), 1), r * 7 % 3, r * 3 % 4, r * 2 % 5}[(size+root)%7]
	}
	return at
}

// most is how many pieces a member holds at a time at most, as the package promises.
func most(kind plan.Kind, a plan.Algorithm, size int) int {
	switch {
	case kind == plan.Reduce, kind == plan.AllReduce && a == plan.Spread:
		return size * (size + 1)
	case kind == plan.AllReduce:
		return 3 * size
	case kind == plan.ReduceScatter, kind == plan.AllToAll:
		return 2 * size
	}
	return size
}

// letter is what is on its way from one member to another.
type letter struct {
	step   int
	slots  []plan.Slot
	values []value
	end    error // the link's: its sender is lost, or has left in good order
}

// node is a member that follows its plan, with a real desk.
type node struct {
	rank  int
	desk  *desk.Desk[letter]
	plan  plan.Plan
	begun bool
	at    int
	sent  bool
	got   int // messages of this step
	has   map[plan.Slot]value
	inbox int // pieces that have come early
	gone  bool
	ended bool
	err   error
	idle  bool // until something comes
}

// network is a group under a random schedule.
type network struct {
	t       *testing.T
	r       *rand.Rand
	kind    plan.Kind
	by      plan.Algorithm
	root    int
	nodes   []*node
	links   [][][]letter // from, to
	slow    map[[2]int]int
	ordered bool // links keep their order
	leave   bool // who is done leaves at once
	moment  int
	what    string
}

var (
	errLost = errors.New("lost")
	errLeft = errors.New("left")
	key     = desk.Key{Scope: "s", N: 7}
)

func newNetwork(t *testing.T, kind plan.Kind, a plan.Algorithm, seed uint64) *network {
	r := rand.New(rand.NewPCG(seed, uint64(kind)<<8|uint64(a)))
	size := 1 + int(seed%9)
	n := &network{t: t, r: r, kind: kind, by: a, root: r.IntN(size), slow: map[[2]int]int{}, ordered: r.IntN(2) == 0, leave: r.IntN(2) == 0}
	n.what = fmt.Sprintf("%v by %v, p=%d, root %d, seed %d", kind, a, size, n.root, seed)
	for k := range size {
		n.nodes = append(n.nodes, &node{rank: k, desk: desk.New[letter](), plan: plan.New(kind, a, size, k, n.root, layout(size, n.root)...), has: brought(kind, size, k, n.root)})
		n.links = append(n.links, make([][]letter, size))
	}
	for range r.IntN(3) * size { // delays
		n.slow[[2]int{r.IntN(size), r.IntN(size)}] = r.IntN(20 * size)
	}
	return n
}

func (n *network) call() desk.Call {
	return desk.Call{Kind: n.kind, Algorithm: n.by, Root: n.root, Line: "a.go:1"}
}

// act lets a member do one thing; false where it has to wait.
func (n *network) act(m *node) bool {
	if !m.begun {
		m.begun = true
		n.check(m, m.desk.Begin(m.rank, key, n.call(), m.plan.Steps...))
		return true
	}
	if m.at == len(m.plan.Steps) {
		n.end(m, nil)
		return true
	}
	s := m.plan.Steps[m.at]
	if !m.sent {
		m.sent = true
		for _, out := range s.Send {
			l := letter{step: m.at, slots: out.Slots}
			for _, x := range out.Slots {
				require.Contains(n.t, m.has, x, n.what)
				l.values = append(l.values, m.has[x])
			}
			n.links[m.rank][out.Peer] = append(n.links[m.rank][out.Peer], l)
		}
		return true
	}
	if m.got < len(s.Recv) {
		in := s.Recv[m.got]
		l, ok, err := m.desk.Take(key, desk.Mail{From: in.Peer, Step: m.at})
		if !ok {
			n.check(m, err)
			return err != nil
		}
		require.Equal(n.t, in.Slots, l.slots, n.what)
		for i, x := range l.slots {
			require.NotContains(n.t, m.has, x, n.what)
			m.has[x] = l.values[i]
		}
		m.inbox -= len(l.slots)
		m.got++
		return true
	}
	for _, i := range s.Sum {
		m.has[plan.Sum(i)] = sum(len(n.nodes), i, func(r int) value { return m.has[plan.Raw(r, i)] })
	}
	m.at, m.sent, m.got = m.at+1, false, 0
	return true
}

func (n *network) check(m *node, err error) {
	if err != nil {
		n.end(m, err)
	}
}

func (n *network) end(m *node, err error) {
	m.ended, m.err = true, err
	rest := m.desk.End(key)
	if err == nil {
		require.Empty(n.t, rest, n.what)
		for _, s := range m.plan.Out {
			require.Equal(n.t, wanted(s, len(n.nodes)), m.has[s], "%s: %v at %d", n.what, s, m.rank)
		}
	}
	if err == nil && n.leave {
		n.close(m, errLeft)
	}
}

// close ends a member's links, behind what is on its way.
func (n *network) close(m *node, with error) {
	for to := range n.nodes {
		if to != m.rank {
			n.links[m.rank][to] = append(n.links[m.rank][to], letter{end: with})
		}
	}
}

// lose takes a member away, and some of the last that it has sent.
func (n *network) lose(m *node) {
	if m.gone {
		return
	}
	m.gone = true
	for to, l := range n.links[m.rank] {
		if kept := n.r.IntN(len(l) + 1); kept < len(l) { // who has left is known to have left where all has come
			l = slices.DeleteFunc(l, func(x letter) bool { return x.end != nil })
			if !n.ordered {
				n.r.Shuffle(len(l), func(i, k int) { l[i], l[k] = l[k], l[i] })
			}
			n.links[m.rank][to] = l[:min(kept, len(l))]
		}
	}
	n.close(m, errLost)
}

// deliver hands over a message of a link.
func (n *network) deliver(from, to int) {
	l := n.links[from][to]
	i := 0
	if !n.ordered {
		i = n.r.IntN(len(l))
	}
	if l[i].end != nil { // behind all others
		i = 0
	}
	x := l[i]
	n.links[from][to] = append(l[:i:i], l[i+1:]...)
	m := n.nodes[to]
	m.idle = false
	switch {
	case m.gone:
	case x.end == errLeft: //nolint:errorlint // it is that one
		m.desk.Leave(from, x.end)
	case x.end != nil:
		m.desk.Break(x.end)
	default:
		kept, err := m.desk.Arrive(to, key, n.call(), desk.Mail{From: from, Step: x.step}, x, 8*len(x.slots))
		require.NoError(n.t, err, n.what)
		if kept {
			m.inbox += len(x.slots)
		}
	}
	require.LessOrEqual(n.t, len(m.has)+m.inbox, most(n.kind, n.by, len(n.nodes)), n.what)
}

// next does one thing that can happen; false where nothing can.
func (n *network) next(waits bool) bool {
	var able []func() bool
	for _, m := range n.nodes {
		if !m.gone && !m.ended && !m.idle {
			able = append(able, func() bool { m.idle = !n.act(m); return true })
		}
		for to := range n.nodes {
			if len(n.links[m.rank][to]) > 0 && (!waits || n.slow[[2]int{m.rank, to}] <= n.moment) {
				able = append(able, func() bool { n.deliver(m.rank, to); return true })
			}
		}
	}
	return len(able) > 0 && able[n.r.IntN(len(able))]()
}

// run goes on until nothing can happen. So many members are lost at random moments.
func (n *network) run(losses int) {
	at := map[int]int{}
	for range losses {
		at[n.r.IntN(8+4*len(n.nodes)*len(n.nodes))]++
	}
	for ; n.next(true) || n.next(false); n.moment++ {
		for range at[n.moment] {
			n.lose(n.nodes[n.r.IntN(len(n.nodes))])
		}
		require.Less(n.t, n.moment, 100_000, n.what)
	}
}

// With `make soak` there are 10,000 schedules for each algorithm of each operation.
func TestRandomSchedulesWithDelaysAndLossesEndOrFailEverywhere(t *testing.T) {
	failed, ended := 0, 0 // of the survivors of losses
	for kind := plan.AllReduce; kind.Known(); kind++ {
		for a := plan.Direct; a.Known(); a++ {
			if !a.Does(kind) {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", kind, a), func(t *testing.T) {
				for seed := range uint64(soak.Cases(100)) {
					f, e := newNetwork(t, kind, a, seed).survived(int(seed/9) % 3)
					failed, ended = failed+f, ended+e
				}
			})
		}
	}
	require.Greater(t, failed, 1000)
	require.Greater(t, ended, 100, "with the result though another one is lost")
}

// survived runs a schedule, and counts the survivors that have failed and that have ended, where
// any members were lost.
func (n *network) survived(losses int) (failed, ended int) {
	n.run(losses)
	some := slices.ContainsFunc(n.nodes, func(m *node) bool { return m.gone })
	for _, m := range n.nodes {
		if m.gone {
			continue
		}
		require.True(n.t, m.ended, "%s: %d waits for ever", n.what, m.rank)
		switch {
		case !some:
			require.NoError(n.t, m.err, n.what)
		case m.err == nil:
			ended++
		default:
			require.ErrorIs(n.t, m.err, errLost, n.what)
			failed++
		}
		m.desk.Drain()
		require.Zero(n.t, m.desk.Held(), n.what)
	}
	return failed, ended
}
