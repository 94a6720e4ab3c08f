//go:build !race

package rdzv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// A place that comes after a failure has the worker started: the failure is settled by that, and is
// not counted later.
func TestAFailureWhileARoundGathersCostsNothingOnceThereIsAPlace(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one by one": {Min: 2, MaxRestarts: 1}, "none allowed": {Min: 2}, "all together": {Min: 2, MaxRestarts: 1, Policy: RestartGroup},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, st store.Store) {
				a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
				a.take(t, isPlaced)
				b.take(t, isPlaced)
				leave(t, b)
				time.Sleep(time.Second)
				a.r.Fail(0, 0, 1, 0, "exit code 7")
				time.Sleep(time.Second)
				c := begin(t, st, cfg, 2)
				a.take(t, isPlaced)
				c.take(t, isPlaced)
				epoch := a.place.Epoch
				time.Sleep(3 * cfg.withDefaults(t).Silence)
				select {
				case x := <-a.r.News:
					require.Fail(t, "there is news", "%+v", x)
				default:
				}
				sum, _ := a.r.Latest()
				require.Equal(t, 0, sum.Restarts)
				require.Equal(t, epoch, sum.Epoch)
				if cfg.MaxRestarts > 0 { // the next one is counted
					a.r.Fail(1, 0, 2, 0, "exit code 7")
					a.take(t, func(x Action) bool { return x.Kind == Restart || x.Kind == Place })
					require.Equal(t, 1, a.last.Placement.Restarts)
				}
				leave(t, a, c)
			})
		})
	}
}

func (cfg Config) withDefaults(t *testing.T) Config {
	out, err := cfg.Populate()
	require.NoError(t, err)
	return out
}

func TestAFailureThatIsToldAfterThePlaceThatSettlesItIsNotCounted(t *testing.T) {
	for _, policy := range []Policy{ReplaceWorker, RestartGroup} {
		s, err := NewState(Config{Min: 1, Max: 2, LastCall: -1, Settle: -1, Policy: policy})
		require.NoError(t, err)
		join := func(id string) {
			s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 1}, Config: s.cfg}, epochOfTime)
		}
		join("a")
		join("b") // round 1
		require.Equal(t, 1, s.round)
		actions, _ := s.Decide(Event{Kind: Fail, ID: "a", Nth: 1, Round: 0, Why: "exit code 7"}, epochOfTime)
		require.Equal(t, Complete, s.phase)
		require.Len(t, actions, 1)
		require.Equal(t, Place, actions[0].Kind, "it may not have had it")
		actions, _ = s.Decide(Event{Kind: Fail, ID: "a", Nth: 2, Round: 1, Why: "exit code 7"}, epochOfTime)
		require.Equal(t, Finished, actions[0].Kind)
	}
}

// Worker 0 of a fails. Those that ran beside it and cannot go on without it fail, too, and more
// than one of them on more than one node. That is one loss.
func TestALostWorkerCostsOneRestartHoweverManyGiveUpOnIt(t *testing.T) {
	s, err := NewState(Config{Min: 2, LastCall: -1, MaxRestarts: 2})
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 2}, Config: s.cfg}, epochOfTime)
	}
	fail := func(id string, rank, nth, since int) Action {
		actions, why := s.Decide(Event{Kind: Fail, ID: id, Rank: rank, Nth: nth, Since: since, Why: "exit code 7"}, epochOfTime)
		require.NotEmpty(t, actions)
		if len(actions) == 1 {
			require.Equal(t, s.restarts, actions[0].Placement.Restarts, why)
		}
		return actions[0]
	}
	require.Equal(t, Restart, fail("a", 0, 1, 1).Kind)
	require.Equal(t, 1, s.restarts)
	require.Equal(t, Restart, fail("a", 1, 2, 1).Kind)
	require.Equal(t, Restart, fail("b", 2, 1, 1).Kind)
	told := s.told()
	blob, err := s.encode(epochOfTime)
	require.NoError(t, err)
	s, err = decode(blob, epochOfTime)
	require.NoError(t, err)
	require.Equal(t, told, s.told())
	require.Equal(t, Restart, fail("b", 3, 2, 1).Kind, "also as the next leader has it")
	require.Greater(t, s.told(), told, "which writes it down")
	require.Equal(t, 1, s.restarts)

	require.Equal(t, Restart, fail("b", 3, 3, 2).Kind)
	require.Equal(t, 2, s.restarts, "it was started after that loss: this is another")
	require.Equal(t, Restart, fail("a", 0, 3, 2).Kind)
	require.Equal(t, 2, s.restarts)
	require.Equal(t, Finished, fail("a", 1, 4, 0).Kind, "one that hears of its places need not give up")
}

func TestANodeThatHasAPlaceComingAsksForNoRestart(t *testing.T) {
	cfg := Config{Min: 1}.withDefaults(t)
	p := newPeer(Node{ID: "N0", Addr: "h", Slots: 1}, cfg, epochOfTime)
	place := Placement{Round: 2, Nodes: 1, World: 1, Slots: 1, Source: -1, MasterAddr: "h"}
	p.answered(pack(newAnswer(lease{Term: 1}, Action{Kind: Place, Placement: place})), epochOfTime)
	require.Empty(t, p.want(Event{Kind: Fail, Round: 1, Nth: 1}))
	require.Equal(t, Join, p.intent.Kind)
	require.Len(t, p.want(Event{Kind: Fail, Round: 2, Nth: 1}), 1)
	require.Equal(t, Fail, p.intent.Kind)
	place.Round = 3
	p.answered(pack(newAnswer(lease{Term: 1}, Action{Kind: Place, Placement: place})), epochOfTime)
	require.Equal(t, Join, p.intent.Kind, "that place starts the worker")
}

func TestANodeTakesNoPlaceThatCannotBeItsOwn(t *testing.T) {
	cfg := Config{Min: 1, Max: 2, MaxRestarts: 1}.withDefaults(t)
	fine := Placement{Round: 2, Nodes: 2, World: 4, Slots: 2, Source: -1, MasterAddr: "h", MaxRestarts: 1}
	for name, forge := range map[string]func(*Placement){
		"fine":                func(*Placement) {},
		"other workers":       func(p *Placement) { p.Slots, p.World = 3, 5 },
		"too many nodes":      func(p *Placement) { p.Nodes = 3 },
		"other settings":      func(p *Placement) { p.MaxRestarts = 9 },
		"restarts beyond":     func(p *Placement) { p.Restarts = 2 },
		"another's first":     func(p *Placement) { p.MasterAddr = "evil" },
		"no number of others": func(p *Placement) { p.Restarts = -1 },
	} {
		for _, kind := range []ActionKind{Place, Restart} {
			p := newPeer(Node{ID: "N0", Addr: "h", Slots: 2}, cfg, epochOfTime)
			place := fine
			forge(&place)
			p.answered(pack(newAnswer(lease{Term: 1}, Action{Kind: kind, Placement: place})), epochOfTime)
			if name == "fine" {
				require.Len(t, p.news, 1)
				continue
			}
			require.Empty(t, p.news, name)
			require.Len(t, p.alarms, 1, "people hear of it")
		}
	}
}
