package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// model is the store done again the dumb way: a map, and lists that are searched from end to end.
type model struct {
	data    map[string]string
	waits   []modelWait
	watches []modelWatch
}

type modelWait struct {
	who  clientID
	keys []string // those still missing
}

type modelWatch struct {
	who clientID
	key string
}

// apply returns the replies as texts, in no particular order.
func (m *model) apply(who clientID, cmd command) []string {
	v, there := m.data[cmd.key]
	switch cmd.op {
	case opSet:
		return m.put(cmd.key, string(cmd.value))
	case opCompareSet:
		if v == string(cmd.expected) {
			return append(m.put(cmd.key, string(cmd.value)), fmt.Sprintf("%d: %s", who, cmd.value))
		}
		if !there {
			v = string(cmd.expected)
		}
		return []string{fmt.Sprintf("%d: %s", who, v)}
	case opGet:
		if !there {
			return []string{fmt.Sprint(who, ": no key")}
		}
		return []string{fmt.Sprintf("%d: %s", who, v)}
	case opAdd:
		n, err := strconv.ParseInt(v, 10, 64)
		if there && err != nil {
			return []string{fmt.Sprint(who, ": no number")}
		}
		n += cmd.delta
		return append(m.put(cmd.key, fmt.Sprint(n)), fmt.Sprintf("%d: %d", who, n))
	case opCheck:
		return []string{fmt.Sprintf("%d: %v", who, len(m.missing(cmd.keys)) == 0)}
	case opWait:
		m.waits = slices.DeleteFunc(m.waits, func(w modelWait) bool { return w.who == who })
		keys := m.missing(cmd.keys)
		if len(keys) == 0 {
			return []string{fmt.Sprintf("%d: go", who)}
		}
		m.waits = append(m.waits, modelWait{who, keys})
		return nil
	case opNumKeys:
		return []string{fmt.Sprintf("%d: %d", who, len(m.data))}
	case opWatch:
		if w := (modelWatch{who, cmd.key}); !slices.Contains(m.watches, w) {
			m.watches = append(m.watches, w)
		}
		return []string{fmt.Sprintf("%d: watched", who)}
	case opDelete:
		if !there {
			return []string{fmt.Sprintf("%d: 0", who)}
		}
		delete(m.data, cmd.key)
		return append(m.news(cmd.key, 2, v, ""), fmt.Sprintf("%d: 1", who))
	}
	panic("unknown")
}

func (m *model) missing(keys []string) (out []string) {
	for _, k := range keys {
		if _, there := m.data[k]; !there {
			out = append(out, k)
		}
	}
	return out
}

func (m *model) put(key, value string) []string {
	old, there := m.data[key]
	out := m.news(key, map[bool]int{false: 1, true: 0}[there], old, value)
	m.data[key] = value
	var still []modelWait
	for _, w := range m.waits {
		w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == key })
		if len(w.keys) == 0 {
			out = append(out, fmt.Sprintf("%d: go", w.who))
		} else {
			still = append(still, w)
		}
	}
	m.waits = still
	return out
}

func (m *model) news(key string, event int, old, value string) (out []string) {
	for _, w := range m.watches {
		if w.key == key {
			out = append(out, fmt.Sprintf("%d: news %d %s %s %s", w.who, event, key, old, value))
		}
	}
	return out
}

func (m *model) drop(who clientID) {
	m.waits = slices.DeleteFunc(m.waits, func(w modelWait) bool { return w.who == who })
	m.watches = slices.DeleteFunc(m.watches, func(w modelWatch) bool { return w.who == who })
}

func textOf(r reply) string {
	switch {
	case errors.Is(r.err, errNoKey):
		return fmt.Sprintf("%d: no key", r.to)
	case errors.Is(r.err, ErrNotANumber):
		return fmt.Sprintf("%d: no number", r.to)
	case r.err != nil:
		return r.err.Error()
	}
	switch r.op {
	case opAdd, opNumKeys, opDelete:
		return fmt.Sprintf("%d: %d", r.to, r.n)
	case opCheck:
		return fmt.Sprintf("%d: %v", r.to, r.ok)
	case opWait:
		return fmt.Sprintf("%d: go", r.to)
	case opWatch:
		return fmt.Sprintf("%d: watched", r.to)
	case opNews:
		return fmt.Sprintf("%d: news %d %s %s %s", r.to, r.event, r.key, r.old, r.value)
	}
	return fmt.Sprintf("%d: %s", r.to, r.value)
}

func randomCommand(r *rand.Rand) command {
	key := func() string { return "k" + strconv.Itoa(r.IntN(4)) }
	text := func() []byte { return []byte([]string{"", "1", "-3", "x"}[r.IntN(4)]) }
	cmd := command{op: op(r.IntN(int(opDelete)+1))}
	switch cmd.op {
	case opCheck, opWait:
		for range r.IntN(4) {
			cmd.keys = append(cmd.keys, key())
		}
		return cmd
	case opNumKeys:
		return cmd
	case opSet:
		cmd.value = text()
	case opCompareSet:
		cmd.expected, cmd.value = text(), text()
	case opAdd:
		cmd.delta = int64(r.IntN(7) - 3)
	}
	cmd.key = key()
	return cmd
}

func TestRandomCommandsOfSeveralClientsAgreeWithAPlainMap(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, m := newState(Limits{}.withDefaults()), &model{data: map[string]string{}}
		for step := range 80 {
			who := clientID(1 + r.IntN(4))
			if r.IntN(25) == 0 {
				s.drop(who)
				m.drop(who)
				continue
			}
			cmd := randomCommand(r)
			got := []string{}
			for _, a := range s.apply(who, cmd, nil) {
				got = append(got, textOf(a))
			}
			require.ElementsMatch(t, m.apply(who, cmd), got, "seed %d, step %d: client %d asks %+v", seed, step, who, cmd)
		}
		for who := range clientID(5) {
			s.drop(who)
		}
		require.Empty(t, s.missing, "nothing may be left of clients that are gone")
		require.Empty(t, s.waiters)
		require.Empty(t, s.watching)
		require.Empty(t, s.watchers)
		require.ElementsMatch(t, slices.Collect(maps.Keys(m.data)), slices.Collect(maps.Keys(s.data)))
	}
}

func TestTheAnswerToAnAddPrecedesTheWakeUpItCauses(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	require.Empty(t, s.apply(1, command{op: opWait, keys: []string{"k"}}, nil))
	out := s.apply(2, command{op: opAdd, key: "k", delta: 1}, nil)
	require.Equal(t, []string{"2: 1", "1: go"}, []string{textOf(out[0]), textOf(out[1])})
}

func TestAKeyDeletedAfterItWasSeenIsNotAwaitedAgain(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	s.apply(1, command{op: opWait, keys: []string{"a", "b"}}, nil)
	s.apply(2, command{op: opSet, key: "a"}, nil)
	s.apply(2, command{op: opDelete, key: "a"}, nil)
	require.Equal(t, "1: go", textOf(s.apply(2, command{op: opSet, key: "b"}, nil)[0]))
}

func TestAnUnknownCommandChangesNothing(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	out := s.apply(1, command{op: 99, key: "k"}, nil)
	require.Len(t, out, 1)
	require.ErrorIs(t, out[0].err, ErrProtocol)
	require.Empty(t, s.data)
}

func TestWatchedKeysOfOneClientAreBounded(t *testing.T) {
	s := newState(Limits{Keys: 2}.withDefaults())
	for i, want := range []error{nil, nil, nil, ErrTooLarge} {
		out := s.apply(1, command{op: opWatch, key: strconv.Itoa(max(0, i-1))}, nil)
		require.ErrorIs(t, out[0].err, want)
	}
}

func BenchmarkStateSet(b *testing.B) {
	s, v := newState(Limits{}.withDefaults()), []byte("value")
	for i := range b.N {
		s.apply(1, command{op: opSet, key: "k" + strconv.Itoa(i%1024), value: v}, nil)
	}
}
