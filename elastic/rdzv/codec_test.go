//go:build !race

package rdzv

import (
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
)

func TestAStateThatCannotBeIsCorruptAndNeverHalfRead(t *testing.T) {
	for name, spoil := range map[string]func(*saved){
		"version":                func(s *saved) { s.Version++ },
		"settings":               func(s *saved) { s.Config.Min = 0 },
		"settings not filled in": func(s *saved) { s.Config.Silence = 0 },
		"phase":                  func(s *saved) { s.Phase = 9 },
		"round":                  func(s *saved) { s.Round = -1 },
		"restarts":               func(s *saved) { s.Restarts = 1 },
		"deadline":               func(s *saved) { s.Deadline = -1 },
		"source":                 func(s *saved) { s.Source = 3 },
		"nobody":                 func(s *saved) { s.Members = nil },
		"too many":               func(s *saved) { s.Config.Max, s.Config.Min = 2, 2 },
		"a name":                 func(s *saved) { s.Members[0].ID = "a b" },
		"a name twice":           func(s *saved) { s.Members[0].ID = s.Members[1].ID },
		"slots":                  func(s *saved) { s.Members[0].Slots = 0 },
		"list":                   func(s *saved) { s.Members[0].On = 5 },
		"order":                  func(s *saved) { s.Members[0].Order = 99 },
		"order twice":            func(s *saved) { s.Members[0].Order = s.Members[1].Order },
		"rank":                   func(s *saved) { s.Members[0].Rank = 3 },
		"rank twice":             func(s *saved) { s.Members[0].Rank = s.Members[1].Rank },
		"a wish twice":           func(s *saved) { s.Members[0].Want, s.Members[1].Want = 1, 1 },
		"done and waiting":       func(s *saved) { s.Members[0].On, s.Members[0].Done = waiting, true },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := complete(t, 3).encode(epochOfTime)
			require.NoError(t, err)
			_, err = decode(b, epochOfTime)
			require.NoError(t, err)
			var in saved
			require.NoError(t, cbor.Unmarshal(b, &in))
			spoil(&in)
			s, err := decode(pack(in), epochOfTime)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Nil(t, s)
		})
	}
}

// What is read can be written, means the same when it is read again, and can be gone on with.
func FuzzDecode(f *testing.F) {
	s, err := NewState(Config{Min: 1, Max: 2, LastCall: time.Second})
	require.NoError(f, err)
	add := func() {
		b, err := s.encode(epochOfTime)
		require.NoError(f, err)
		f.Add(b)
	}
	add()
	for _, id := range []string{"a", "b", "c"} {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 2}, Config: s.cfg}, epochOfTime)
		add()
	}
	s.Decide(Event{Kind: Leave, ID: "a"}, epochOfTime.Add(time.Second))
	add()
	s.Decide(Event{Kind: Close, ID: "b", Why: "enough"}, epochOfTime.Add(time.Second))
	add()
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b, epochOfTime)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		once, err := s.encode(epochOfTime)
		require.NoError(t, err)
		again, err := decode(once, epochOfTime)
		require.NoError(t, err)
		twice, err := again.encode(epochOfTime)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		s.Decide(Event{Kind: Join, Node: Node{ID: "x", Addr: "h", Slots: 1}, Config: s.cfg}, epochOfTime.Add(time.Second))
		s.Decide(Event{Kind: Tick}, epochOfTime.Add(time.Hour))
	})
}

// Whatever lies in the store, no peer ends of it.
func FuzzWhatLiesInTheStore(f *testing.F) {
	cfg := Config{Min: 1, Max: 2}
	node := Node{ID: "N0", Addr: "h", Slots: 1}
	f.Add(pack(lease{V: version, Term: 2, Leader: "N1", Seq: 1, From: 1}))
	f.Add(pack(bulletin{V: version, Term: 3, Beat: 1, Vacant: true}))
	f.Add(pack(message{V: version, Event: Event{Kind: Join, Node: node, Config: cfg}}))
	f.Add(pack(message{V: version, Event: Event{Kind: Fail, ID: "N0", Nth: 1, Why: "exit code 1"}}))
	f.Add(pack(newAnswer(lease{Term: 1}, Action{Kind: Place, Placement: Placement{Nodes: 1, World: 1, Slots: 1}})))
	f.Add(pack(newAnswer(lease{Term: 1}, Action{Kind: Refuse, Err: ErrLost})))
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, err := cfg.Populate()
		require.NoError(t, err)
		s, err := NewState(cfg)
		require.NoError(t, err)
		p := newPeer(node, cfg, epochOfTime)
		p.lease = lease{V: version, Term: 1, Leader: node.ID}
		p.role, p.state = leading, s
		p.inbox([][]byte{b, b}, epochOfTime)
		p.answered(b, epochOfTime)
		p.saw(b, epochOfTime)
		q := newPeer(node, cfg, epochOfTime)
		_, err = q.result(q.start()[0], b, epochOfTime)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		}
	})
}
