//go:build !race

package rdzv

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

var epochOfTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is some agents and the leader's state, in a time of its own. Agents hear what they are told
// at once.
type world struct {
	t      *testing.T
	r      *rand.Rand
	cfg    Config
	s      *State
	now    time.Time
	next   int
	alive  map[string]*agent         // agents that keep telling that they live
	dead   map[string]time.Time      // when the others were last heard of
	rounds map[int]map[int]Placement // by round and rank
	last   map[string]int            // rank in the latest round, of those that were in it
	log    []string
}

type agent struct {
	Node
	heard  time.Time
	place  *Placement
	fails  int
	told   ActionKind
	closed bool
}

func (w *world) event(e Event) {
	actions, why := w.s.Decide(e, w.now)
	w.log = append(w.log, fmt.Sprintf("%v %d %+v: %d actions, %s", w.now.Sub(epochOfTime), e.Kind, e, len(actions), why))
	formed := map[string]Placement{}
	for _, a := range actions {
		w.heard(a)
		if a.Kind == Place {
			formed[a.ID] = a.Placement
		}
	}
	w.check()
	if w.rounds[w.s.round] == nil && w.s.phase == Complete {
		w.roundIsSound(formed)
	}
}

// heard is what an agent makes of what it is told.
func (w *world) heard(a Action) {
	ag := w.alive[a.ID]
	if a.Kind == Lost {
		since, dead := w.dead[a.ID]
		silent := dead && w.now.Sub(since) > w.cfg.Silence
		left := ag == nil && !dead
		if a.Why != "is done" && a.Why != "gives up waiting" {
			require.True(w.t, silent || left, "%s was lost although it lives: %s\n%v", a.ID, a.Why, w.log)
		}
		delete(w.dead, a.ID)
	}
	if ag == nil {
		return
	}
	ag.told = a.Kind
	switch a.Kind {
	case Place:
		p := a.Placement
		ag.place = &p
	case Finished:
		ag.closed = true
	case Refuse:
		require.Error(w.t, a.Err)
		delete(w.alive, a.ID)
	case Lost:
		delete(w.alive, a.ID)
	}
}

// roundIsSound checks a round that has just formed against all that is promised of one.
func (w *world) roundIsSound(formed map[string]Placement) {
	n := len(formed)
	require.GreaterOrEqual(w.t, n, w.cfg.Min, "%v", w.log)
	require.LessOrEqual(w.t, n, w.cfg.Max, "%v", w.log)
	ranks, firsts := map[int]Placement{}, 0
	for id, p := range formed {
		require.Equal(w.t, w.s.round, p.Round)
		require.Equal(w.t, n, p.Nodes)
		require.NotContains(w.t, ranks, p.Rank, "a rank was given twice\n%v", w.log)
		ranks[p.Rank] = p
		was, stayed := w.last[id]
		require.Equal(w.t, stayed, p.Stayed)
		if stayed && was < n {
			require.Equal(w.t, was, p.Rank, "%s lost its rank\n%v", id, w.log)
		}
	}
	source := -1
	for rank := range n {
		p, there := ranks[rank]
		require.True(w.t, there, "ranks are without gaps")
		require.Equal(w.t, firsts, p.First)
		require.Equal(w.t, ranks[0].MasterAddr, p.MasterAddr)
		require.Equal(w.t, ranks[0].World, p.World)
		firsts += p.Slots
		if p.Stayed && source < 0 {
			source = rank
		}
		require.Equal(w.t, ranks[0].Source, p.Source)
	}
	require.Equal(w.t, source, ranks[0].Source)
	require.Equal(w.t, firsts, ranks[0].World)
	w.rounds[w.s.round] = ranks
	w.last = map[string]int{}
	for id, p := range formed {
		w.last[id] = p.Rank
	}
}

// check looks at what must always be so.
func (w *world) check() {
	counts, done, awaited := [3]int{}, 0, 0
	for id, m := range w.s.members {
		require.Equal(w.t, id, m.ID)
		counts[m.on]++
		if m.done {
			done++
		}
		if m.awaited {
			awaited++
		}
	}
	require.Equal(w.t, counts, w.s.counts)
	require.Equal(w.t, done, w.s.done)
	require.Equal(w.t, awaited, w.s.awaited)
	require.LessOrEqual(w.t, counts[participating], w.cfg.Max)
	if w.s.phase == Gathering && counts[participating] < w.cfg.Max {
		require.Zero(w.t, counts[redundant], "nobody is redundant while there is room\n%v", w.log)
		require.True(w.t, counts[participating] < w.cfg.Max || w.s.awaited > 0, "it waits for nobody\n%v", w.log)
	}
	if next := w.s.next(); w.s.phase != Closed && len(w.s.members) > 0 {
		require.True(w.t, next.After(w.now), "a tick that is due decides nothing\n%v", w.log)
	}
}

// pass lets time go by: everybody who lives says so, and the leader gets its ticks when it asks for
// them.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for {
		step := end.Add(1)
		for _, a := range w.alive {
			if due := a.heard.Add(w.cfg.Silence / 3); !a.closed && due.Before(step) {
				step = due
			}
		}
		if next := w.s.next(); !next.IsZero() && next.Before(step) {
			step = next
		}
		if step.After(end) {
			break
		}
		if step.After(w.now) {
			w.now = step
		}
		w.event(Event{Kind: Tick})
		for _, id := range slices.Sorted(maps.Keys(w.alive)) {
			if a := w.alive[id]; a != nil && !a.closed && w.now.Sub(a.heard) >= w.cfg.Silence/3 {
				a.heard = w.now
				w.event(Event{Kind: KeepAlive, ID: id})
			}
		}
	}
	w.now = end
}

func (w *world) pick() *agent {
	ids := slices.Sorted(maps.Keys(w.alive))
	if len(ids) == 0 {
		return nil
	}
	return w.alive[ids[w.r.IntN(len(ids))]]
}

func (w *world) join() {
	w.next++
	n := Node{ID: fmt.Sprintf("n%d", w.next), Addr: fmt.Sprintf("10.0.0.%d", w.next), Slots: 1 + w.r.IntN(3), Role: []string{"trainer", "ps"}[w.r.IntN(2)]}
	w.alive[n.ID] = &agent{Node: n, heard: w.now}
	w.event(Event{Kind: Join, Node: n, Config: w.cfg})
}

// step is one random thing that happens.
func (w *world) step() {
	a := w.pick()
	switch k := w.r.IntN(12); {
	case k < 4 || a == nil:
		w.join()
	case k == 4:
		w.dead[a.ID] = a.heard
		delete(w.alive, a.ID)
	case k == 5:
		delete(w.alive, a.ID)
		w.event(Event{Kind: Leave, ID: a.ID})
	case k == 6:
		a.fails++
		w.event(Event{Kind: Fail, ID: a.ID, Why: "exit code 1", Nth: a.fails, Round: max(w.s.round-w.r.IntN(2), 0)})
	case k == 7 && w.r.IntN(4) == 0:
		a.heard = w.now
		w.event(Event{Kind: Done, ID: a.ID, Round: max(w.s.round-w.r.IntN(2), 0)})
	case k == 8:
		a.heard = w.now
		w.event(Event{Kind: Join, Node: a.Node, Config: w.cfg})
	case k == 9:
		w.takeOver()
	default:
		w.pass(time.Duration(w.r.IntN(2000)) * time.Millisecond)
	}
}

// takeOver replaces the leader by one that has read what the last one wrote.
func (w *world) takeOver() {
	b, err := w.s.encode(w.now)
	require.NoError(w.t, err)
	s, err := decode(b, w.now)
	require.NoError(w.t, err, "%v", w.log)
	again, err := s.encode(w.now)
	require.NoError(w.t, err)
	require.Equal(w.t, b, again)
	require.Equal(w.t, w.s.Summary(), s.Summary())
	for id, m := range s.members {
		if m.place != (Placement{}) && m.on == participating {
			old := w.s.members[id].place
			old.Epoch, old.Restarts = m.place.Epoch, m.place.Restarts
			require.Equal(w.t, old, m.place)
		}
	}
	w.s = s
	for id := range w.dead {
		w.dead[id] = w.now // the new leader has heard of nobody yet
	}
}

func TestRandomComingsAndGoingsFormSoundRoundsInWhichStayersKeepTheirRanks(t *testing.T) {
	for seed := range uint64(soak.Cases(100)) {
		r := rand.New(rand.NewPCG(seed, 8))
		least := 1 + r.IntN(4)
		cfg, err := Config{Min: least, Max: least + r.IntN(4), JoinTimeout: time.Duration(10+r.IntN(50)) * time.Second, LastCall: 5 * time.Second,
			MaxRestarts: r.IntN(5), Policy: Policy(r.IntN(2))}.Populate()
		require.NoError(t, err)
		s, err := NewState(cfg)
		require.NoError(t, err)
		w := &world{t: t, r: r, cfg: cfg, s: s, now: epochOfTime, alive: map[string]*agent{}, dead: map[string]time.Time{},
			rounds: map[int]map[int]Placement{}, last: map[string]int{}}
		for range 60 {
			w.step()
		}
		w.settles()
	}
}

// settles checks that once nobody comes or goes any more, there is an outcome.
func (w *world) settles() {
	w.pass(w.cfg.Silence + w.cfg.LastCall + 2*w.cfg.Settle + time.Second)
	live := len(w.s.members)
	if w.s.phase != Closed && live >= w.cfg.Min {
		require.Equal(w.t, Complete, w.s.phase, "%d nodes wait for ever\n%v", live, w.log)
		for id, a := range w.alive {
			m := w.s.members[id]
			require.NotNil(w.t, m)
			if m.on == participating {
				require.Equal(w.t, m.place.Rank, a.place.Rank)
				require.Equal(w.t, w.s.round, a.place.Round, "%s does not know its round\n%v", id, w.log)
			}
		}
	}
}
