package refs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

const steps = 300

// Random workers make, share, release and lose references over a network that loses, repeats and
// reorders; some are killed and start again, some links break. No value is freed while it can be
// reached, no handler runs before its arguments are confirmed, and when all is released nothing is
// left anywhere.
func TestRandomSchedulesFreeNothingThatIsReachableAndLeaveNothingBehind(t *testing.T) {
	ran, freed, denied := 0, 0, 0
	for seed := range uint64(soak.Cases(300)) {
		s := run(seed, steps, sabotage{}, false)
		if len(s.bad) > 0 {
			s = shrink(seed, steps, sabotage{})
			require.Empty(t, s.bad, "seed %d:\n%s", seed, strings.Join(s.log, "\n"))
		}
		ran, freed, denied = ran+s.ran, freed+s.freed, denied+s.denied
	}
	t.Logf("%d handlers ran, %d values were freed, %d references were denied", ran, freed, denied)
	require.Greater(t, ran, 1000)
	require.Greater(t, freed, 1000)
	require.Positive(t, denied, "some parents are lost in time")
}

// A seed that fails can be looked into only if it fails again.
func TestAScheduleDependsOnItsSeedAlone(t *testing.T) {
	for seed := range uint64(5) {
		require.Equal(t, run(seed, steps, sabotage{}, true).log, run(seed, steps, sabotage{}, true).log)
	}
}

// The simulation must notice when the protocol is broken.
func TestABrokenProtocolIsNoticed(t *testing.T) {
	forget := func(m *Machine, p *peer, n uint64) { // the parent's hold does not wait
		if c, open := p.given[n]; open && c.hold != 0 {
			delete(p.given, n)
			m.holds[c.hold].children--
		}
	}
	last := map[*Machine]map[Message]ID{}
	broken := map[string]sabotage{
		"a parent forgets its pending child": {shared: func(m *Machine, to Node, s Share) {
			if to != m.me {
				forget(m, m.peers[to], s.N)
			}
		}},
		"a child accepts before the owner confirmed": {arrived: func(m *Machine, now time.Time, h Hold) {
			s := m.holds[h]
			m.sendReliably(now, s.parent, Message{Op: Accept, N: s.share})
		}},
		"a handler does not wait for its arguments": {eager: true},
		"a repeated delete counts twice": {receive: func(m *Machine, from Node, msgs []Message) {
			for _, msg := range msgs {
				if msg.Op != Delete || msg.Given || m.peers[from] == nil {
					continue
				}
				if last[m] == nil {
					last[m] = map[Message]ID{}
				}
				if id, here := m.peers[from].counted[msg.N]; here {
					last[m][msg] = id
				} else if id, was := last[m][msg]; was && m.values[id] != nil {
					m.uncount(id)
				}
			}
		}},
		"a claim that was deleted is counted again": {receive: func(m *Machine, from Node, _ []Message) {
			if p := m.peers[from]; p != nil {
				p.used = nil
			}
		}},
		"what a lost worker held stays": {lose: func(m *Machine, n Node) bool {
			if p := m.peers[n]; p != nil {
				p.counted = nil
			}
			return false
		}},
		"shares under way to a lost worker stay": {lose: func(m *Machine, n Node) bool {
			if p := m.peers[n]; p != nil {
				p.given = nil
			}
			return false
		}},
		"deletes are ignored":             {ignore: func(msg Message) bool { return msg.Op == Delete }},
		"accepts are ignored":             {ignore: func(msg Message) bool { return msg.Op == Accept }},
		"forks are ignored":               {ignore: func(msg Message) bool { return msg.Op == Fork }},
		"recalls are ignored":             {ignore: func(msg Message) bool { return msg.Op == Recall }},
		"abandoning is ignored":           {ignore: func(msg Message) bool { return msg.Op == Abandon }},
		"abandoned calls are not told":    {abandons: true},
		"lost packets are not sent again": {deaf: true},
		"a recalled share is taken":       {stale: func(m *Machine, from Node, _ Share) { m.peers[from].seen = nil }},
		"a creation that timed out is not told": {creation: func(m *Machine, id ID) {
			for h, s := range m.holds {
				if s.id == id {
					delete(m.holds, h)
				}
			}
		}},
	}
	for name, hurt := range broken {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				if caught(seed, hurt) {
					return
				}
			}
			require.Fail(t, "nobody noticed")
		})
	}
}

// caught says whether a schedule goes wrong; a machine that panics, for it was broken, has gone
// wrong.
func caught(seed uint64, hurt sabotage) (wrong bool) {
	defer func() { wrong = wrong || recover() != nil }()
	return len(run(seed, steps, hurt, false).bad) > 0
}
