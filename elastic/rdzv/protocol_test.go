//go:build !race

package rdzv

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

func TestRandomInterleavingsOfManyNodesCrashesAndDoubtsAgreeAndSettle(t *testing.T) {
	for seed := range uint64(soak.Cases(300)) {
		r := rand.New(rand.NewPCG(seed, 9))
		n := 2 + r.IntN(5)
		least := 1 + r.IntN(n)
		w := newTable(n, Config{Min: least, Max: least + r.IntN(n-least+1), LastCall: -1, Settle: -1}, r.IntN(n), r.IntN(4))
		w.cfg.Max = max(w.cfg.Max, n)
		for _, s := range w.seats {
			s.cfg = w.cfg
			s.intent = s.join()
		}
		var path []choice
		for {
			choices := w.choices()
			if len(choices) == 0 || len(path) > 4000 {
				break
			}
			c := choices[r.IntN(len(choices))]
			if disturbs(c) && r.IntN(10) > 0 && len(choices) > 1 {
				continue
			}
			path = append(path, c)
			require.NoError(t, w.make(c), "seed %d: %v", seed, path)
			require.NoError(t, w.agree(), "seed %d: %v", seed, path)
		}
		require.Less(t, len(path), 4000, "seed %d does not settle", seed)
		require.NoError(t, w.settled(), "seed %d: %v", seed, path)
	}
}

// elected is a peer that has just won term 2, and is to read the state that the leader before it
// has left.
func elected(t *testing.T, k *keys) (*peer, op) {
	cfg, err := Config{Min: 1, Max: 2}.Populate()
	require.NoError(t, err)
	k.values[keyLeader] = string(pack(lease{V: version, Term: 1, Seq: 1, From: 1}))
	p := newPeer(Node{ID: "N0", Addr: "h", Slots: 1}, cfg, epochOfTime)
	o := p.start()[0]
	for range 2 {
		ops, err := p.result(o, k.do(o), epochOfTime)
		require.NoError(t, err)
		o = ops[0]
	}
	require.Equal(t, op{kind: opRead, key: lease{From: 1, Seq: 1}.keyState()}, o)
	return p, o
}

func TestALeaderThatIsOvertakenBeforeItHasReadTheStateFollows(t *testing.T) {
	k := &keys{values: map[string]string{}, queues: map[string][]string{}}
	p, o := elected(t, k)
	k.values[keyLeader] = string(pack(lease{V: version, Term: 3, Leader: "N1", Seq: 2, From: 3})) // and has removed what was there before
	for range 2 {
		ops, err := p.result(o, k.do(o), epochOfTime)
		require.NoError(t, err)
		require.NotEmpty(t, ops)
		o = ops[0]
	}
	require.Equal(t, following, p.role)
	require.Equal(t, keyInbox, o.key, "it tells the new leader that it joins")
}

func TestAStateThatIsGoneIsAnError(t *testing.T) {
	k := &keys{values: map[string]string{}, queues: map[string][]string{}}
	p, o := elected(t, k)
	ops, err := p.result(o, k.do(o), epochOfTime)
	require.NoError(t, err)
	_, err = p.result(ops[0], k.do(ops[0]), epochOfTime)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "state 1.1")
}

func TestALeaderIsNotMovedByALateWordOfTheOneBefore(t *testing.T) {
	k := &keys{values: map[string]string{}, queues: map[string][]string{}}
	p, o := elected(t, k)
	s, err := NewState(p.cfg)
	require.NoError(t, err)
	blob, err := s.encode(epochOfTime)
	require.NoError(t, err)
	_, err = p.result(o, blob, epochOfTime)
	require.NoError(t, err)
	require.Equal(t, leading, p.role)
	require.Empty(t, p.saw(pack(bulletin{V: version, Term: 1, Beat: 99}), epochOfTime))
	require.Equal(t, leading, p.role)
}

func TestWhoWasLostAndWantsToCloseJoinsAndClosesThen(t *testing.T) {
	k := &keys{values: map[string]string{}, queues: map[string][]string{}}
	p, _ := elected(t, k)
	p.role = following
	p.want(Event{Kind: Close, Why: "asked to"})
	lost := newAnswer(lease{Term: 2}, Action{Kind: Refuse, Err: ErrLost})
	said := func(ops []op) EventKind {
		require.Len(t, ops, 1)
		e, err := readMessage(ops[0].new)
		require.NoError(t, err)
		return e.Kind
	}
	require.Equal(t, Join, said(p.answered(pack(lost), epochOfTime)))
	require.Equal(t, Close, said(p.live(p.nextBeat)))
}

func TestALateLeaveToRestartDoesNotUnsayThatANodeIsDone(t *testing.T) {
	k := &keys{values: map[string]string{}, queues: map[string][]string{}}
	p, _ := elected(t, k)
	p.role = following
	place := Placement{Nodes: 1, World: 1, Slots: 1, MasterAddr: "h"}
	p.answered(pack(newAnswer(lease{Term: 2}, Action{Kind: Place, Placement: place})), epochOfTime)
	leave := pack(newAnswer(lease{Term: 2}, Action{Kind: Restart, Placement: place, Nth: 1}))
	p.want(Event{Kind: Fail, Nth: 1})
	p.answered(leave, epochOfTime)
	require.Equal(t, Join, p.intent.Kind)
	p.want(Event{Kind: Fail, Nth: 2})
	p.answered(leave, epochOfTime)
	require.Equal(t, Fail, p.intent.Kind, "it is of the failure before")
	p.want(Event{Kind: Done})
	p.answered(leave, epochOfTime)
	require.Equal(t, Done, p.intent.Kind)
	require.Len(t, p.news, 4)
}

func TestANodeSaysThatItLivesEveryThirdOfTheSilenceThatIsItsEndAndNotBefore(t *testing.T) {
	cfg, err := Config{Min: 1}.Populate()
	require.NoError(t, err)
	p := newPeer(Node{ID: "N0", Addr: "h", Slots: 1}, cfg, epochOfTime)
	_, err = p.follow(pack(lease{V: version, Term: 1, Leader: "N1"}), epochOfTime)
	require.NoError(t, err)
	due := epochOfTime.Add(cfg.Silence / 3)
	require.Equal(t, due, p.nextTick())
	require.Empty(t, p.tick(due.Add(-1)))
	require.Len(t, p.tick(due), 1)
	require.Empty(t, p.tick(due))
	p.heard = due
	require.Equal(t, due.Add(cfg.Silence/3), p.nextTick())
}
