//go:build !race

package rdzv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func TestWhoLooksSeesWhoIsInWhoWaitsAndWhoHasGoneSinceWhenAndWhy(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		c := context.Background()
		_, err := Look(c, st)
		require.ErrorIs(t, err, ErrNone)
		cfg := Config{Min: 2, Max: 2, LastCall: time.Second, MaxRestarts: 3}
		a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		time.Sleep(10 * time.Second)
		spare := begin(t, st, cfg, 2)
		spare.take(t, func(a Action) bool { return a.Kind == Spare })
		time.Sleep(20 * time.Second)
		v, err := Look(c, st)
		require.NoError(t, err)
		require.Equal(t, []int{2, 0, 1, 2, 2}, []int{v.Summary.Nodes, v.Waiting, v.Redundant, v.Min, v.Max})
		require.Equal(t, Complete, v.Phase)
		require.Equal(t, 3, v.Config.MaxRestarts)
		within(t, 30*time.Second, v.Age)
		within(t, 30*time.Second, v.For)
		require.Len(t, v.Nodes, 3)
		require.Empty(t, v.Ended)
		for i, n := range v.Nodes {
			require.Equal(t, []string{"participating", "participating", "redundant"}[i], n.Standing)
			require.Equal(t, []int{0, 1, -1}[i], n.Rank)
			require.Equal(t, []int{0, 2, -1}[i], n.First)
			within(t, []time.Duration{30 * time.Second, 30 * time.Second, 20 * time.Second}[i], n.For)
		}
		require.Equal(t, "n2", v.Nodes[2].ID)
		require.Contains(t, []string{"n0", "n1"}, v.Leader)

		victim, left, leader := b, a, v.Leader
		if leader == "n1" {
			victim, left = a, b
		}
		victim.kill()
		left.take(t, func(a Action) bool { return a.Kind == Place && a.Placement.Round == 1 })
		time.Sleep(10 * time.Second)
		v, err = Look(c, st)
		require.NoError(t, err)
		require.Equal(t, 1, v.Round)
		require.Len(t, v.Nodes, 2)
		require.Len(t, v.Ended, 1)
		require.Equal(t, Parted{ID: victim.id, Addr: strings.Replace(victim.id, "n", "h", 1), Rank: v.Ended[0].Rank, How: WasLost,
			Why: "no word from it for 15s", Ago: v.Ended[0].Ago}, v.Ended[0])
		within(t, 10*time.Second, v.Ended[0].Ago)
		within(t, 10*time.Second, v.For)

		// The leader goes, and the next one knows all that.
		age := v.Age
		require.NoError(t, left.r.Leave(c, "has no more time"))
		left.kill()
		time.Sleep(10 * time.Second)
		v, err = Look(c, st)
		require.NoError(t, err)
		require.Equal(t, "n2", v.Leader)
		require.Equal(t, Gathering, v.Phase)
		require.Equal(t, []End{HasLeft, WasLost}, []End{v.Ended[0].How, v.Ended[1].How})
		require.Equal(t, "has no more time", v.Ended[0].Why)
		within(t, age+10*time.Second, v.Age)
		leave(t, spare)
	})
}

func TestAgesGoOnWhenALeaderIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 1, Max: 2, LastCall: time.Second}
		a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		time.Sleep(time.Hour) // in which nothing is written but bulletins
		v, err := Look(context.Background(), st)
		require.NoError(t, err)
		lost, left := a, b
		if v.Leader == "n1" {
			lost, left = b, a
		}
		lost.kill()
		left.take(t, func(a Action) bool { return a.Kind == Place && a.Placement.Round == 1 })
		time.Sleep(10 * time.Second)
		later, err := Look(context.Background(), st)
		require.NoError(t, err)
		require.Greater(t, later.Age, v.Age+20*time.Second)
		within(t, later.Age, later.Nodes[0].For)
		require.Equal(t, WasLost, later.Ended[0].How)
		within(t, 10*time.Second, later.Ended[0].Ago)
		leave(t, left)
	})
}

// within allows for a leader's beats.
func within(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.InDelta(t, want.Seconds(), got.Seconds(), 3)
}

func TestWhoFollowsSeesEveryBeatUntilTheStoreIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		a := begin(t, st, Config{Min: 1, Max: 2, LastCall: -1}, 0)
		a.take(t, isPlaced)
		c, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		beats := 0
		err := Follow(c, st, func(v View) {
			require.Len(t, v.Nodes, 1)
			beats++
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 60/2.5, beats, 3)
		leave(t, a)
	})
}

func TestLookingWritesNothingAndPopsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		a := begin(t, st, Config{Min: 1, LastCall: -1}, 0)
		a.take(t, isPlaced)
		time.Sleep(5 * time.Second)
		_, err := Look(context.Background(), readOnly{st})
		require.NoError(t, err)
		leave(t, a)
	})
}

// readOnly is a store that nobody may change.
type readOnly struct{ store.Store }

func (readOnly) Set(context.Context, string, []byte) error         { panic("written") }
func (readOnly) Push(context.Context, string, []byte) error        { panic("written") }
func (readOnly) Pop(context.Context, string) ([]byte, error)       { panic("popped") }
func (readOnly) Delete(context.Context, string) (bool, error)      { panic("deleted") }
func (readOnly) Add(context.Context, string, int64) (int64, error) { panic("written") }

func TestOnlyTheLastOfThoseThatHaveGoneAreKept(t *testing.T) {
	cfg := Config{Min: 1, Max: 8, LastCall: -1}
	s, err := NewState(cfg)
	require.NoError(t, err)
	now := epochOfTime
	s.Decide(Event{Kind: Join, Node: Node{ID: "stays", Slots: 1}, Config: cfg}, now)
	for i := range 3 * maxEnded {
		id := fmt.Sprint("n", i)
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Slots: 1}, Config: cfg}, now)
		now = now.Add(time.Second)
		s.Decide(Event{Kind: Leave, ID: id, Why: strings.Repeat("x", 3*maxText)}, now)
	}
	blob, err := s.encode(now)
	require.NoError(t, err)
	require.Less(t, len(blob), 2*maxEnded*maxText)
	s, err = decode(blob, now)
	require.NoError(t, err)
	v := View{}.of(s, now)
	require.Len(t, v.Ended, maxEnded)
	require.Equal(t, fmt.Sprint("n", 3*maxEnded-1), v.Ended[0].ID)
	require.Zero(t, v.Ended[0].Ago)
	require.Equal(t, time.Duration(maxEnded-1)*time.Second, v.Ended[maxEnded-1].Ago)
}

// seen is what somebody sees who looks at s after it was shown.
func seen(t *testing.T, s *State, now time.Time) View {
	s.noteLate(now)
	blob, err := s.encode(now)
	require.NoError(t, err)
	shown, err := decode(blob, now)
	require.NoError(t, err)
	return View{Summary: shown.Summary()}.of(shown, now)
}

func TestWhoIsLateIsSeenToBeBeforeItIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		c := context.Background()
		cfg := Config{Min: 1, Max: 2, LastCall: time.Second}
		a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		time.Sleep(time.Minute)
		v, err := Look(c, st)
		require.NoError(t, err)
		for _, n := range v.Nodes {
			require.Zero(t, n.Silent)
		}
		victim, left := b, a
		if v.Leader == "n1" {
			victim, left = a, b
		}
		victim.kill()
		died := time.Now()
		var silent time.Duration
		for v.Round == 0 {
			time.Sleep(100 * time.Millisecond)
			v, err = Look(c, st)
			require.NoError(t, err)
			for _, n := range v.Nodes {
				if n.ID == victim.id {
					require.GreaterOrEqual(t, n.Silent, silent, "it goes on")
					silent = n.Silent
				} else {
					require.Zero(t, n.Silent)
				}
			}
		}
		require.Greater(t, silent, v.Config.Silence-5*time.Second, "it was seen to be late before it was lost")
		require.GreaterOrEqual(t, silent, time.Since(died)-5*time.Second)
		require.Len(t, v.Nodes, 1)
		left.take(t, func(a Action) bool { return a.Kind == Place && a.Placement.Round == 1 })
		leave(t, left)
	})
}

func TestWhoWasLateAndIsHeardAgainIsSeenToBeThere(t *testing.T) {
	s, looks := complete(t, 2), 0
	id := s.sorted(participating)[1].ID
	at := func(d time.Duration) Seen {
		v := seen(t, s, epochOfTime.Add(d))
		looks = s.looks
		return v.Nodes[1]
	}
	late := s.cfg.Late()
	require.Zero(t, at(late).Silent)
	first := looks
	require.Equal(t, late+1, at(late+1).Silent)
	require.Greater(t, looks, first, "the leader shows it")
	first = looks
	require.Equal(t, late+2*time.Second, at(late+2*time.Second).Silent)
	require.Equal(t, first, looks, "once")
	s.Decide(Event{Kind: KeepAlive, ID: id}, epochOfTime.Add(late+3*time.Second))
	require.Zero(t, at(late+4*time.Second).Silent)
	require.Greater(t, looks, first)
}

func TestANodeThatIsBackIsSeenOnce(t *testing.T) {
	cfg := Config{Min: 1, Max: 8, LastCall: -1}
	s, err := NewState(cfg)
	require.NoError(t, err)
	now := epochOfTime
	join := func(id, addr string) {
		now = now.Add(time.Second)
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: addr, Slots: 1}, Config: cfg}, now)
	}
	leave := func(id, why string) {
		now = now.Add(time.Second)
		s.Decide(Event{Kind: Leave, ID: id, Why: why}, now)
	}
	ids := func(v View) (nodes map[string][]string, ended []string) {
		nodes = map[string][]string{}
		for _, n := range v.Nodes {
			nodes[n.ID] = nil
			for _, e := range n.Earlier {
				nodes[n.ID] = append(nodes[n.ID], e.ID)
			}
		}
		for _, e := range v.Ended {
			ended = append(ended, e.ID)
		}
		return nodes, ended
	}
	check := func(nodes map[string][]string, ended ...string) {
		t.Helper()
		n, e := ids(seen(t, s, now))
		require.Equal(t, nodes, n)
		require.Equal(t, ended, e)
	}
	join("a", "one")
	join("b", "two")
	join("c", "two") // two on a machine
	leave("b", "it was stopped")
	check(map[string][]string{"a": nil, "c": nil}, "b")
	join("b", "two")
	check(map[string][]string{"a": nil, "b": {"b"}, "c": nil})
	leave("b", "")
	leave("c", "")
	check(map[string][]string{"a": nil}, "c", "b")
	join("d", "two") // another life of either
	check(map[string][]string{"a": nil, "d": {"c"}}, "b")
	join("e", "two")
	join("f", "two") // this one is new
	check(map[string][]string{"a": nil, "d": {"c"}, "e": {"b", "b"}, "f": nil})
	leave("e", "")
	check(map[string][]string{"a": nil, "d": {"c"}, "f": nil}, "e")
	join("g", "two")
	check(map[string][]string{"a": nil, "d": {"c"}, "f": nil, "g": {"e", "b", "b"}})
	require.Equal(t, "it was stopped", seen(t, s, now).Nodes[3].Earlier[2].Why)
}

func TestHowLongARoundWaitsIsSeen(t *testing.T) {
	cfg := Config{Min: 2, Max: 3, LastCall: 30 * time.Second, JoinTimeout: 100 * time.Second, Silence: time.Hour}
	s, err := NewState(cfg)
	require.NoError(t, err)
	join := func(id string, at time.Time) {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Slots: 1}, Config: cfg}, at)
	}
	left := func(at time.Time) time.Duration { return seen(t, s, at).Left }
	require.Zero(t, left(epochOfTime))
	join("a", epochOfTime)
	require.Equal(t, 90*time.Second, left(epochOfTime.Add(10*time.Second)), "until the first gives up")
	join("b", epochOfTime.Add(14*time.Second))
	require.Equal(t, 20*time.Second, left(epochOfTime.Add(24*time.Second)), "of the last call")
	join("c", epochOfTime.Add(25*time.Second))
	require.Zero(t, left(epochOfTime.Add(26*time.Second)), "it is complete")
	for _, id := range []string{"a", "b"} {
		s.Decide(Event{Kind: Leave, ID: id}, epochOfTime.Add(30*time.Second))
	}
	require.Equal(t, 60*time.Second, left(epochOfTime.Add(70*time.Second)), "until the round is given up")
}

// FuzzLook has anything lie where a rendezvous should be.
func FuzzLook(f *testing.F) {
	cfg := Config{Min: 1, Max: 2, LastCall: -1}
	s, err := NewState(cfg)
	require.NoError(f, err)
	for _, id := range []string{"a", "b", "c"} {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Slots: 1}, Config: cfg}, epochOfTime)
	}
	s.Decide(Event{Kind: Leave, ID: "a", Why: "so"}, epochOfTime.Add(time.Second))
	blob, err := s.encode(epochOfTime.Add(time.Minute))
	require.NoError(f, err)
	f.Add(pack(bulletin{V: version, Term: 1, Summary: s.Summary()}), pack(lease{V: version, Term: 1, Leader: "b"}), pack(shown{V: version, Term: 1, State: blob}))
	f.Add([]byte("{}"), []byte("x"), []byte(nil))
	f.Fuzz(func(t *testing.T, summary, leader, state []byte) {
		st := store.NewMemory()
		defer st.Close()
		for key, value := range map[string][]byte{keySummary: summary, keyLeader: leader, keyShown: state} {
			require.NoError(t, st.Set(t.Context(), key, value))
		}
		v, err := Look(t.Context(), st)
		if err != nil {
			require.True(t, errors.Is(err, ErrCorrupt), "%v", err)
			return
		}
		require.LessOrEqual(t, len(v.Ended), maxEnded)
		for _, n := range v.Nodes {
			require.NoError(t, n.validate())
			require.GreaterOrEqual(t, n.For, time.Duration(0))
		}
	})
}
