package roster

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

var errCut = errors.New("cut")

// sim is a job of rosters under random delays. Links are in order; what is under way on a broken
// link is lost.
type sim struct {
	t     *testing.T
	r     *rand.Rand
	next  uint64         // incarnation
	store map[int]Member // the claims: atomic, as in a store
	all   []*node
	wires map[way][]News // in flight, in order
	links map[way]bool   // both ways
}

type way struct{ from, to *node }

type node struct {
	*Roster
	s     *sim
	alive bool
	jobs  []Action // dials to be made
	view  map[int]State
}

func (s *sim) join(rank int) {
	s.next++
	m := Member{Name: fmt.Sprintf("w%d", rank), Rank: rank, Incarnation: s.next}
	n := &node{Roster: New(m, 3), s: s, alive: true, view: map[int]State{}}
	for _, r := range slices.Sorted(maps.Keys(s.store)) {
		require.NoError(s.t, n.Hear(s.store[r]))
	}
	s.store[rank] = m
	s.all = append(s.all, n)
	n.Start()
	for _, f := range n.Fingers() {
		n.dial(n.byRank[f], false)
	}
	n.flush()
}

func (s *sim) find(m Member) *node {
	for _, n := range s.all {
		if n.me.Rank == m.Rank && n.me.Incarnation == m.Incarnation {
			return n
		}
	}
	return nil
}

// flush does what a roster asks for.
func (n *node) flush() {
	for _, a := range n.Actions() {
		switch a.Kind {
		case Changed:
			n.see(a)
		case Dial:
			n.jobs = append(n.jobs, a)
		case Bury:
			if n.s.store[a.Member.Rank].Incarnation == a.Member.Incarnation {
				delete(n.s.store, a.Member.Rank)
			}
		case Tell:
			to := n.s.linked(n, a.To)
			require.NotNil(n.s.t, to, "news is for who is linked")
			n.s.wires[way{n, to}] = append(n.s.wires[way{n, to}], a.News)
		}
	}
}

// see checks that a life goes one way only.
func (n *node) see(a Action) {
	was := n.view[a.Member.Rank]
	if a.State == Known {
		require.True(n.s.t, was == 0 || was >= Left, "a life begins after the end of the one before")
	} else {
		require.Greater(n.s.t, a.State, was)
	}
	if a.State >= Left {
		require.Error(n.s.t, a.Cause)
	}
	n.view[a.Member.Rank] = a.State
}

func (s *sim) linked(n *node, rank int) *node {
	for w, up := range s.links {
		if up && w.from == n && w.to.me.Rank == rank {
			return w.to
		}
	}
	return nil
}

func (s *sim) cut(a, b *node, left bool) {
	delete(s.links, way{a, b})
	delete(s.links, way{b, a})
	delete(s.wires, way{a, b})
	delete(s.wires, way{b, a})
	for _, p := range [][2]*node{{a, b}, {b, a}} {
		if p[0].alive {
			p[0].LinkDown(p[1].me.Rank, p[1].me.Incarnation, left, errCut)
			p[0].flush()
		}
	}
}

// connect is a dial and its greeting.
func (s *sim) connect(n *node, m Member) {
	to := s.find(m)
	if to == nil || !to.alive || s.links[way{n, to}] {
		n.DialFailed(m.Rank, m.Incarnation, errCut)
		n.flush()
		return
	}
	if e := n.byRank[m.Rank]; e.busy < maxBusy-1 && s.r.IntN(4) == 0 {
		n.DialBusy(m.Rank, m.Incarnation, errCut)
		n.flush()
		return
	}
	err := to.Hear(n.me)
	if err == nil {
		err = n.LinkUp(m.Rank, m.Incarnation)
	}
	if err == nil {
		err = to.LinkUp(n.me.Rank, n.me.Incarnation)
	}
	if err != nil {
		to.flush()
		n.LinkDown(m.Rank, m.Incarnation, false, err)
		n.DialFailed(m.Rank, m.Incarnation, err)
		n.flush()
		return
	}
	s.links[way{n, to}], s.links[way{to, n}] = true, true
	if n.Digest() != to.Digest() {
		s.wires[way{n, to}] = append(s.wires[way{n, to}], n.All()...)
		s.wires[way{to, n}] = append(s.wires[way{to, n}], to.All()...)
	}
	to.flush()
	n.flush()
}

func (s *sim) living() (ns []*node) {
	for _, n := range s.all {
		if n.alive {
			ns = append(ns, n)
		}
	}
	return ns
}

// step delivers one piece of news or makes one dial; it says whether there was anything.
func (s *sim) step() bool {
	var steps []func()
	for _, n := range s.living() {
		if len(n.jobs) > 0 {
			steps = append(steps, func() {
				j := n.jobs[0]
				n.jobs = n.jobs[1:]
				s.connect(n, j.Member)
			})
		}
		for _, o := range s.living() {
			if w := (way{n, o}); len(s.wires[w]) > 0 {
				steps = append(steps, func() {
					news := s.wires[w][0]
					s.wires[w] = s.wires[w][1:]
					o.Gossip(n.me.Rank, news)
					o.flush()
				})
			}
		}
	}
	if len(steps) == 0 {
		return false
	}
	steps[s.r.IntN(len(steps))]()
	return true
}

// kill ends a node; its peers notice when they do.
func (s *sim) kill(n *node, left bool) {
	n.alive = false
	if left {
		delete(s.store, n.me.Rank)
	}
	for _, o := range s.living() {
		if s.links[way{n, o}] {
			s.cut(n, o, left)
		}
	}
}

func (s *sim) settle() {
	for range 1_000_000 {
		if !s.step() {
			return
		}
	}
	s.t.Fatal("it never settles")
}

// agree is the oracle: whoever lives knows of exactly those who live, in their present life.
func (s *sim) agree() {
	living := s.living()
	for _, n := range living {
		for _, o := range living {
			if n == o {
				continue
			}
			e := n.byRank[o.me.Rank]
			require.NotNil(s.t, e, "%s has forgotten %s", n.me.Name, o.me.Name)
			require.Equal(s.t, o.me.Incarnation, e.Incarnation, "%s about %s", n.me.Name, o.me.Name)
			require.True(s.t, e.alive(), "%s thinks that %s is gone: %s", n.me.Name, o.me.Name, e.rumour)
		}
		ring, _ := n.ring()
		require.Len(s.t, ring, len(living), "%s knows of nobody who is gone", n.me.Name)
		require.Equal(s.t, living[0].Digest(), n.Digest())
	}
}

// drive lets workers join, leave and die at random.
func (s *sim) drive() {
	for range 60 {
		living := s.living()
		switch k := s.r.IntN(10); {
		case k < 4 && len(living) < 12:
			rank := s.r.IntN(20)
			if _, taken := s.store[rank]; !taken {
				s.join(rank)
			}
		case k == 4 && len(living) > 3:
			s.kill(living[s.r.IntN(len(living))], s.r.IntN(2) == 0)
			for range s.r.IntN(3) { // more go, before anybody has noticed
				if l := s.living(); len(l) > 3 && s.r.IntN(3) == 0 {
					s.kill(l[s.r.IntN(len(l))], false)
				}
			}
			if s.r.IntN(2) == 0 {
				s.settle()
			}
		default:
			for range s.r.IntN(30) {
				s.step()
			}
		}
	}
}

func TestInTheEndAllWhoLiveAgreeOnWhoLives(t *testing.T) {
	for seed := range uint64(soak.Cases(60)) {
		s := &sim{t: t, r: rand.New(rand.NewPCG(seed, 1)), store: map[int]Member{}, wires: map[way][]News{}, links: map[way]bool{}}
		s.drive()
		s.settle()
		s.agree()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func member(rank int, incarnation uint64) Member {
	return Member{Name: fmt.Sprintf("w%d", rank), Rank: rank, Incarnation: incarnation}
}

// linked is the roster of rank 0 with links to 1 to n.
func linked(t *testing.T, n int) *Roster {
	r := New(member(0, 100), 8)
	r.Start()
	for i := 1; i <= n; i++ {
		require.NoError(t, r.Hear(member(i, uint64(i))))
		require.NoError(t, r.LinkUp(i, uint64(i)))
	}
	r.Actions()
	return r
}

// did picks the actions of one kind, for comparison.
func did(r *Roster, k Kind) (out []string) {
	for _, a := range r.Actions() {
		if a.Kind == k {
			out = append(out, fmt.Sprintf("%s.%d %d →%d", a.Member.Name, a.Member.Incarnation, a.State, a.To))
		}
	}
	return out
}

func TestWhoHasALinkTrustsItAndWhoHasNoneLooks(t *testing.T) {
	r := linked(t, 2)
	r.Gossip(1, News{State: Lost, Member: member(2, 2), Cause: "silent"})
	require.Empty(t, r.Actions(), "the link with 2 stands")

	require.NoError(t, r.Hear(member(3, 3)))
	r.dialled(3)
	r.Gossip(1, News{State: Lost, Member: member(3, 3), Cause: "silent"})
	acts := r.Actions()
	require.Equal(t, []Kind{Tell, Dial}, []Kind{acts[0].Kind, acts[1].Kind})
	require.Equal(t, 2, acts[0].To, "passed on, but not to where it came from")
	require.False(t, acts[1].Later, "a dial is out, which is not to wait any more")
	r.Gossip(2, News{State: Lost, Member: member(3, 3), Cause: "silent"})
	require.Empty(t, r.Actions(), "once")
	require.True(t, r.Doubted(3, 3))
	require.False(t, r.Doubted(1, 1))
	require.False(t, r.Doubted(3, 2), "another life")
	r.DialFailed(3, 3, errCut)
	acts = r.Actions()
	require.Equal(t, []Kind{Changed, Bury}, []Kind{acts[0].Kind, acts[1].Kind})
	require.Equal(t, Lost, acts[0].State)
	require.ErrorIs(t, acts[0].Cause, errCut)
	require.ErrorContains(t, acts[0].Cause, "silent")
	require.Error(t, r.LinkUp(3, 3), "lost is final")
}

// dialled empties the actions after a dial went out.
func (r *Roster) dialled(rank int) {
	r.dial(r.byRank[rank], false)
	r.Actions()
}

func TestALinkProvesARumourWrong(t *testing.T) {
	r := linked(t, 1)
	require.NoError(t, r.Hear(member(3, 3)))
	r.Gossip(1, News{State: Lost, Member: member(3, 3), Cause: "silent"})
	require.NoError(t, r.LinkUp(3, 3))
	r.Actions()
	r.DialFailed(3, 3, errCut)
	require.Empty(t, r.Actions(), "a dial that crossed with the peer's")
	r.LinkDown(3, 3, false, errCut)
	require.Contains(t, did(r, Changed), "w3.3 5 →0")
}

func TestANewLifeEndsTheOldOneAndLateNewsOfTheOldIsIgnored(t *testing.T) {
	r := linked(t, 2)
	require.NoError(t, r.Hear(member(1, 7)))
	require.Equal(t, []string{"w1.1 5 →0", "w1.7 1 →0"}, did(r, Changed))
	r.Gossip(2, News{State: Known, Member: member(1, 1)})
	r.Gossip(2, News{State: Lost, Member: member(1, 1)})
	r.Gossip(2, News{State: Leaving, Member: member(1, 1)})
	r.LinkDown(1, 1, false, errCut)
	r.DialFailed(1, 1, errCut)
	require.Empty(t, r.Actions())
	require.Error(t, r.Hear(member(1, 1)))
	require.Error(t, r.LinkUp(1, 1))

	moved := member(5, 9)
	moved.Name = "w2"
	require.NoError(t, r.Hear(moved))
	require.Equal(t, []string{"w2.2 5 →0", "w2.9 1 →0"}, did(r, Changed), "a name has one life too")
	require.Error(t, r.Hear(member(0, 200)), "this worker's rank is its own")
}

func TestWhoTellsOfTheDeadAsAliveIsToldOfTheirEnd(t *testing.T) {
	r := linked(t, 2)
	r.LinkDown(2, 2, true, errCut)
	r.Actions()
	r.Gossip(1, News{State: Known, Member: member(2, 2)})
	acts := r.Actions()
	require.Len(t, acts, 1)
	require.Equal(t, 1, acts[0].To)
	require.Equal(t, Left, acts[0].News.State)
}

func TestLeavingIsAnnouncedOnceToAllAndToWhoComesLater(t *testing.T) {
	r := linked(t, 2)
	r.Leave()
	r.Leave()
	require.Equal(t, []string{".0 0 →1", ".0 0 →2"}, did(r, Tell))
	require.NoError(t, r.Hear(member(3, 3)))
	r.Actions()
	require.NoError(t, r.LinkUp(3, 3))
	require.Equal(t, []string{".0 0 →3"}, did(r, Tell))

	r.Gossip(1, News{State: Leaving, Member: member(2, 2)})
	require.Equal(t, []string{"w2.2 3 →0"}, did(r, Changed))
	r.Gossip(3, News{State: Leaving, Member: member(2, 2)})
	require.Empty(t, r.Actions())
	r.Gossip(1, News{State: 77, Member: member(2, 2)})
	require.Empty(t, r.Actions(), "what makes no sense is nothing")
}

func TestALinkThatTheOtherEndGaveUpIsNoEndAndIsMadeAgain(t *testing.T) {
	r := linked(t, 2)
	r.Start()
	r.Actions()
	r.Unlinked(2, 2)
	acts := r.Actions()
	require.Len(t, acts, 1)
	require.Equal(t, Dial, acts[0].Kind, "a neighbour is linked with again")
	r.Unlinked(2, 2)
	r.LinkDown(2, 2, true, errCut)
	require.Empty(t, r.Actions(), "there is no link to lose")
	require.NoError(t, r.LinkUp(2, 2))
	require.Empty(t, did(r, Changed), "a life is linked once")
	r.LinkDown(2, 2, true, errCut)
	require.Equal(t, []string{"w2.2 4 →0"}, did(r, Changed))
}

func TestADialThatFailsTwiceIsALoss(t *testing.T) {
	r := linked(t, 1)
	require.NoError(t, r.Hear(member(5, 5)))
	r.dialled(5)
	r.DialFailed(5, 5, errCut)
	require.Empty(t, did(r, Changed))
	r.dialled(5)
	r.DialFailed(5, 5, errCut)
	require.Equal(t, []string{"w5.5 5 →0"}, did(r, Changed))
}

func TestWhoAnswersAndRefusesALinkKeepsItsPlace(t *testing.T) {
	r := linked(t, 1)
	require.NoError(t, r.Hear(member(5, 5)))
	for range maxFails {
		r.dialled(5)
		r.DialRefused(5, 5, errCut)
	}
	acts := r.Actions()
	require.Equal(t, []Kind{Changed, Tell}, []Kind{acts[0].Kind, acts[1].Kind}, "and nobody is buried")
	require.Equal(t, Lost, acts[0].State)

	require.NoError(t, r.Hear(member(6, 6)))
	r.dialled(6)
	r.DialRefused(6, 6, errCut)
	r.dialled(6)
	r.DialFailed(6, 6, errCut)
	require.Contains(t, did(r, Bury), "w6.6 0 →0", "it does not answer any more")
}

func TestACrowdIsNoLossUnlessItGoesOnForEver(t *testing.T) {
	r := linked(t, 1)
	require.NoError(t, r.Hear(member(5, 5)))
	r.dialled(5)
	for range maxBusy - 1 {
		r.DialBusy(5, 5, errCut)
		acts := r.Actions()
		require.Len(t, acts, 1)
		require.Equal(t, Dial, acts[0].Kind, "a neighbour is dialled again")
		require.True(t, acts[0].Later)
	}
	r.DialFailed(5, 5, errCut)
	require.Empty(t, did(r, Changed), "one dial that nobody answered")
	r.DialBusy(5, 5, errCut)
	require.Equal(t, []string{"w5.5 5 →0"}, did(r, Changed), "somebody else may be at its address")

	r = linked(t, 1)
	require.NoError(t, r.Hear(member(5, 5)))
	for range 3 * maxBusy {
		r.dialled(5)
		r.DialBusy(5, 5, errCut)
		require.NoError(t, r.LinkUp(5, 5))
		r.Unlinked(5, 5)
	}
	require.True(t, r.byRank[5].alive(), "a link begins the count again")
}

func TestWhoIsSaidToBeLostAndIsCrowdedIsDialledAgain(t *testing.T) {
	r := linked(t, 3)
	require.NoError(t, r.Hear(member(7, 200)))
	require.NoError(t, r.Hear(member(6, 6)))
	require.NoError(t, r.Hear(member(5, 5)))
	r.Gossip(1, News{State: Lost, Member: member(5, 5), Cause: "silent"})
	r.Actions()
	r.DialBusy(5, 5, errCut)
	require.Equal(t, []string{"w5.5 0 →0"}, did(r, Dial))
	r.DialFailed(5, 5, errCut)
	require.Equal(t, []string{"w5.5 5 →0"}, did(r, Changed))
}

func TestSmallWorldsAreMeshedAndLargeOnesHaveFingers(t *testing.T) {
	for n := 1; n <= 70; n++ {
		rosters := make([]*Roster, n)
		for i := range n {
			rosters[i] = New(member(i, uint64(i+1)), 8)
			for j := range n {
				require.NoError(t, rosters[i].Hear(member(j, uint64(j+1))))
			}
		}
		for i, r := range rosters {
			fingers := r.Fingers()
			require.True(t, slices.IsSorted(fingers))
			require.NotContains(t, fingers, i)
			if n <= 8 {
				require.Len(t, fingers, n-1)
			} else {
				require.LessOrEqual(t, len(fingers), 16)
			}
			for _, f := range fingers {
				require.Contains(t, rosters[f].Fingers(), i, "both want the link")
			}
		}
	}
}
