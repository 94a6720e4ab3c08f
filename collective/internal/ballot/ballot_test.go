//go:build !race

package ballot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// sim is a group, and newcomers, that make the next generation. What happens when is drawn:
// messages overtake one another, workers are killed, pairs and halves are cut off, the store does
// not answer, and callers give up.
type sim struct {
	t      *testing.T
	r      *rand.Rand
	base   Roll
	all    []*node
	cut    map[[2]Who]bool
	events []func() // what may happen next, in any order
	store  Roll
	taken  int // how often the store has taken a proposal
}

func (n *node) String() string {
	return fmt.Sprintf("\n%v alive=%v gaveUp=%v out=%v done=%v mine=%+v next=%v said=%+v gone=%v", n.me, n.alive, n.gaveUp, n.Out(), n.Done(), n.mine, n.mine.Next, n.said, n.gone)
}

type node struct {
	*Ballot
	s       *sim
	alive   bool
	called  bool
	gaveUp  bool
	sleeps  bool // a newcomer that has come again, and has not been invited
	founded *Roll
}

func people(from, n int) (all []Who) {
	for i := range n {
		all = append(all, Who{Name: fmt.Sprint("w", from+i), Life: uint64(from + i + 1), Rank: from + i})
	}
	return all
}

func newSim(t *testing.T, seed uint64, members, guests int) *sim {
	s := &sim{t: t, r: rand.New(rand.NewPCG(seed, 21)), base: Roll{Generation: 4, Members: people(0, members)}, cut: map[[2]Who]bool{}}
	s.store = s.base
	for _, who := range append(people(0, members), people(members, guests)...) {
		s.all = append(s.all, &node{Ballot: New(s.base, who, 0), s: s, alive: true})
	}
	return s
}

func (s *sim) at(who Who) *node {
	return s.all[slices.IndexFunc(s.all, func(n *node) bool { return n.me == who })]
}

func (s *sim) apart(a, b Who) bool { return s.cut[[2]Who{a, b}] || s.cut[[2]Who{b, a}] }

// do lets a node do something, and carries out what it asks for.
func (n *node) do(event func()) {
	if !n.alive {
		return
	}
	event()
	for _, a := range n.Actions() {
		switch a.Kind {
		case Say:
			n.s.events = append(n.s.events, func() {
				to := n.s.at(a.To)
				if n.s.apart(n.me, a.To) || to.sleeps && !a.Said.Invites(to.me) {
					return
				}
				to.do(func() { to.Hear(n.me, a.Said) })
				if to.sleeps {
					to.sleeps = false
					to.do(func() { to.Begin(nil, nil) })
				}
			})
		case Ask:
			n.s.events = append(n.s.events, func() { n.s.ask(n, a.Roll) })
		case Yield:
			n.s.events = append(n.s.events, func() { n.do(n.Yielded) })
		case Found:
			require.Nil(n.s.t, n.founded)
			n.founded = &a.Roll
			n.s.events = append(n.s.events, func() { n.do(n.Founded) })
		}
	}
}

// ask is a proposal at the store: sometimes it does not get there, or the answer is lost.
func (s *sim) ask(n *node, roll Roll) {
	require.Equal(s.t, s.base.Generation+1, roll.Generation)
	require.True(s.t, roll.Has(n.me))
	luck := s.r.IntN(20)
	if luck > 0 && s.store.Generation == s.base.Generation {
		s.store = roll
		s.taken++
	}
	now := s.store
	s.events = append(s.events, func() {
		n.do(func() {
			if luck <= 1 {
				n.Fail()
				n.Stop()
				n.gaveUp = true
			} else {
				n.Answer(now)
			}
		})
	})
}

// returns has a newcomer that has given up come again, which knows nothing of before but what it
// sees: that others are lost.
func (n *node) returns() {
	n.Ballot = New(n.s.base, n.me, n.mine.N)
	n.sleeps, n.gaveUp = true, false
	for _, o := range n.s.all {
		if !o.alive || n.s.apart(n.me, o.me) {
			n.s.lose(n, o.me)
		}
	}
}

// remind lets all that wait remind newcomers.
func (s *sim) remind() {
	for _, n := range s.all {
		if n.called && !n.gaveUp && !n.sleeps {
			n.do(n.Remind)
		}
	}
}

// lose lets one see the loss of another, some time.
func (s *sim) lose(n *node, who Who) {
	s.events = append(s.events, func() { n.do(func() { n.Lose(who) }) })
}

// kill ends one without a word.
func (s *sim) kill(n *node) {
	n.alive = false
	for _, o := range s.all {
		s.lose(o, n.me)
	}
}

// leave ends one that says so, which arrives at some.
func (s *sim) leave(n *node) {
	s.kill(n)
	for _, o := range s.all {
		if s.r.IntN(3) > 0 {
			s.events = append(s.events, func() { o.do(func() { o.Left(n.me) }) })
		}
	}
}

func (s *sim) part(a, b *node) {
	s.cut[[2]Who{a.me, b.me}] = true
	s.lose(a, b.me)
	s.lose(b, a.me)
}

// fault is one thing that goes wrong.
func (s *sim) fault() {
	a, b := s.all[s.r.IntN(len(s.all))], s.all[s.r.IntN(len(s.all))]
	switch s.r.IntN(5) {
	case 0, 1:
		s.kill(a)
	case 4:
		s.leave(a)
	case 2:
		if a != b {
			s.part(a, b)
		}
	case 3: // two halves
		for i, x := range s.all {
			for _, y := range s.all[i+1:] {
				if (x.me.Rank < a.me.Rank) != (y.me.Rank < a.me.Rank) {
					s.part(x, y)
				}
			}
		}
	}
}

// run goes on until nothing is left to happen.
func (s *sim) run() {
	for n := 0; len(s.events) > 0; n++ {
		require.Less(s.t, n, 100000, "it ends")
		i := s.r.IntN(len(s.events))
		event := s.events[i]
		s.events = slices.Delete(s.events, i, i+1)
		event()
	}
}

// check says that nobody has an outcome but the store's, and everybody has one who does not wait
// for somebody that has given up.
func (s *sim) check() {
	require.LessOrEqual(s.t, s.taken, 1)
	for _, n := range s.all {
		if n.founded != nil {
			require.Equal(s.t, s.store, *n.founded, "what is founded is what the store holds")
			require.True(s.t, n.founded.Has(n.me))
		}
		switch {
		case !n.alive || !n.called || !s.base.Has(n.me) && !n.Done(): // a newcomer may wait for ever, or see all members lost
		case n.Done():
			require.NotNil(s.t, n.founded)
		case n.Out():
			require.False(s.t, s.store.Generation > s.base.Generation && s.store.Has(n.me), "%v is on %v", n.me, s.store)
		case n.gaveUp:
		default:
			awaited := n.Awaited()
			require.NotEmpty(s.t, awaited, "%v waits for nobody: %v", n.me, s.all)
			require.True(s.t, slices.ContainsFunc(awaited, func(who Who) bool { return s.at(who).gaveUp || s.waits(who) }), "%v waits for %v: %+v; store %v", n.me, awaited, s.all, s.store)
		}
	}
}

// waits says that somebody is behind one that has given up.
func (s *sim) waits(who Who) bool {
	n := s.at(who)
	return n.alive && slices.ContainsFunc(n.Awaited(), func(who Who) bool { return s.at(who).gaveUp })
}

func TestWhateverHappensWhenAGenerationHasOneMembershipAndEverybodyAnOutcome(t *testing.T) {
	ends, returned := map[string]int{}, 0
	for seed := range soak.Cases(4000) {
		src := rand.New(rand.NewPCG(uint64(seed), 1))
		members, guests := 1+src.IntN(6), max(0, src.IntN(5)-2)
		s := newSim(t, uint64(seed), members, guests)
		var unwanted []Who
		if s.r.IntN(4) == 0 {
			unwanted = s.base.Members[s.r.IntN(members):][:1]
		}
		begin := func(n *node) {
			n.do(func() {
				var without, with []Who
				if s.r.IntN(2) == 0 {
					without = slices.DeleteFunc(slices.Clone(unwanted), func(who Who) bool { return who == n.me })
				}
				for _, g := range s.all[members:] {
					if s.base.Has(n.me) && s.r.IntN(3) > 0 {
						with = append(with, g.me)
					}
				}
				n.called = true
				n.gaveUp = false
				n.Begin(without, with)
			})
		}
		for _, n := range s.all {
			s.events = append(s.events, func() { begin(n) })
		}
		for range s.r.IntN(4) {
			s.events = append(s.events, s.fault)
		}
		for range s.r.IntN(2) {
			n := s.all[max(s.r.IntN(len(s.all)), s.r.IntN(len(s.all)))] // a newcomer the more often
			s.events = append(s.events, func() {
				n.do(func() { n.Stop() })
				n.gaveUp = true
			})
		}
		ok := t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s.t = t
			s.run()
			s.check()
			for again := true; again; { // until whoever gave up has an outcome
				again = false
				for _, n := range s.all {
					if n.alive && n.gaveUp && !n.Done() && !n.Out() {
						again = true
						if !s.base.Has(n.me) && n.mine.Next == nil && s.r.IntN(2) == 0 {
							s.events = append(s.events, n.returns)
							returned++
						} else {
							s.events = append(s.events, func() { begin(n) })
						}
					}
				}
				s.run()
				s.remind()
				s.run()
				s.check()
			}
			for _, n := range s.all {
				if n.alive && s.base.Has(n.me) {
					require.True(t, n.Done() || n.Out(), "%v waits for %v", n.me, n.Awaited())
				}
				switch {
				case n.alive && n.Done() && len(n.founded.Members) < members:
					ends["fewer"]++
				case n.alive && n.Done():
					ends["as many or more"]++
				case n.alive && n.Out() && s.base.Has(n.me):
					ends["left out"]++
				}
			}
		})
		if !ok {
			return
		}
	}
	for _, end := range []string{"fewer", "as many or more", "left out"} {
		require.Greater(t, ends[end], 50, "random cases end in all ways: %v", ends)
	}
	require.Greater(t, returned, 20, "newcomers that come again")
}

func TestAMemberThatIsCutOffAndSeesItFirstWaitsForTheOthers(t *testing.T) {
	base := Roll{Members: people(0, 3)}
	b := New(base, base.Members[2], 0)
	b.Begin(nil, nil)
	b.Lose(base.Members[0])
	b.Lose(base.Members[1])
	kinds := func() (all []Kind) {
		for _, a := range b.Actions() {
			if a.Kind != Say {
				all = append(all, a.Kind)
			}
		}
		return all
	}
	require.Equal(t, []Kind{Yield}, kinds())
	b.Yielded()
	require.Equal(t, []Kind{Ask}, kinds())
	b.Answer(Roll{Generation: 1, Members: base.Members[:2]})
	require.True(t, b.Out())
}

func TestWhoHasSaidGoodbyeIsNoPartOfTheGroupThatIsWaitedFor(t *testing.T) {
	for members := 2; members <= 7; members++ {
		for left := range members {
			for lost := range members - left {
				base := Roll{Members: people(0, members)}
				b := New(base, base.Members[members-1], 0)
				b.Begin(base.Members[:left/2], nil) // the caller may name who has left
				for _, who := range base.Members[:left] {
					b.Left(who)
				}
				for _, who := range base.Members[left : left+lost] {
					b.Lose(who)
				}
				stay := base.Members[left+lost:]
				for _, who := range stay {
					b.Hear(who, Said{N: 1, Here: true})
				}
				want := Action{Kind: Ask, Roll: Roll{Generation: 1, Members: stay}}
				if len(stay) < lost {
					want = Action{Kind: Yield}
				}
				acts := slices.DeleteFunc(b.Actions(), func(a Action) bool { return a.Kind == Say })
				require.Equal(t, want, acts[len(acts)-1], "of %d have left %d, and %d are lost", members, left, lost)
			}
		}
	}
}

func TestWhoHasSaidNothingIsMissingRatherThanWhoHasGivenUp(t *testing.T) {
	base := Roll{Members: people(0, 3)}
	b := New(base, base.Members[0], 0)
	b.Begin(nil, nil)
	b.Hear(base.Members[1], Said{N: 2})
	require.Equal(t, base.Members[2:], b.Missing())
	b.Hear(base.Members[2], Said{N: 2})
	require.Equal(t, base.Members[1:], b.Missing())
}
