//go:build !race

package rdzv

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store"
)

// wipe has a store lose all, as one does that lies in the memory of a machine that is started
// again.
func wipe(t *testing.T, st store.Store) {
	all, err := st.ListKeys(t.Context())
	require.NoError(t, err)
	for _, key := range all {
		_, err := st.Delete(t.Context(), key)
		require.NoError(t, err)
	}
}

// takeLater takes a place and checks that a worker can tell by it that the one before is old.
func (l *life) takeLater(t *testing.T) {
	t.Helper()
	was := l.place
	l.take(t, isPlaced)
	require.Greater(t, l.place.Round, was.Round)
	require.Greater(t, l.place.Epoch, was.Epoch)
	require.GreaterOrEqual(t, l.place.Restarts, was.Restarts)
}

func TestWhoeverIsLeftWhenTheStoreHasLostAllGoesOnInALaterRound(t *testing.T) {
	for _, least := range []int{1, 2} {
		for dead := range 2 { // the leader is one of them
			for rounds := range 4 {
				t.Run(fmt.Sprintf("%d needed, node %d dies, round %d", least, dead, rounds), func(t *testing.T) {
					bubble(t, func(t *testing.T, st store.Store) {
						cfg := Config{Min: least, Max: 2, LastCall: time.Second, MaxRestarts: 3}
						lives := []*life{begin(t, st, cfg, 0), begin(t, st, cfg, 1)}
						lives[0].take(t, isPlaced)
						lives[1].take(t, isPlaced)
						for i := range rounds {
							leave(t, lives[dead])
							lives[dead] = begin(t, st, cfg, 10+i)
							lives[dead].take(t, isPlaced)
						}
						left := lives[1-dead]
						for left.place.Round < lives[dead].place.Round {
							left.take(t, isPlaced)
						}
						left.r.Fail(left.place.Round, left.place.First, 1, 0, "exit code 7")
						left.take(t, func(a Action) bool { return a.Kind == Restart })
						synctest.Wait()
						lives[dead].kill()
						<-lives[dead].r.done
						time.Sleep(time.Second)
						wipe(t, st)
						start := time.Now()
						again := begin(t, st, cfg, 7)
						was := left.place
						for left.place.Round == was.Round || left.place.Nodes < 2 {
							left.takeLater(t)
						}
						for again.placed == 0 || again.place.Round < left.place.Round {
							again.take(t, isPlaced)
						}
						require.Less(t, time.Since(start), cfg.withDefaults(t).Silence)
						require.Equal(t, 2, again.place.Nodes)
						require.Equal(t, left.place.Round, again.place.Round)
						require.NotEqual(t, left.place.Rank, again.place.Rank)
						require.Equal(t, 1, left.place.Restarts, "the budget is the job's")
						time.Sleep(time.Minute)
						sum, _ := left.r.Latest()
						require.Equal(t, left.place.Round, sum.Round)
						leave(t, left, again)
					})
				})
			}
		}
	}
}

func TestThoseWhoAreLeftAreTheSourceOfTheFirstRoundAndKeepTheirRanks(t *testing.T) {
	s, err := NewState(Config{Min: 3, Max: 4, MaxRestarts: 2})
	require.NoError(t, err)
	join := func(id string, past Past) {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 1}, Config: s.cfg, Past: past}, epochOfTime)
	}
	join("new", Past{})
	join("old", Past{Rounds: 4, Epoch: 9, Rank: 2, Restarts: 1})
	require.Equal(t, 4, s.round)
	join("left", Past{Rounds: 6, Epoch: 7, Rank: 1, Restarts: 5})
	s.Decide(Event{}, epochOfTime.Add(s.cfg.Settle))
	require.Equal(t, Complete, s.phase, "there is no last call for those who work")
	for id, rank := range map[string]int{"new": 0, "left": 1, "old": 2} {
		p := s.members[id].place
		require.Equal(t, rank, p.Rank, id)
		require.Equal(t, id == "left", p.Stayed, "%s: only the last round counts", id)
		require.Equal(t, []int{6, 10, 1, 2}, []int{p.Round, p.Epoch, p.Source, p.Restarts})
	}
	join("late", Past{Rounds: 20, Epoch: 30, Rank: 1})
	require.Equal(t, 6, s.round)
	later := epochOfTime.Add(time.Second)
	b, err := s.encode(later)
	require.NoError(t, err)
	s, err = decode(b, later)
	require.NoError(t, err)
	s.Decide(Event{}, later.Add(time.Second))
	p := s.members["late"].place
	require.Equal(t, []int{20, 31, 3, 0}, []int{p.Round, p.Epoch, p.Rank, p.Source})
	require.False(t, p.Stayed, "it comes into a job that has gone on without it")
}

func TestANodeThatWasTakenForNewGetsALaterPlaceWhenItSaysWhatItBrings(t *testing.T) {
	s, err := NewState(Config{Min: 2, Settle: -1})
	require.NoError(t, err)
	join := func(id string, past Past) []Action {
		actions, _ := s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 1}, Config: s.cfg, Past: past}, epochOfTime)
		return actions
	}
	join("a", Past{})
	require.Len(t, join("b", Past{}), 2)
	actions := join("b", Past{Rounds: 3, Epoch: 8})
	require.Len(t, actions, 2)
	require.Equal(t, 3, actions[0].Placement.Round)
	require.Equal(t, 9, actions[0].Placement.Epoch)
	require.Len(t, join("b", Past{Rounds: 3, Epoch: 8}), 1, "once")
	require.Equal(t, 3, s.round)
}

func TestTwoNodesThatBringOneRankGetOneEach(t *testing.T) {
	s, err := NewState(Config{Min: 2})
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 1}, Config: s.cfg, Past: Past{Rounds: 1, Rank: 1}}, epochOfTime)
	}
	require.Equal(t, Complete, s.phase)
	require.Equal(t, []int{1, 0}, []int{s.members["a"].place.Rank, s.members["b"].place.Rank})
}

func TestAPastThatCannotBeIsNotRead(t *testing.T) {
	node := Node{ID: "N0", Addr: "h", Slots: 1}
	for _, bad := range []Past{{Rounds: -1}, {Epoch: -1}, {Rank: -1}, {Restarts: -1}, {Rounds: maxPast}, {Epoch: maxPast}, {Restarts: maxPast}, {Rank: maxNodes}} {
		_, err := readMessage(pack(message{V: version, Event: Event{Kind: Join, ID: "N0", Node: node, Past: bad}}))
		require.ErrorIs(t, err, ErrCorrupt)
	}
	_, err := readMessage(pack(message{V: version, Event: Event{Kind: Join, ID: "N0", Node: node, Past: Past{Rounds: maxPast - 1}}}))
	require.NoError(t, err)
}

func TestTheStatesOfTwoRendezvousAtOneStoreLieApart(t *testing.T) {
	l := lease{Term: 1, Leader: "N0", Seq: 2, From: 1, Life: lifeOf("N0")}
	other := l
	other.Life = lifeOf("N1")
	require.NotEqual(t, l.keyState(), other.keyState())
	require.NotEqual(t, l.Life, other.Life)
}

func TestALeaderIsNotLedAstrayByWhoStillLeadsARendezvousThatIsGone(t *testing.T) {
	k := &keys{values: map[string]string{}, queues: map[string][]string{}}
	cfg := Config{Min: 1}.withDefaults(t)
	p := newPeer(Node{ID: "N0", Addr: "h", Slots: 1}, cfg, epochOfTime)
	for todo := p.start(); len(todo) > 0; todo = todo[1:] {
		value := k.do(todo[0])
		if todo[0].kind == opRead || todo[0].kind == opSwap {
			more, err := p.result(todo[0], value, epochOfTime)
			require.NoError(t, err)
			todo = append(todo, more...)
		}
	}
	require.Equal(t, leading, p.role)
	ops := p.saw(pack(bulletin{V: version, Term: 9, Beat: 9, Life: 5, Summary: Summary{Phase: Closed}}), epochOfTime)
	require.Equal(t, []op{{kind: opRead, key: keyLeader}}, ops)
	ops, err := p.result(ops[0], k.do(ops[0]), epochOfTime)
	require.NoError(t, err)
	require.Empty(t, ops)
	require.Equal(t, leading, p.role)
	require.NotNil(t, p.state)
	require.Zero(t, p.beat.Term)
	require.False(t, p.over)
}

// In all orders of steps that chance finds, nodes at a store that loses all at some moment come
// together again.
func TestRandomInterleavingsOfNodesWhoseStoreLosesAllSettleAndNoPlaceIsOlderThanTheOneBefore(t *testing.T) {
	for seed := range uint64(soak.Cases(400)) {
		r := rand.New(rand.NewPCG(seed, 21))
		n := 2 + r.IntN(4)
		least := 1 + r.IntN(n)
		w := newTable(n, Config{Min: least, Max: n, LastCall: -1, Settle: -1}, 0, r.IntN(3))
		latest := make([]Placement, n)
		losses := 1 + r.IntN(2)
		for _, s := range w.seats {
			s.founds = lifeOf(s.node.ID)
		}
		for step := 0; ; step++ {
			require.Less(t, step, 8000, "seed %d does not settle", seed)
			choices := w.choices()
			if losses > 0 && (len(choices) == 0 || r.IntN(60) == 0) {
				losses--
				w.lose(r.IntN(n), uint64(losses))
				for i, s := range w.seats {
					latest[i] = s.place
				}
				continue
			}
			if len(choices) == 0 {
				break
			}
			c := choices[r.IntN(len(choices))]
			if disturbs(c) && r.IntN(10) > 0 && len(choices) > 1 {
				continue
			}
			require.NoError(t, w.make(c), "seed %d, step %d: %+v", seed, step, c)
			w.forget()
			require.NoError(t, w.agree(), "seed %d, step %d: %+v", seed, step, c)
			for i, s := range w.seats {
				if was := latest[i]; s.place != was && was.Nodes > 0 {
					require.True(t, s.place.Round > was.Round && s.place.Epoch > was.Epoch, "seed %d, step %d: %s goes back from %+v to %+v", seed, step, s.node.ID, was, s.place)
				}
				latest[i] = s.place
			}
		}
		require.NoError(t, w.settled(), "seed %d", seed)
	}
}

// lose has the store lose all, and starts the node that hosts it again; the others go on with what
// they had to do.
func (w *table) lose(host int, life uint64) {
	clear(w.values)
	clear(w.queues)
	p := newPeer(w.seats[host].node, w.cfg, w.now)
	p.node.ID = fmt.Sprint(p.node.ID, "again", life)
	p.intent = p.join()
	p.founds = lifeOf(p.node.ID)
	w.seats[host] = &seat{peer: p, todo: p.start(), places: map[int]Placement{}}
}

// forget takes from everybody the places in a rendezvous that is gone, which may come late.
func (w *table) forget() {
	l, err := readLease([]byte(w.values[keyLeader]))
	for _, s := range w.seats {
		if err != nil || s.life != l.Life {
			clear(s.places)
		}
	}
}
