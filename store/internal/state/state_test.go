package state_test

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
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
)

func TestRandomCommandsOfSeveralClientsAgreeWithAPlainMap(t *testing.T) {
	for seed := range uint64(soak.Cases(100)) {
		require.Zero(t, state.Left(talktest.Randomly(t, seed, nil, counts(t))), "nothing may be left of clients that are gone")
	}
}

// counts compares the sums of a state with those of a model.
func counts(t *testing.T) func(s *state.State, m *talktest.Model) {
	return func(s *state.State, m *talktest.Model) {
		require.Equal(t, state.Stats{len(m.Data), len(m.Queues), m.Stored() + m.Interests(talktest.Anybody), len(m.Waits), len(m.Watches)}, s.Stats())
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
		require.Zero(t, state.Left(talktest.RandomlyFrom(t, rand.New(&picks{bytes: data}), nil, counts(t))))
	})
}

func TestItsChangesAndItsSnapshotRepeatAState(t *testing.T) {
	for seed := range uint64(soak.Cases(15)) {
		other := state.New(kv.Defaulted(kv.Limits{}))
		follow := func(cmd state.Command) {
			for _, r := range other.Apply(0, cmd, nil) {
				require.NoError(t, r.Err)
			}
		}
		talktest.Randomly(t, seed, follow, func(s *state.State, m *talktest.Model) {
			again := state.New(s.Limits)
			for cmd := range s.Snapshot() {
				again.Apply(0, cmd, nil)
			}
			for _, copied := range []*state.State{again, other} {
				data, queues := talktest.Contents(copied)
				require.Equal(t, m.Data, data, "seed %d", seed)
				require.Equal(t, m.Queues, queues, "seed %d", seed)
			}
		})
	}
}

func TestTheAnswerToAnAddPrecedesTheWakeUpItCauses(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	require.Empty(t, s.Apply(1, state.Command{Op: state.OpWait, Keys: []string{"k"}}, nil))
	out := s.Apply(2, state.Command{Op: state.OpAdd, Key: "k", Delta: 1}, nil)
	require.Equal(t, []string{"2: 1", "1: done"}, []string{talktest.TextOf(out[0]), talktest.TextOf(out[1])})
}

func TestAKeyDeletedAfterItWasSeenIsNotAwaitedAgain(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	s.Apply(1, state.Command{Op: state.OpWait, Keys: []string{"a", "b"}}, nil)
	s.Apply(2, state.Command{Op: state.OpSet, Key: "a"}, nil)
	s.Apply(2, state.Command{Op: state.OpDelete, Key: "a"}, nil)
	require.Equal(t, "1: done", talktest.TextOf(s.Apply(2, state.Command{Op: state.OpSet, Key: "b"}, nil)[1]))
}

func TestAnUnknownCommandChangesNothing(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	out := s.Apply(1, state.Command{Op: 99, Key: "k"}, nil)
	require.Len(t, out, 1)
	require.ErrorIs(t, out[0].Err, kv.ErrProtocol)
	require.Zero(t, s.Stats().Keys)
}

func TestWatchedKeysOfOneClientAreBounded(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{Keys: 2}))
	for i, want := range []error{nil, nil, nil, kv.ErrTooLarge} {
		out := s.Apply(1, state.Command{Op: state.OpWatch, Key: strconv.Itoa(max(0, i-1))}, nil)
		require.ErrorIs(t, out[0].Err, want)
	}
}

func TestAFetchSeesAllOfAMultiSetOrNothing(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	s.Apply(1, state.Command{Op: state.OpSet, Key: "b", Value: []byte("old")}, nil)
	require.Empty(t, s.Apply(1, state.Command{Op: state.OpFetch, Keys: []string{"a", "b"}}, nil))
	out := s.Apply(2, state.Command{Op: state.OpMultiSet, Pairs: []kv.Pair{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte("new")}}}, nil)
	require.Equal(t, []string{"2: done", `1: "2" "new"`}, []string{talktest.TextOf(out[0]), talktest.TextOf(out[1])})
}

func TestAPushGoesToTheTakerThatAskedFirst(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	for id := range state.ClientID(3) {
		require.Empty(t, s.Apply(3-id, state.Command{Op: state.OpTake, Key: "q"}, nil))
	}
	s.Drop(2)
	for _, want := range []state.ClientID{3, 1} {
		out := s.Apply(9, state.Command{Op: state.OpPush, Key: "q", Value: []byte("v")}, nil)
		require.Len(t, out, 2)
		require.Equal(t, state.Reply{To: want, Op: state.OpTake, Value: []byte("v")}, out[1])
	}
	require.Len(t, s.Apply(9, state.Command{Op: state.OpPush, Key: "q"}, nil), 1)
	require.Equal(t, int64(1), s.Apply(9, state.Command{Op: state.OpLen, Key: "q"}, nil)[0].N)
}

// Whose turn it is pops, or else the next one hears of it, however the first one comes to do
// something else.
func TestWhoIsCalledToAQueueAndDoesNotPopLeavesItToTheNext(t *testing.T) {
	for _, ready := range []state.Command{{Op: state.OpReady, Key: "q"}, {Op: state.OpWait, Keys: []string{"q"}, Turn: true}} {
		for name, elsewhere := range map[string]func(s *state.State) []state.Reply{
			"it leaves": func(s *state.State) []state.Reply { return s.Leaves(1, nil) },
			"it gives up": func(s *state.State) []state.Reply {
				return s.Apply(1, state.Command{Op: state.OpCancelWait}, nil)[1:]
			},
			"it looks away": func(s *state.State) []state.Reply {
				return s.Apply(1, state.Command{Op: state.OpPop, Key: "other"}, nil)[1:]
			},
		} {
			s := state.New(kv.Defaulted(kv.Limits{}))
			for id := range state.ClientID(2) {
				require.Empty(t, s.Apply(id+1, ready, nil))
			}
			require.Equal(t, []string{"9: done", "1: done"}, talktest.Texted(s.Apply(9, state.Command{Op: state.OpPush, Key: "q"}, nil)), "one is called, in order")
			require.Equal(t, []string{"2: done"}, talktest.Texted(elsewhere(s)), name)
			require.Equal(t, []string{"2: 1 "}, talktest.Texted(s.Apply(2, state.Command{Op: state.OpPop, Key: "q"}, nil)))
			require.Zero(t, state.CalledIn(s))
		}
	}
}

func TestWhoIsCalledToAQueueAndPopsCallsNobody(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	for id := range state.ClientID(3) {
		require.Empty(t, s.Apply(id+1, state.Command{Op: state.OpReady, Key: "q"}, nil))
	}
	for id := range state.ClientID(2) {
		require.Len(t, s.Apply(9, state.Command{Op: state.OpPush, Key: "q"}, nil), 2, "who pushed, and client %d", id+1)
	}
	require.Len(t, s.Apply(1, state.Command{Op: state.OpPop, Key: "q"}, nil), 1)
	require.Len(t, s.Leaves(2, nil), 1, "whose value is left")
}

func TestReadersOfAValueDoNotSeeWhatIsAppendedToIt(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{}))
	shared := append(make([]byte, 0, 100), "ab"...)
	s.Apply(1, state.Command{Op: state.OpSet, Key: "k", Value: shared[:1]}, nil)
	var seen [][]byte
	for i := range 50 {
		s.Apply(1, state.Command{Op: state.OpAppend, Key: "k", Value: []byte{byte(i)}}, nil)
		seen = append(seen, s.Apply(1, state.Command{Op: state.OpGet, Key: "k"}, nil)[0].Value)
	}
	require.Equal(t, "ab", string(shared))
	for i, v := range seen {
		require.Len(t, v, i+2)
		require.Equal(t, byte(i), v[i+1])
	}
}

func TestOneReplyWithManyValuesIsBounded(t *testing.T) {
	s := state.New(kv.Defaulted(kv.Limits{Value: 10}))
	s.Apply(1, state.Command{Op: state.OpSet, Key: "k", Value: make([]byte, 10)}, nil)
	for n, want := range map[int]error{4: nil, 5: kv.ErrTooLarge} {
		for _, o := range []state.Op{state.OpMultiGet, state.OpFetch} {
			r := s.Apply(1, state.Command{Op: o, Keys: slices.Repeat([]string{"k"}, n)}, nil)[0]
			require.ErrorIs(t, r.Err, want)
		}
	}
}

func TestTheSearchForANumberInALongValueIsBounded(t *testing.T) {
	for text, want := range map[string]error{
		strings.Repeat(" ", 4000) + "12": nil, strings.Repeat(" ", 4095) + "12": kv.ErrNotANumber, strings.Repeat(" ", 5000): kv.ErrNotANumber,
		"12" + strings.Repeat("x", 5000): nil,
	} {
		_, err := kv.ParseDecimal([]byte(text))
		require.ErrorIs(t, err, want)
	}
}

func BenchmarkStateSet(b *testing.B) {
	s, v := state.New(kv.Defaulted(kv.Limits{})), []byte("value")
	for i := range b.N {
		s.Apply(1, state.Command{Op: state.OpSet, Key: "k" + strconv.Itoa(i%1024), Value: v}, nil)
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
				s := state.New(kv.Defaulted(kv.Limits{}))
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range keys {
					s.Apply(state.ClientID(i), state.Command{Op: state.OpWait, Keys: keys[i : i+1]}, nil)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "bytes/waiter")
				start := time.Now()
				woken := 0
				for i := range keys {
					woken += len(s.Apply(n, state.Command{Op: state.OpSet, Key: keys[i]}, nil)) - 1
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
		s := state.New(kv.Defaulted(kv.Limits{}))
		s.Apply(1, state.Command{Op: state.OpFetch, Keys: keys}, nil)
		replies := 0
		for _, k := range keys {
			replies += len(s.Apply(2, state.Command{Op: state.OpSet, Key: k}, nil))
		}
		if replies != n+1 {
			b.Fatal(replies)
		}
	}
}
