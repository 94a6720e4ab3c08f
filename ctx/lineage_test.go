package ctx

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// talk is random messages between workers, which may arrive in any order, and beside it what
// somebody who sees everything knows.
type talk struct {
	r       *rand.Rand
	know    []lineage
	has     [][]MessageID // that have arrived, by worker
	parents map[MessageID][]MessageID
	flying  []flight
	last    uint64
}

type flight struct {
	id       MessageID
	from, to WorkerID
	past     Lineage
}

func (k *talk) send() {
	from, to := WorkerID(k.r.IntN(len(k.know))), WorkerID(k.r.IntN(len(k.know)))
	k.last++
	id := MessageID(newID(from, k.last))
	var parents []MessageID
	for range k.r.IntN(4) {
		if here := k.has[from]; len(here) > 0 {
			if p := here[k.r.IntN(len(here))]; !slices.Contains(parents, p) {
				parents = append(parents, p)
			}
		}
	}
	k.parents[id] = slices.Clone(parents)
	parents = k.know[from].reduce(parents)
	k.know[from].add(id, parents)
	k.flying = append(k.flying, flight{id, from, to, k.know[from].summarize(to, parents)})
}

func (k *talk) arrive(t *testing.T) {
	if len(k.flying) == 0 {
		return
	}
	i := k.r.IntN(len(k.flying))
	f := k.flying[i]
	k.flying = slices.Delete(k.flying, i, i+1)
	require.NoError(t, k.know[f.to].learn(f.from, f.id, f.past))
	k.has[f.to] = append(k.has[f.to], f.id)
}

// past is the ancestors of messages, and these, as they are.
func (k *talk) past(of []MessageID) Plan {
	all := map[MessageID]struct{}{}
	var visit func(id MessageID)
	visit = func(id MessageID) {
		if _, twice := all[id]; twice {
			return
		}
		all[id] = struct{}{}
		for _, p := range k.parents[id] {
			visit(p)
		}
	}
	for _, id := range of {
		visit(id)
	}
	plan := Plan{}
	for id := range all {
		plan = append(plan, id)
	}
	slices.Sort(plan)
	return plan
}

func TestEveryWorkerKnowsAllThatItsMessagesComeFrom(t *testing.T) {
	told, whole := 0, 0
	for seed := range uint64(soak.Cases(300)) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 2 + r.IntN(5)
		k := &talk{r: r, know: make([]lineage, n), has: make([][]MessageID, n), parents: map[MessageID][]MessageID{}}
		for range 60 {
			k.send()
			for r.IntN(3) > 0 {
				k.arrive(t)
			}
			if len(k.flying) > 0 {
				f := k.flying[len(k.flying)-1]
				told, whole = told+len(f.past.Ancestors), whole+len(k.past(f.past.Parents))
			}
		}
		for at, l := range k.know {
			for range 5 {
				var from []MessageID
				for range r.IntN(4) {
					if here := k.has[at]; len(here) > 0 {
						from = append(from, here[r.IntN(len(here))])
					}
				}
				plan, err := l.plan(from)
				require.NoError(t, err)
				require.Equal(t, k.past(from), plan)
				for w := range WorkerID(n) {
					mine := slices.DeleteFunc(slices.Clone(plan), func(id MessageID) bool { return id.Creator() != w })
					require.ElementsMatch(t, mine, plan.of(w))
					require.Equal(t, len(mine) > 0, slices.Contains(plan.workers(), w))
				}
			}
		}
	}
	t.Logf("messages told of %d ancestors of the %d that they had", told, whole)
	require.Less(t, told, whole/2, "what the receiver knows is left out")
}

func TestALongLoopOfCallsTellsOfItsLastSteps(t *testing.T) {
	a, b := &lineage{}, &lineage{} // worker 0 calls worker 1 with what it got before, and with all results so far
	var results []MessageID
	for i := range uint64(500) {
		call, answer := MessageID(newID(0, i)), MessageID(newID(1, i))
		parents := a.reduce(slices.Clone(results))
		require.LessOrEqual(t, len(parents), 1, "the last result stands for those before")
		a.add(call, parents)
		past := a.summarize(1, parents)
		require.Empty(t, past.Ancestors, "the callee made them")
		require.NoError(t, b.learn(0, call, past))
		b.add(answer, []MessageID{call})
		require.NoError(t, a.learn(1, answer, b.summarize(0, []MessageID{call})))
		if results = append(results, answer); len(results) > 2 {
			results = results[1:]
		}
	}
	plan, err := a.plan(results)
	require.NoError(t, err)
	require.Len(t, plan, 1000)
	require.Less(t, len(plan.Append(nil)), 1100, "a byte for most")
}

func TestAPlanWhosePastIsNotKnownIsRefused(t *testing.T) {
	l := &lineage{}
	require.NoError(t, l.learn(1, 7, Lineage{Parents: []MessageID{8}}))
	_, err := l.plan([]MessageID{7})
	require.ErrorIs(t, err, ErrProtocol)
	require.NoError(t, l.learn(1, 8, Lineage{Parents: []MessageID{7}}), "a circle, which a liar may tell of")
	plan, err := l.plan([]MessageID{7})
	require.NoError(t, err)
	require.Equal(t, Plan{7, 8}, plan)
	require.ErrorIs(t, l.learn(1, 9, Lineage{Ancestors: make([]Ancestor, maxLineage)}), ErrProtocol)
}

func FuzzPlan(f *testing.F) {
	f.Add(Plan{1, 2, MessageID(newID(3, 4))}.Append(nil))
	f.Add([]byte{1, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		plan, err := ParsePlan(raw)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.True(t, slices.IsSorted(plan))
		again, err := ParsePlan(plan.Append(nil))
		require.NoError(t, err)
		require.Equal(t, plan, again)
		n := 0
		for _, w := range plan.workers() {
			n += len(plan.of(w))
		}
		require.Equal(t, len(plan), n)
	})
}
