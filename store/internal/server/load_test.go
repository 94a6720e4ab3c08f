package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// In synctest's bubble a client that were held up by another would never be answered, and the test
// would find all asleep.
func TestAHundredClientsWithHalfACommandHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := pipeServer(t)
		whole, err := talktest.Wires["2.2"].AppendCommand(talktest.Unhex(t, talktest.Hello), state.Command{Op: state.OpMultiSet, Pairs: []kv.Pair{{Key: "/k", Value: []byte("v")}, {Key: "/j", Value: nil}}})
		require.NoError(t, err)
		stalled := make([]net.Conn, 100)
		for i := range stalled {
			stalled[i] = dial()
			_, err := stalled[i].Write(whole[:i*len(whole)/100])
			require.NoError(t, err)
		}
		deaf := dial() // asks and does not read
		_, err = deaf.Write([]byte{byte(state.OpNumKeys)})
		require.NoError(t, err)
		r := talktest.NewRaw(t, dial())
		for i := range 100 {
			r.Send("03 02 00*7 '/n' 01 00*7")
			r.Expect(fmt.Sprintf("%02x 00*7", i+1))
		}
		for i, nc := range stalled { // and each goes on where it was
			_, err := nc.Write(whole[i*len(whole)/100:])
			require.NoError(t, err)
		}
		synctest.Wait()
		require.EqualValues(t, 100, s.Stats().Commands["multi_set"])
		require.EqualValues(t, 1, s.Stats().Commands["num_keys"])
	})
}

func TestWhoDoesNotReadHoldsUpNobodyWhoWakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial := pipeServer(t)
		for range 300 { // more than one goroutine writes to
			nc := dial()
			_, err := nc.Write(talktest.Unhex(t, "05 01 00*7 02 00*7 '/k'"))
			require.NoError(t, err)
		}
		synctest.Wait()
		last := talktest.NewRaw(t, dial())
		last.Send("05 01 00*7 02 00*7 '/k'")
		r := talktest.NewRaw(t, dial())
		r.Send("03 02 00*7 '/k' 01 00*7")
		r.Expect("01 00*7")
		last.Expect("00")
		r.Send("03 02 00*7 '/k' 01 00*7")
		r.Expect("02 00*7")
	})
}

func TestThousandsWhoWaitForOneKeyAreAllWoken(t *testing.T) {
	leak.Check(t)
	const n = 2000
	s := startServer(t, Config{})
	waiters := make([]net.Conn, n)
	ask := talktest.Unhex(t, "05 01 00*7 02 00*7 '/k'")
	for i := range waiters {
		waiters[i] = connectRaw(t, s).NC
		_, err := waiters[i].Write(ask)
		require.NoError(t, err)
		defer waiters[i].Close()
	}
	r := connectRaw(t, s)
	for s.Stats().Waiters < n {
		r.Alive()
	}
	r.Send("00 02 00*7 '/k' 00*8")
	for i, nc := range waiters {
		var b [1]byte
		_, err := io.ReadFull(nc, b[:])
		require.NoError(t, err, i)
		require.Zero(t, b[0])
	}
	require.Zero(t, s.Stats().Waiters)
}

func TestAHundredThousandKeysInOneWait(t *testing.T) {
	s := startServer(t, Config{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	keys := make([]string, 100_000)
	pairs := make([]kv.Pair, len(keys))
	for i := range keys {
		keys[i] = fmt.Sprintf("/key%d", i)
		pairs[i] = kv.Pair{Key: keys[i], Value: []byte{byte(i)}}
	}
	w.Send(talktest.OwnMode)
	r.Send(talktest.OwnMode)
	w.Expect("00")
	r.Expect("00")
	say := talktest.Wires["own"]
	fetch, err := say.AppendCommand(nil, state.Command{Op: state.OpFetch, Keys: keys})
	require.NoError(t, err)
	set, err := say.AppendCommand(nil, state.Command{Op: state.OpMultiSet, Pairs: pairs})
	require.NoError(t, err)
	_, err = w.NC.Write(fetch)
	require.NoError(t, err)
	_, err = r.NC.Write(set)
	require.NoError(t, err)
	got, err := wire.NewDecoder(w.NC, say, kv.Defaulted(kv.Limits{})).Reply(state.Command{Op: state.OpFetch, Keys: keys})
	require.NoError(t, err)
	for i, v := range got.Values {
		require.Equal(t, []byte{byte(i)}, v)
	}
	r.Expect("00")
}

func TestHalfSentCommandsOfAllClientsAreBoundedTogether(t *testing.T) {
	s := startServer(t, Config{Limits: kv.Limits{Memory: 1 << 20, Value: 1 << 20}})
	half := binary.LittleEndian.AppendUint64(talktest.Unhex(t, "00 02 00*7 '/k'"), 400_000)
	half = append(half, make([]byte, 300_000)...)
	send := func() talktest.Raw {
		r := connectRaw(t, s)
		_, err := r.NC.Write(half)
		require.NoError(t, err)
		return r
	}
	held := func(n int64) {
		r := connectRaw(t, s)
		for s.members.arriving.Load() < n {
			r.Alive()
		}
	}
	one := send()
	held(300_000)
	two := send()
	held(600_000)
	three := connectRaw(t, s)
	_, _ = three.NC.Write(half)
	_, _ = io.Copy(io.Discard, three.NC)
	three.ExpectClosed()
	two.NC.Close()
	// What is complete counts no longer, nor does what is given up.
	_, err := one.NC.Write(make([]byte, 100_000))
	require.NoError(t, err)
	one.Alive()
	for r := connectRaw(t, s); s.members.arriving.Load() != 0; {
		r.Alive()
	}
}

func TestClientsOverTheMostAreRefusedAndLoggedOnce(t *testing.T) {
	log := new(talktest.Lines)
	s := startServer(t, Config{MaxClients: 1, Logger: log.Logger()})
	r := connectRaw(t, s)
	r.Alive()
	for range 3 {
		connectRaw(t, s).ExpectClosed()
	}
	require.EqualValues(t, 3, s.Stats().Refused)
	require.Equal(t, 1, strings.Count(log.String(), "store refuses clients"))
}

func TestTheServerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := pipeServer(t)
		a, b := talktest.NewRaw(t, dial()), talktest.NewRaw(t, dial())
		a.Send("00 02 00*7 '/k' 03 00*7 'abc'")
		a.Send("06")
		a.Expect("01 00*7")
		a.Send("07 02 00*7 '/k'")
		a.Expect("03")
		b.Send("05 01 00*7 02 00*7 '/j'")
		synctest.Wait()
		got := s.Stats()
		require.Equal(t, Stats{
			Clients: 2, Accepted: 2, Commands: map[string]uint64{"set": 1, "num_keys": 1, "watch": 1, "wait": 1},
			BytesIn: 22 + 1 + 11 + 19, BytesOut: 8 + 1, Waiters: 1, Watchers: 1, Keys: 1, Bytes: 5 + 3*state.EntryBytes + 4,
		}, got)
		b.Send("ff")
		b.ExpectClosed()
		synctest.Wait()
		got = s.Stats()
		require.Zero(t, got.Waiters)
		require.Equal(t, 1, got.Clients)
		require.EqualValues(t, 1, got.Broken)
	})
}

func TestAListenerOfTheCallersOwnIsServedAndClosed(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	s := startServer(t, Config{Listener: l})
	nc, err := net.Dial("unix", s.Addr())
	require.NoError(t, err)
	defer nc.Close()
	talktest.NewRaw(t, nc).Alive()
	require.NoError(t, s.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestTheLogNamesTheClientAndTheRuleItBroke(t *testing.T) {
	log := new(talktest.Lines)
	s := startServer(t, Config{Logger: log.Logger()})
	r := connectRaw(t, s)
	r.Send("ff")
	r.ExpectClosed()
	require.NoError(t, s.Close())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), r.NC.LocalAddr().String())
	require.Contains(t, log.String(), "unknown opcode 255 in the dialect of PyTorch 1.13")
}
