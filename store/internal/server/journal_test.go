package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/internal/client"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/journal"
)

func journaled(t *testing.T) Config {
	return Config{Journal: JournalConfig{Path: filepath.Join(t.TempDir(), "journal"), Sync: journal.Never}}
}

func dialed(t *testing.T, s *Server) *client.Client {
	t.Helper()
	cl, err := client.Dial(t.Context(), client.Config{Addr: s.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl
}

func TestARestartedServerKnowsWhatItKnew(t *testing.T) {
	leak.Check(t)
	cfg := journaled(t)
	c := t.Context()
	for life := range 3 {
		s, err := Serve(cfg)
		require.NoError(t, err)
		cl, err := client.Dial(c, client.Config{Addr: s.Addr()})
		require.NoError(t, err)
		n, err := cl.Add(c, "lives", 1)
		require.NoError(t, err)
		require.EqualValues(t, life+1, n)
		if life > 0 {
			got, err := cl.MultiGet(c, "set", "multi", "grown", "compared")
			require.NoError(t, err)
			require.Equal(t, []string{"v", "1", strings.Repeat("x", life), "won"}, texts(got))
			there, err := cl.Check(c, "deleted")
			require.NoError(t, err)
			require.False(t, there)
			v, err := cl.Pop(c, "queue")
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(life+1), string(v), "the oldest was taken before")
		} else {
			require.NoError(t, cl.MultiSet(c, kv.Pair{Key: "multi", Value: []byte("1")}, kv.Pair{Key: "deleted", Value: nil}))
			for i := range 4 {
				require.NoError(t, cl.Push(c, "queue", fmt.Append(nil, i)))
			}
			for i := range 2 {
				v, err := cl.Pop(c, "queue")
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(i), string(v))
			}
		}
		require.NoError(t, cl.Set(c, "set", []byte("v")))
		require.NoError(t, cl.Append(c, "grown", []byte("x")))
		_, err = cl.CompareSet(c, "compared", nil, []byte("won"))
		require.NoError(t, err)
		_, err = cl.Delete(c, "deleted")
		require.NoError(t, err)
		require.NoError(t, cl.Close())
		require.NoError(t, s.Close())
	}
}

func texts(values [][]byte) (out []string) {
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// What any commands do to a state, its records, and those of its snapshot, do to another.
func TestTheRecordsOfAStateRepeatIt(t *testing.T) {
	for seed := range uint64(soak.Cases(30)) {
		other := state.New(kv.Defaulted(kv.Limits{}))
		var mark []byte // of one space's records in odd cases, of the other's in even ones
		into := func(s *state.State) *replayer { return newReplayer(s, nil) }
		if seed%2 == 1 {
			mark, into = []byte{guestsRecord}, func(s *state.State) *replayer { return newReplayer(nil, s) }
		}
		r := into(other)
		other.Limits = r.in.Limits
		follow := func(cmd state.Command) {
			record, err := keeps.AppendCommand(slices.Clone(mark), cmd)
			require.NoError(t, err)
			require.NoError(t, r.replay(record))
		}
		talktest.Randomly(t, seed, follow, func(s *state.State, m *talktest.Model) {
			again := state.New(other.Limits)
			snapshot := into(again)
			for record := range records(&space{state: s, mark: mark}) {
				require.NoError(t, snapshot.replay(record))
			}
			for _, copied := range []*state.State{other, again} {
				data, queues := talktest.Contents(copied)
				require.Equal(t, m.Data, data, "seed %d", seed)
				require.Equal(t, m.Queues, queues, "seed %d", seed)
				require.Equal(t, m.Stored(), copied.Stats().Bytes)
			}
		})
	}
}

func FuzzReplayOfARecord(f *testing.F) {
	for _, cmd := range []state.Command{{Op: state.OpSet, Key: "k", Value: []byte("v")}, {Op: state.OpDelete, Key: "k"}, {Op: state.OpPop, Key: "q"},
		{Op: state.OpMultiSet, Pairs: []kv.Pair{{Key: "a", Value: nil}, {Key: "b", Value: []byte("1")}}}, {Op: state.OpPush, Key: "q", Value: []byte("1")}} {
		record, err := keeps.AppendCommand(nil, cmd)
		require.NoError(f, err)
		f.Add(record)
		f.Add(append([]byte{guestsRecord}, record...))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		s, guests := state.New(kv.Defaulted(kv.Limits{})), state.New(kv.Defaulted(kv.Limits{}))
		r := newReplayer(s, guests)
		s.Limits, guests.Limits = r.in.Limits, r.in.Limits
		if err := r.replay(record); err != nil {
			require.ErrorIs(t, err, kv.ErrCorrupt)
		}
	})
}

func TestAJournalThatIsDamagedOrInUseOrNoneIsRefused(t *testing.T) {
	cfg := journaled(t)
	s := startServer(t, cfg)
	_, err := Serve(cfg)
	require.ErrorIs(t, err, journal.ErrLocked)
	require.ErrorContains(t, err, cfg.Journal.Path)
	cl := dialed(t, s)
	for i := range 3 {
		require.NoError(t, cl.Set(t.Context(), "k", fmt.Append(nil, i)))
	}
	require.NoError(t, s.Close())
	data, err := os.ReadFile(cfg.Journal.Path)
	require.NoError(t, err)
	value := []byte("\x01\x00\x00\x00\x00\x00\x00\x001") // the second one, as the wire has it
	at := bytes.LastIndex(data, value) + len(value) - 1
	data[at] = '7'
	require.NoError(t, os.WriteFile(cfg.Journal.Path, data, 0o600))
	_, err = Serve(cfg)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	var corrupt *journal.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.InDelta(t, at, corrupt.Offset, 64)

	cfg.Journal.Path = filepath.Join(t.TempDir(), "foreign")
	j, err := journal.Open(cfg.Journal.Path, journal.Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, j.Commit(j.Append([]byte("\x01 is no command"))))
	require.NoError(t, j.Close())
	_, err = Serve(cfg)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "record 1")
}

func TestAnAddressThatIsTakenGivesTheJournalBack(t *testing.T) {
	cfg := journaled(t)
	other := startServer(t, Config{})
	bad := cfg
	bad.Addr = other.Addr()
	_, err := Serve(bad)
	require.ErrorContains(t, err, "failed to listen")
	startServer(t, cfg)
}

func TestAServerWithLowerLimitsKeepsWhatWasAllowedBefore(t *testing.T) {
	cfg := journaled(t)
	s := startServer(t, cfg)
	cl := dialed(t, s)
	big := bytes.Repeat([]byte("x"), 10_000)
	require.NoError(t, cl.Set(t.Context(), "big", big))
	require.NoError(t, s.Close())
	cfg.Limits = kv.Limits{Value: 100, Memory: 5000}
	var log talktest.Lines
	cfg.Logger = log.Logger()
	s = startServer(t, cfg)
	require.Contains(t, log.String(), "more in its journal than it may hold")
	cl = dialed(t, s)
	require.Equal(t, 1, s.Stats().Keys)
	require.Error(t, cl.Set(t.Context(), "more", []byte("1")))
	gone, err := cl.Delete(t.Context(), "big")
	require.NoError(t, err)
	require.True(t, gone)
	require.NoError(t, cl.Set(t.Context(), "more", []byte("1")))
}

// slowLedger commits when it is told to, or fails.
type slowLedger struct {
	mu   sync.Mutex
	cond sync.Cond
	last uint64
	safe uint64
	err  error
}

func newSlowLedger() *slowLedger {
	l := new(slowLedger)
	l.cond.L = &l.mu
	return l
}

func (l *slowLedger) Append([]byte) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

func (l *slowLedger) Commit(seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.safe < seq && l.err == nil {
		l.cond.Wait()
	}
	if l.safe >= seq {
		return nil
	}
	return l.err
}

func (l *slowLedger) set(safe uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.safe, l.err = safe, err
	l.cond.Broadcast()
}

func (l *slowLedger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *slowLedger) Failed() <-chan struct{}                          { return nil }
func (l *slowLedger) Due(int64) bool                                   { return false }
func (l *slowLedger) Compact(func(mark func()) iter.Seq[[]byte]) error { return nil }
func (l *slowLedger) Size() int64                                      { return 0 }
func (l *slowLedger) Close() error                                     { return nil }

// ledgerServer is a server without a network and with that ledger.
func ledgerServer(t *testing.T, l ledger, cfg Config) func() (talktest.Raw, *heard) {
	s := newServer(cfg)
	s.keep(l)
	t.Cleanup(func() { s.Close() })
	return func() (talktest.Raw, *heard) {
		near, far := net.Pipe()
		s.attach(far)
		h := new(heard)
		go h.listen(near)
		return talktest.NewRaw(t, near), h
	}
}

// heard is what has come over a connection.
type heard struct {
	mu    sync.Mutex
	bytes []byte
	over  bool
}

func (h *heard) listen(nc net.Conn) {
	b := make([]byte, 256)
	for {
		n, err := nc.Read(b)
		h.mu.Lock()
		h.bytes = append(h.bytes, b[:n]...)
		h.over = err != nil
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (h *heard) is(t *testing.T, want string, what string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(t, fmt.Sprintf("%x", talktest.Unhex(t, want)), fmt.Sprintf("%x", h.bytes), what)
}

func TestNobodyHearsOfAChangeThatIsNotYetSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLedger()
		connect := ledgerServer(t, l, Config{})
		writer, answer := connect()
		waiter, woken := connect()
		watcher, news := connect()
		reader, read := connect()
		torch, greeted := connect()
		for _, r := range []talktest.Raw{writer, waiter, watcher, reader} {
			r.Send(talktest.OwnMode)
		}
		waiter.Send("06 " + talktest.One + talktest.Two + "'/k'")
		watcher.Send("42 " + talktest.Two + "'/k'")
		for _, h := range []*heard{answer, read, woken} {
			h.is(t, "00", "own mode has begun")
		}
		news.is(t, "00 00", "and the key is watched")

		writer.Send(talktest.SetK + talktest.One + "'v'")
		synctest.Wait()
		reader.Send("03 " + talktest.Two + "'/k'")
		answer.is(t, "00", "not yet")
		woken.is(t, "00", "nobody is woken")
		news.is(t, "00 00", "nobody has news")
		read.is(t, "00", "nobody can read it")
		torch.Send("06")
		greeted.is(t, "", "nor count it")
		l.set(1, nil)
		answer.is(t, "00 00", "now it is safe")
		woken.is(t, "00 00 00", "")
		news.is(t, "00 00 ff 01 "+talktest.Two+"'/k' 00*8 "+talktest.One+"'v'", "")
		read.is(t, "00 00 "+talktest.One+"'v'", "")
		greeted.is(t, talktest.One, "")
		reader.Send("03 " + talktest.Two + "'/k'")
		read.is(t, "00 00 "+talktest.One+"'v' 00 "+talktest.One+"'v'", "a reading alone waits for nothing")
	})
}

func TestAClientThatAsksForNoAnswersIsNotFarAheadOfTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLedger()
		connect := ledgerServer(t, l, Config{})
		torch, _ := connect()
		set := talktest.Unhex(t, "00 02 00*7 '/k' 01 00*7 'v'")
		go torch.NC.Write(bytes.Repeat(set, 100_000))
		synctest.Wait()
		require.LessOrEqual(t, l.last, uint64(2*(2<<10)/len(set)), "no more than twice what a decoder reads ahead")
		require.Positive(t, l.last)
		l.set(1<<60, nil)
		synctest.Wait()
		require.EqualValues(t, 100_000, l.last)
	})
}

func TestWhenTheJournalFailsNothingIsAcknowledgedAndAllAreToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLedger()
		var log talktest.Lines
		connect := ledgerServer(t, l, Config{Logger: log.Logger()})
		writer, answer := connect()
		other, bystander := connect()
		old, torch := connect()
		writer.Send(talktest.OwnMode)
		other.Send(talktest.OwnMode)
		old.Send("06")
		torch.is(t, "00*8", "")
		writer.Send(talktest.SetK + talktest.One + "'v'")
		synctest.Wait()
		l.set(0, errors.New("no space left on device"))
		answer.is(t, "00", "nothing is acknowledged")
		require.True(t, answer.over)
		for range 2 { // a change, and a reading of what was not kept
			other.Send(talktest.SetK + talktest.One + "'w'")
			other.Send("03 " + talktest.Two + "'/k'")
		}
		said := told(1, "no space left on device")
		bystander.is(t, "00 "+said+said+said+said, "")
		require.EqualValues(t, 1, l.last, "nothing more is appended")
		old.Send("06")
		torch.is(t, "00*8", "")
		require.True(t, torch.over, "who has no words for it is closed")
		require.Equal(t, 1, strings.Count(log.String(), "cannot write its journal"))
	})
}

func TestAServerTellsThatItsJournalFailed(t *testing.T) {
	s := startServer(t, journaled(t))
	require.NoError(t, s.Err())
	select {
	case <-s.Failed():
		t.Fatal("not yet")
	default:
	}
	require.NoError(t, s.keeper.Close()) // which is as good as a failure
	<-s.Failed()
	require.ErrorIs(t, s.Err(), journal.ErrClosed)
	cl, err := client.Dial(t.Context(), client.Config{Addr: s.Addr()})
	if err == nil {
		_, err = cl.NumKeys(t.Context())
		cl.Close()
	}
	require.Error(t, err)
	require.Nil(t, startServer(t, Config{}).Failed())
}

// Several clients write while the journal is compacted again and again; then another server has
// what they were told.
func TestCompactionUnderLoadLosesNothing(t *testing.T) {
	leak.Check(t)
	cfg := journaled(t)
	cfg.Journal.Growth = 2
	s, err := Serve(cfg)
	require.NoError(t, err)
	c, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	const clients, keys = 4, 8
	var wrote, pushed, popped [clients]int
	var values [clients][keys]string
	for w := range clients {
		cl, err := client.Dial(c, client.Config{Addr: s.Addr()})
		require.NoError(t, err)
		wg.Go(func() {
			defer cl.Close()
			r := rand.New(rand.NewPCG(5, uint64(w)))
			own, queue := fmt.Sprint("n", w), fmt.Sprint("q", w)
			for i := range soak.Cases(300) {
				k := r.IntN(keys)
				values[w][k] = strings.Repeat(fmt.Sprint(i, " "), 200+r.IntN(600))
				err := cl.Set(c, fmt.Sprint("k", w, k), []byte(values[w][k]))
				if err == nil {
					wrote[w]++
					_, err = cl.Add(c, own, 1)
				}
				if err == nil && r.IntN(2) == 0 {
					err = cl.Push(c, queue, fmt.Append(nil, pushed[w]))
					pushed[w]++
				} else if err == nil {
					var v []byte
					var ok bool
					if v, ok, err = cl.TryPop(c, queue); ok && string(v) != fmt.Sprint(popped[w]) {
						t.Errorf("client %d popped %s after %d", w, v, popped[w])
					} else if ok {
						popped[w]++
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	load := make(chan struct{})
	go func() { wg.Wait(); close(load) }()
	for over := false; !over; { // beside those that come by themselves
		select {
		case <-load:
			over = true
		default:
		}
		s.compact()
	}
	require.Less(t, s.keeper.Size(), int64(4<<20), "it was compacted")
	require.NoError(t, s.Close())

	s, err = Serve(cfg)
	require.NoError(t, err)
	defer s.Close()
	cl, err := client.Dial(c, client.Config{Addr: s.Addr()})
	require.NoError(t, err)
	defer cl.Close()
	for w := range clients {
		n, err := cl.Add(c, fmt.Sprint("n", w), 0)
		require.NoError(t, err)
		require.EqualValues(t, wrote[w], n)
		for k, want := range values[w] {
			got, err := cl.Get(c, fmt.Sprint("k", w, k))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		for i := popped[w]; i < pushed[w]; i++ {
			v, ok, err := cl.TryPop(c, fmt.Sprint("q", w))
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, fmt.Sprint(i), string(v))
		}
		left, err := cl.Len(c, fmt.Sprint("q", w))
		require.NoError(t, err)
		require.Zero(t, left)
	}
}

func TestAJournalIsCompactedByItself(t *testing.T) {
	cfg := journaled(t)
	var log talktest.Lines
	cfg.Logger = log.Logger()
	s := startServer(t, cfg)
	cl := dialed(t, s)
	value := make([]byte, 256<<10)
	for range 64 { // each waits for the compaction that it may have begun, however long that takes to have a processor
		require.NoError(t, cl.Set(t.Context(), "k", value))
		require.Eventually(t, func() bool { return s.keeper.Size() < 4<<20 }, time.Minute, time.Millisecond)
	}
	require.NoError(t, s.Close()) // which waits for the compaction under way
	require.Contains(t, log.String(), "has compacted its journal")
	info, err := os.Stat(cfg.Journal.Path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), s.Stats().Journal)
	require.Less(t, info.Size(), int64(8<<20), "of 16 MiB that were written")
}
