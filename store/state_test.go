package store

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

func TestRandomCommandsOfSeveralClientsAgreeWithAPlainMap(t *testing.T) {
	for seed := range uint64(soak.Cases(100)) {
		require.Zero(t, left(randomly(t, seed, nil, counts(t))), "nothing may be left of clients that are gone")
	}
}

// counts compares the sums of a state with those of a model.
func counts(t *testing.T) func(s *state, m *model) {
	return func(s *state, m *model) {
		require.Equal(t, stats{len(m.data), len(m.queues), m.stored() + m.interests(anybody), len(m.waits), len(m.watches)}, s.stats())
	}
}

// picks makes each byte a random choice; in the end it is the first choice always.
type picks struct {
	bytes []byte
	count uint64
}

func (p *picks) Uint64() uint64 {
	p.count++
	low := p.count * 0x9E3779B97F4A7C15 >> 8 // rand draws again until it likes a number, so two must not be the same
	if len(p.bytes) == 0 {
		return low
	}
	b := p.bytes[0]
	p.bytes = p.bytes[1:]
	return uint64(b)<<56 | low
}

func FuzzTheCoreAgreesWithAPlainMap(f *testing.F) {
	f.Add([]byte("a few commands"))
	f.Add(bytes.Repeat([]byte{0x10, 0xF0, 0x80, 0x40}, 60))
	f.Fuzz(func(t *testing.T, data []byte) {
		require.Zero(t, left(randomlyFrom(t, rand.New(&picks{bytes: data}), nil, counts(t))))
	})
}

func TestItsChangesAndItsSnapshotRepeatAState(t *testing.T) {
	for seed := range uint64(soak.Cases(15)) {
		other := newState(Limits{}.withDefaults())
		follow := func(cmd command) {
			for _, r := range other.apply(0, cmd, nil) {
				require.NoError(t, r.err)
			}
		}
		randomly(t, seed, follow, func(s *state, m *model) {
			again := newState(s.limits)
			for cmd := range s.snapshot() {
				again.apply(0, cmd, nil)
			}
			for _, copied := range []*state{again, other} {
				data, queues := contents(copied)
				require.Equal(t, m.data, data, "seed %d", seed)
				require.Equal(t, m.queues, queues, "seed %d", seed)
			}
		})
	}
}

func TestTheAnswerToAnAddPrecedesTheWakeUpItCauses(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	require.Empty(t, s.apply(1, command{op: opWait, keys: []string{"k"}}, nil))
	out := s.apply(2, command{op: opAdd, key: "k", delta: 1}, nil)
	require.Equal(t, []string{"2: 1", "1: done"}, []string{textOf(out[0]), textOf(out[1])})
}

func TestAKeyDeletedAfterItWasSeenIsNotAwaitedAgain(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	s.apply(1, command{op: opWait, keys: []string{"a", "b"}}, nil)
	s.apply(2, command{op: opSet, key: "a"}, nil)
	s.apply(2, command{op: opDelete, key: "a"}, nil)
	require.Equal(t, "1: done", textOf(s.apply(2, command{op: opSet, key: "b"}, nil)[1]))
}

func TestAnUnknownCommandChangesNothing(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	out := s.apply(1, command{op: 99, key: "k"}, nil)
	require.Len(t, out, 1)
	require.ErrorIs(t, out[0].err, ErrProtocol)
	require.Zero(t, s.stats().keys)
}

func TestWatchedKeysOfOneClientAreBounded(t *testing.T) {
	s := newState(Limits{Keys: 2}.withDefaults())
	for i, want := range []error{nil, nil, nil, ErrTooLarge} {
		out := s.apply(1, command{op: opWatch, key: strconv.Itoa(max(0, i-1))}, nil)
		require.ErrorIs(t, out[0].err, want)
	}
}

func TestAFetchSeesAllOfAMultiSetOrNothing(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	s.apply(1, command{op: opSet, key: "b", value: []byte("old")}, nil)
	require.Empty(t, s.apply(1, command{op: opFetch, keys: []string{"a", "b"}}, nil))
	out := s.apply(2, command{op: opMultiSet, pairs: []Pair{{"a", []byte("1")}, {"a", []byte("2")}, {"b", []byte("new")}}}, nil)
	require.Equal(t, []string{"2: done", `1: "2" "new"`}, []string{textOf(out[0]), textOf(out[1])})
}

func TestAPushGoesToTheTakerThatAskedFirst(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	for id := range clientID(3) {
		require.Empty(t, s.apply(3-id, command{op: opTake, key: "q"}, nil))
	}
	s.drop(2)
	for _, want := range []clientID{3, 1} {
		out := s.apply(9, command{op: opPush, key: "q", value: []byte("v")}, nil)
		require.Len(t, out, 2)
		require.Equal(t, reply{to: want, op: opTake, value: []byte("v")}, out[1])
	}
	require.Len(t, s.apply(9, command{op: opPush, key: "q"}, nil), 1)
	require.Equal(t, int64(1), s.apply(9, command{op: opLen, key: "q"}, nil)[0].n)
}

// Whose turn it is pops, or else the next one hears of it, however the first one comes to do
// something else.
func TestWhoIsCalledToAQueueAndDoesNotPopLeavesItToTheNext(t *testing.T) {
	for _, ready := range []command{{op: opReady, key: "q"}, {op: opWait, keys: []string{"q"}, turn: true}} {
		for name, elsewhere := range map[string]func(s *state) []reply{
			"it leaves":     func(s *state) []reply { return s.leaves(1, nil) },
			"it gives up":   func(s *state) []reply { return s.apply(1, command{op: opCancelWait}, nil)[1:] },
			"it looks away": func(s *state) []reply { return s.apply(1, command{op: opPop, key: "other"}, nil)[1:] },
		} {
			s := newState(Limits{}.withDefaults())
			for id := range clientID(2) {
				require.Empty(t, s.apply(id+1, ready, nil))
			}
			require.Equal(t, []string{"9: done", "1: done"}, texted(s.apply(9, command{op: opPush, key: "q"}, nil)), "one is called, in order")
			require.Equal(t, []string{"2: done"}, texted(elsewhere(s)), name)
			require.Equal(t, []string{"2: 1 "}, texted(s.apply(2, command{op: opPop, key: "q"}, nil)))
			require.Zero(t, calledIn(s))
		}
	}
}

func TestWhoIsCalledToAQueueAndPopsCallsNobody(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	for id := range clientID(3) {
		require.Empty(t, s.apply(id+1, command{op: opReady, key: "q"}, nil))
	}
	for id := range clientID(2) {
		require.Len(t, s.apply(9, command{op: opPush, key: "q"}, nil), 2, "who pushed, and client %d", id+1)
	}
	require.Len(t, s.apply(1, command{op: opPop, key: "q"}, nil), 1)
	require.Len(t, s.leaves(2, nil), 1, "whose value is left")
}

func TestReadersOfAValueDoNotSeeWhatIsAppendedToIt(t *testing.T) {
	s := newState(Limits{}.withDefaults())
	shared := append(make([]byte, 0, 100), "ab"...)
	s.apply(1, command{op: opSet, key: "k", value: shared[:1]}, nil)
	var seen [][]byte
	for i := range 50 {
		s.apply(1, command{op: opAppend, key: "k", value: []byte{byte(i)}}, nil)
		seen = append(seen, s.apply(1, command{op: opGet, key: "k"}, nil)[0].value)
	}
	require.Equal(t, "ab", string(shared))
	for i, v := range seen {
		require.Len(t, v, i+2)
		require.Equal(t, byte(i), v[i+1])
	}
}

func TestOneReplyWithManyValuesIsBounded(t *testing.T) {
	s := newState(Limits{Value: 10}.withDefaults())
	s.apply(1, command{op: opSet, key: "k", value: make([]byte, 10)}, nil)
	for n, want := range map[int]error{4: nil, 5: ErrTooLarge} {
		for _, o := range []op{opMultiGet, opFetch} {
			r := s.apply(1, command{op: o, keys: slices.Repeat([]string{"k"}, n)}, nil)[0]
			require.ErrorIs(t, r.err, want)
		}
	}
}

func TestTheSearchForANumberInALongValueIsBounded(t *testing.T) {
	for text, want := range map[string]error{
		strings.Repeat(" ", 4000) + "12": nil, strings.Repeat(" ", 4095) + "12": ErrNotANumber, strings.Repeat(" ", 5000): ErrNotANumber,
		"12" + strings.Repeat("x", 5000): nil,
	} {
		_, err := parseDecimal([]byte(text))
		require.ErrorIs(t, err, want)
	}
}

func BenchmarkStateSet(b *testing.B) {
	s, v := newState(Limits{}.withDefaults()), []byte("value")
	for i := range b.N {
		s.apply(1, command{op: opSet, key: "k" + strconv.Itoa(i%1024), value: v}, nil)
	}
}

func BenchmarkStateWaiters(b *testing.B) {
	for _, same := range []bool{true, false} {
		b.Run("sameKey="+strconv.FormatBool(same), func(b *testing.B) {
			const n = 10_000
			keys := make([]string, n)
			for i := range keys {
				if keys[i] = "/key" + strconv.Itoa(i); same {
					keys[i] = "/key"
				}
			}
			var before, after runtime.MemStats
			for range b.N {
				s := newState(Limits{}.withDefaults())
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range keys {
					s.apply(clientID(i), command{op: opWait, keys: keys[i : i+1]}, nil)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "bytes/waiter")
				start := time.Now()
				woken := 0
				for i := range keys {
					woken += len(s.apply(n, command{op: opSet, key: keys[i]}, nil)) - 1
				}
				b.ReportMetric(float64(time.Since(start))/n, "ns/woken")
				if woken != n {
					b.Fatal(woken)
				}
			}
		})
	}
}

func BenchmarkStateOneWaitsForManyKeys(b *testing.B) {
	const n = 100_000
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "/key" + strconv.Itoa(i)
	}
	for b.Loop() {
		s := newState(Limits{}.withDefaults())
		s.apply(1, command{op: opFetch, keys: keys}, nil)
		replies := 0
		for _, k := range keys {
			replies += len(s.apply(2, command{op: opSet, key: k}, nil))
		}
		if replies != n+1 {
			b.Fatal(replies)
		}
	}
}
