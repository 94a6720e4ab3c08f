package turns

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// job is some members, each of which calls the operations of its groups in an order of its own.
type job struct {
	r      *rand.Rand
	groups map[string][]int
	calls  [][]Key // by member: what it is still to call, in its order
	called map[Key]int
	lines  []Line
	times  map[Key][]uint64
	went   [][]Key // by member
	events []func()
	naive  bool // operations go in the order in which their members hear of them
}

func newJob(r *rand.Rand) *job {
	members := 2 + r.IntN(4)
	j := &job{r: r, groups: map[string][]int{}, called: map[Key]int{}, times: map[Key][]uint64{}, calls: make([][]Key, members), lines: make([]Line, members),
		went: make([][]Key, members)}
	for g := range 1 + r.IntN(4) {
		name, size := fmt.Sprint("group", g), 1+r.IntN(members)
		j.groups[name] = r.Perm(members)[:size]
		n := 1 + r.IntN(6)
		for _, m := range j.groups[name] {
			for k := range n {
				j.calls[m] = append(j.calls[m], Key{name, uint64(k)})
			}
		}
	}
	for m := range j.calls { // any order of groups, but a group's own
		next := map[string]uint64{}
		r.Shuffle(len(j.calls[m]), func(a, b int) { j.calls[m][a], j.calls[m][b] = j.calls[m][b], j.calls[m][a] })
		for i, k := range j.calls[m] {
			j.calls[m][i].N = next[k.Group]
			next[k.Group]++
		}
		for range j.calls[m] {
			j.events = append(j.events, func() { j.call(m) })
		}
	}
	return j
}

// call has a member call its next operation. No member waits for one before it calls the next.
func (j *job) call(m int) {
	k := j.calls[m][0]
	j.calls[m] = j.calls[m][1:]
	if j.called[k]++; j.called[k] < len(j.groups[k.Group]) {
		return
	}
	for _, m := range j.groups[k.Group] { // each hears of it at some time
		j.events = append(j.events, func() { j.enter(m, k) })
	}
}

func (j *job) enter(m int, k Key) {
	if j.naive {
		j.went[m] = append(j.went[m], k)
		return
	}
	j.times[k] = append(j.times[k], j.lines[m].Enter(k))
	if len(j.times[k]) < len(j.groups[k.Group]) {
		return
	}
	for _, m := range j.groups[k.Group] {
		j.events = append(j.events, func() { j.went[m] = append(j.went[m], j.lines[m].Settle(k, j.times[k])...) })
	}
}

func (j *job) run() {
	for len(j.events) > 0 {
		i := j.r.IntN(len(j.events))
		event := j.events[i]
		j.events = slices.Delete(j.events, i, i+1)
		event()
	}
}

// stuck is how many operations are not done where each member does one at a time, in its order, and
// an operation is done when all its members have come so far.
func (j *job) stuck() int {
	queues := slices.Clone(j.went)
	for moved := true; moved; {
		moved = false
		for _, q := range queues {
			if len(q) == 0 {
				continue
			}
			k := q[0]
			if !slices.ContainsFunc(j.groups[k.Group], func(m int) bool { return len(queues[m]) == 0 || queues[m][0] != k }) {
				for _, m := range j.groups[k.Group] {
					queues[m] = queues[m][1:]
				}
				moved = true
			}
		}
	}
	left := 0
	for _, q := range queues {
		left += len(q)
	}
	return left
}

func TestAllMembersDoAllOperationsInOrdersThatNeverBlock(t *testing.T) {
	blocked := 0
	for range soak.Cases(2000) {
		seed := rand.Uint64()
		j := newJob(rand.New(rand.NewPCG(seed, 0)))
		all := make([]int, len(j.calls))
		for m, calls := range j.calls {
			all[m] = len(calls)
		}
		j.run()
		for m, went := range j.went {
			require.Len(t, went, all[m], "seed %d: member %d", seed, m)
			require.Empty(t, j.lines[m].waiting)
		}
		require.Zero(t, j.stuck(), "seed %d", seed)

		j = newJob(rand.New(rand.NewPCG(seed, 0)))
		j.naive = true
		j.run()
		if j.stuck() > 0 {
			blocked++
		}
	}
	require.Positive(t, blocked, "without turns it would block: the check can fail")
}

func TestAGroupThatFailsLetsOthersGo(t *testing.T) {
	var l Line
	a, b, c := Key{"a", 0}, Key{"b", 0}, Key{"c", 0}
	require.Equal(t, uint64(1), l.Enter(a))
	require.Equal(t, uint64(2), l.Enter(b))
	require.Equal(t, uint64(3), l.Enter(c))
	require.Empty(t, l.Settle(b, []uint64{2, 1}), "a may come before it")
	require.Empty(t, l.Settle(c, []uint64{3, 9}))
	require.Equal(t, []Key{b, c}, l.Leave(a))
	require.Equal(t, uint64(10), l.Enter(a), "after all that is known")
	require.Equal(t, []Key{a}, l.Settle(a, []uint64{10}))
}
