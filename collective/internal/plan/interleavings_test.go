package plan_test

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/plan"
)

// few is the size of the groups whose interleavings are all gone through.
const few = 3

// state is all that differs between two moments of an operation of a few members. What a member
// has follows from where it stands.
type state struct {
	at   [few]uint8 // steps that it has done
	sent uint8      // by member: what it sends in its step
	come uint32     // by message: it has arrived
	gone uint8      // by member
	told uint8      // by member: it has heard that one is gone
}

// space is all states of an operation. Messages arrive in any order.
type space struct {
	t     *testing.T
	what  string
	size  int
	most  int
	plans []plan.Plan
	posts []post
	has   [few][]int // by member and step: how many pieces it has when it begins that one
	seen  map[state]bool
	lost  int // so many members may be lost
	ends  int
}

// post is one message of the plans.
type post struct{ from, to, step, slots int }

func newSpace(t *testing.T, kind plan.Kind, a plan.Algorithm, size, root, losses int) *space {
	s := &space{t: t, what: fmt.Sprintf("%v by %v, p=%d, root %d", kind, a, size, root), size: size, most: most(kind, a, size), seen: map[state]bool{}, lost: losses}
	for r := range size {
		p := plan.New(kind, a, size, r, root, layout(size, root)...)
		s.plans = append(s.plans, p)
		has := len(brought(kind, size, r, root))
		for i, step := range p.Steps {
			s.has[r] = append(s.has[r], has)
			for _, m := range step.Send {
				s.posts = append(s.posts, post{r, m.Peer, i, len(m.Slots)})
			}
			for _, m := range step.Recv {
				has += len(m.Slots)
			}
			has += len(step.Sum)
		}
		s.has[r] = append(s.has[r], has)
	}
	require.LessOrEqual(t, len(s.posts), bits.UintSize/2, "messages have a bit each")
	return s
}

func (s *space) done(x state, r int) bool { return int(x.at[r]) == len(s.plans[r].Steps) }

// failed says that a member has given up.
func (s *space) failed(x state, r int) bool { return x.told&(1<<r) != 0 && !s.done(x, r) }

// arrived says whether a member has what another one sends to it in a step.
func (s *space) arrived(x state, from, to, step int) bool {
	for i, p := range s.posts {
		if p.from == from && p.to == to && p.step == step {
			return x.come&(1<<i) != 0
		}
	}
	return false
}

// visit goes through all that can follow.
func (s *space) visit(x state) {
	if s.seen[x] {
		return
	}
	s.seen[x] = true
	moves := 0
	step := func(y state) {
		moves++
		s.visit(y)
	}
	for i, p := range s.posts {
		sent := int(x.at[p.from]) > p.step || int(x.at[p.from]) == p.step && x.sent&(1<<p.from) != 0
		if sent && x.come&(1<<i) == 0 && x.gone&(1<<p.to) == 0 {
			y := x
			y.come |= 1 << i
			step(y) // of one that is gone it may come, or never
		}
	}
	for r := range s.size {
		if x.gone&(1<<r) != 0 {
			continue
		}
		if bits.OnesCount8(x.gone) < s.lost {
			y := x
			y.gone |= 1 << r
			step(y)
		}
		if x.gone != 0 && x.told&(1<<r) == 0 {
			y := x
			y.told |= 1 << r
			step(y)
		}
		if y, ok := s.act(x, r); ok {
			step(y)
		}
		s.holds(x, r)
	}
	if moves == 0 {
		s.ends++
		for r := range s.size {
			require.True(s.t, x.gone&(1<<r) != 0 || s.done(x, r) || s.failed(x, r), "%s: %d waits for ever in %+v", s.what, r, x)
		}
		require.True(s.t, x.gone != 0 || bits.OnesCount32(x.come) == len(s.posts), s.what)
	}
}

// act lets a member do one thing.
func (s *space) act(x state, r int) (state, bool) {
	if s.done(x, r) || s.failed(x, r) {
		return x, false
	}
	if x.sent&(1<<r) == 0 {
		x.sent |= 1 << r
		return x, true
	}
	for _, in := range s.plans[r].Steps[x.at[r]].Recv {
		if !s.arrived(x, in.Peer, r, int(x.at[r])) {
			return x, false
		}
	}
	x.at[r]++
	x.sent &^= 1 << r
	return x, true
}

// holds checks that a member holds no more than is promised, with what has come early.
func (s *space) holds(x state, r int) {
	n := s.has[r][x.at[r]]
	for i, p := range s.posts {
		if p.to == r && p.step >= int(x.at[r]) && x.come&(1<<i) != 0 {
			n += p.slots
		}
	}
	require.LessOrEqual(s.t, n, s.most, s.what)
}

func TestAllInterleavingsOfThreeMembersEndOrFailEverywhere(t *testing.T) {
	states := 0
	for kind := plan.AllReduce; kind.Known(); kind++ {
		for a := plan.Direct; a.Known(); a++ {
			for size := 1; size <= few && a.Does(kind); size++ {
				for root := range size {
					if root > 0 && !kind.Rooted() {
						continue
					}
					for losses := range 3 {
						s := newSpace(t, kind, a, size, root, losses)
						s.visit(state{})
						states += len(s.seen)
						if losses == 0 {
							require.Equal(t, 1, s.ends, "%s: whatever the order, all end alike", s.what)
						}
					}
				}
			}
		}
	}
	t.Logf("%d states", states)
}
