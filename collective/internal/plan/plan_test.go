package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// member is one that follows its plan.
type member struct {
	plan Plan
	at   int  // its step
	sent bool // what it sends in it
	has  map[Slot]bool
}

type letter struct{ from, to, step int }

// eachPlan goes over all kinds, algorithms, sizes and roots.
func eachPlan(t *testing.T, most int, fn func(t *testing.T, kind Kind, a Algorithm, size, root int)) {
	for kind := AllReduce; kind.Known(); kind++ {
		for a := Direct; a.Known(); a++ {
			if !a.Does(kind) {
				continue
			}
			for size := 1; size <= most; size++ {
				for root := range size {
					if root > 0 && !kind.Rooted() {
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/p=%d/root=%d", kind, a, size, root), func(t *testing.T) { fn(t, kind, a, size, root) })
				}
			}
		}
	}
}

func members(kind Kind, a Algorithm, size, root int) []*member {
	var all []*member
	for r := range size {
		m := &member{plan: New(kind, a, size, r, root, []int{0, 1, 0, 2, 2, 1, 0, 0, 1, 3, 2}[:size]...), has: map[Slot]bool{}}
		for _, s := range brings(kind, size, r, root) {
			m.has[s] = true
		}
		all = append(all, m)
	}
	return all
}

// The dumb definition: who needs what at last has it, and a sum was made of all that it is of.
func TestEveryPlanBringsEveryMemberWhatItsOperationPromises(t *testing.T) {
	eachPlan(t, 11, func(t *testing.T, kind Kind, a Algorithm, size, root int) {
		all := members(kind, a, size, root)
		post := map[letter][]Slot{}
		for progress := true; progress; {
			progress = false
			for r, m := range all {
				for m.step(t, r, size, post) {
					progress = true
				}
			}
		}
		require.Empty(t, post, "somebody was sent what nobody waits for")
		for r, m := range all {
			require.Equal(t, len(m.plan.Steps), m.at, "member %d is stuck", r)
			require.Equal(t, gets(kind, size, r, root), m.plan.Out)
			for _, s := range m.plan.Out {
				require.True(t, m.has[s], "member %d lacks %v", r, s)
			}
		}
	})
}

// step does what a member can do now.
func (m *member) step(t *testing.T, rank, size int, post map[letter][]Slot) bool {
	if m.at == len(m.plan.Steps) {
		return false
	}
	s := m.plan.Steps[m.at]
	if !m.sent {
		m.sent = true
		for _, out := range s.Send {
			key := letter{rank, out.Peer, m.at}
			require.NotEqual(t, rank, out.Peer)
			require.NotContains(t, post, key, "one message to a member in a step")
			for _, x := range out.Slots {
				require.True(t, m.has[x], "member %d sends %v, which it has not, in step %d", rank, x, m.at)
			}
			post[key] = out.Slots
		}
		return true
	}
	for _, in := range s.Recv {
		if _, ok := post[letter{in.Peer, rank, m.at}]; !ok {
			return false
		}
	}
	for _, in := range s.Recv {
		key := letter{in.Peer, rank, m.at}
		require.Equal(t, post[key], in.Slots, "member %d is sent other slots than it waits for", rank)
		for _, x := range post[key] {
			require.False(t, m.has[x], "member %d gets %v twice", rank, x)
			m.has[x] = true
		}
		delete(post, key)
	}
	for _, i := range s.Sum {
		for r := range size {
			require.True(t, m.has[Raw(r, i)], "member %d sums piece %d without that of %d", rank, i, r)
		}
		m.has[Sum(i)] = true
	}
	m.at, m.sent = m.at+1, false
	return true
}

// What is promised of messages and bytes is counted, with pieces of one byte.
func TestPlansCostWhatTheyPromise(t *testing.T) {
	log2 := func(p int) (n int) {
		for ; 1<<n < p; n++ {
		}
		return n
	}
	for size := 1; size <= 17; size++ {
		for rank := range size {
			messages, slots := cost(New(AllReduce, Direct, size, rank, 0))
			require.Equal(t, 2*(size-1), messages)
			require.Equal(t, 2*(size-1), slots, "2(p−1)/p of p pieces")
			messages, slots = cost(New(AllReduce, Spread, size, rank, 0))
			require.Equal(t, log2(size), messages)
			require.Equal(t, (size-1)*size, slots)
			messages, slots = cost(New(AllGather, Ring, size, rank, 0))
			require.Equal(t, size-1, messages)
			require.Equal(t, size-1, slots)
			messages, _ = cost(New(Broadcast, Tree, size, rank, 0))
			require.LessOrEqual(t, messages, 1+1+2*log2(size), "hello, up, down")
			_, slots = cost(New(Broadcast, Ring, size, rank, 0))
			require.LessOrEqual(t, slots, 2*(size-1))
		}
	}
}

func cost(p Plan) (messages, slots int) {
	for _, s := range p.Steps {
		for _, m := range s.Send {
			messages, slots = messages+1, slots+len(m.Slots)
		}
	}
	return messages, slots
}

func TestKindsAndAlgorithmsHaveNames(t *testing.T) {
	require.Equal(t, "AllReduce", AllReduce.String())
	require.Equal(t, "Barrier", Barrier.String())
	require.Equal(t, "Kind(0)", Kind(0).String())
	require.Equal(t, "Kind(99)", Kind(99).String())
	require.Equal(t, "tree", Tree.String())
	require.Equal(t, "Algorithm(9)", Algorithm(9).String())
}

func TestBetweenHostsASlotThatAllNeedGoesOnce(t *testing.T) {
	layout := []int{0, 0, 1, 0, 1, 2, 1, 1} // 3, 4 and 1
	crossing := func(kind Kind, a Algorithm) (slots, onHost int) {
		for rank := range layout {
			for _, step := range New(kind, a, len(layout), rank, 3, layout...).Steps {
				for _, m := range step.Send {
					if layout[rank] != layout[m.Peer] {
						slots += len(m.Slots)
					} else {
						onHost += len(m.Slots)
					}
				}
			}
		}
		return slots, onHost
	}
	slots, onHost := crossing(AllGather, Hosts)
	require.Equal(t, 8*2, slots, "each of 8 to two other hosts")
	require.Equal(t, 8*(2+3), onHost, "to all others there")
	slots, _ = crossing(AllGather, Direct)
	require.Equal(t, 3*5+4*4+1*7, slots)
	slots, _ = crossing(Broadcast, Hosts)
	require.Equal(t, 8*2, slots, "8 pieces")
	slots, _ = crossing(AllReduce, Hosts)
	require.Equal(t, 3*5+4*4+1*7+8*2, slots, "arrays to be summed in order, and sums once")
	layout = []int{0, 1, 2, 3, 4, 0, 1, 2, 0, 5} // 3, 2, 2, 1, 1 and 1
	slots, onHost = crossing(AllGather, Hosts)
	require.Equal(t, 10*5, slots, "each of 10 to five other hosts")
	require.Equal(t, 10*(2+1+1), onHost)
	slots, _ = crossing(Broadcast, Hosts)
	require.Equal(t, 10*5, slots)
}
