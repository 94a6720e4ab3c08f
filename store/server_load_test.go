package store

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
)

// In synctest's bubble a client that were held up by another would never be answered, and the test
// would find all asleep.
func TestAHundredClientsWithHalfACommandHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := pipeServer(t)
		whole, err := wires["2.2"].appendCommand(unhex(t, hello), command{op: opMultiSet, pairs: []Pair{{"/k", []byte("v")}, {"/j", nil}}})
		require.NoError(t, err)
		stalled := make([]net.Conn, 100)
		for i := range stalled {
			stalled[i] = dial()
			_, err := stalled[i].Write(whole[:i*len(whole)/100])
			require.NoError(t, err)
		}
		deaf := dial() // asks and does not read
		_, err = deaf.Write([]byte{byte(opNumKeys)})
		require.NoError(t, err)
		r := raw{t, dial()}
		for i := range 100 {
			r.send("03 02 00*7 '/n' 01 00*7")
			r.expect(fmt.Sprintf("%02x 00*7", i+1))
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
			_, err := nc.Write(unhex(t, "05 01 00*7 02 00*7 '/k'"))
			require.NoError(t, err)
		}
		synctest.Wait()
		last := raw{t, dial()}
		last.send("05 01 00*7 02 00*7 '/k'")
		r := raw{t, dial()}
		r.send("03 02 00*7 '/k' 01 00*7")
		r.expect("01 00*7")
		last.expect("00")
		r.send("03 02 00*7 '/k' 01 00*7")
		r.expect("02 00*7")
	})
}

func TestThousandsWhoWaitForOneKeyAreAllWoken(t *testing.T) {
	leak.Check(t)
	const n = 2000
	s := startServer(t, ServerConfig{})
	waiters := make([]net.Conn, n)
	ask := unhex(t, "05 01 00*7 02 00*7 '/k'")
	for i := range waiters {
		waiters[i] = connectRaw(t, s).nc
		_, err := waiters[i].Write(ask)
		require.NoError(t, err)
		defer waiters[i].Close()
	}
	r := connectRaw(t, s)
	for s.Stats().Waiters < n {
		r.alive()
	}
	r.send("00 02 00*7 '/k' 00*8")
	for i, nc := range waiters {
		var b [1]byte
		_, err := io.ReadFull(nc, b[:])
		require.NoError(t, err, i)
		require.Zero(t, b[0])
	}
	require.Zero(t, s.Stats().Waiters)
}

func TestAHundredThousandKeysInOneWait(t *testing.T) {
	s := startServer(t, ServerConfig{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	keys := make([]string, 100_000)
	pairs := make([]Pair, len(keys))
	for i := range keys {
		keys[i] = fmt.Sprintf("/key%d", i)
		pairs[i] = Pair{keys[i], []byte{byte(i)}}
	}
	w.send(ownMode)
	r.send(ownMode)
	w.expect("00")
	r.expect("00")
	say := wires["own"]
	fetch, err := say.appendCommand(nil, command{op: opFetch, keys: keys})
	require.NoError(t, err)
	set, err := say.appendCommand(nil, command{op: opMultiSet, pairs: pairs})
	require.NoError(t, err)
	_, err = w.nc.Write(fetch)
	require.NoError(t, err)
	_, err = r.nc.Write(set)
	require.NoError(t, err)
	got, err := newDecoder(w.nc, say, Limits{}.withDefaults()).reply(command{op: opFetch, keys: keys})
	require.NoError(t, err)
	for i, v := range got.values {
		require.Equal(t, []byte{byte(i)}, v)
	}
	r.expect("00")
}

func TestHalfSentCommandsOfAllClientsAreBoundedTogether(t *testing.T) {
	s := startServer(t, ServerConfig{Limits: Limits{Memory: 1 << 20, Value: 1 << 20}})
	half := binary.LittleEndian.AppendUint64(unhex(t, "00 02 00*7 '/k'"), 400_000)
	half = append(half, make([]byte, 300_000)...)
	send := func() raw {
		r := connectRaw(t, s)
		_, err := r.nc.Write(half)
		require.NoError(t, err)
		return r
	}
	held := func(n int64) {
		r := connectRaw(t, s)
		for s.members.arriving.Load() < n {
			r.alive()
		}
	}
	one := send()
	held(300_000)
	two := send()
	held(600_000)
	three := connectRaw(t, s)
	_, _ = three.nc.Write(half)
	_, _ = io.Copy(io.Discard, three.nc)
	three.expectClosed()
	two.nc.Close()
	// What is complete counts no longer, nor does what is given up.
	_, err := one.nc.Write(make([]byte, 100_000))
	require.NoError(t, err)
	one.alive()
	for r := connectRaw(t, s); s.members.arriving.Load() != 0; {
		r.alive()
	}
}

func TestClientsOverTheMostAreRefusedAndLoggedOnce(t *testing.T) {
	log := new(lines)
	s := startServer(t, ServerConfig{MaxClients: 1, Logger: log.logger()})
	r := connectRaw(t, s)
	r.alive()
	for range 3 {
		connectRaw(t, s).expectClosed()
	}
	require.EqualValues(t, 3, s.Stats().Refused)
	require.Equal(t, 1, strings.Count(log.String(), "store refuses clients"))
}

func TestTheServerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := pipeServer(t)
		a, b := raw{t, dial()}, raw{t, dial()}
		a.send("00 02 00*7 '/k' 03 00*7 'abc'")
		a.send("06")
		a.expect("01 00*7")
		a.send("07 02 00*7 '/k'")
		a.expect("03")
		b.send("05 01 00*7 02 00*7 '/j'")
		synctest.Wait()
		got := s.Stats()
		require.Equal(t, ServerStats{
			Clients: 2, Accepted: 2, Commands: map[string]uint64{"set": 1, "num_keys": 1, "watch": 1, "wait": 1},
			BytesIn: 22 + 1 + 11 + 19, BytesOut: 8 + 1, Waiters: 1, Watchers: 1, Keys: 1, Bytes: 5 + 3*entryBytes + 4,
		}, got)
		b.send("ff")
		b.expectClosed()
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
	s := startServer(t, ServerConfig{Listener: l})
	nc, err := net.Dial("unix", s.Addr())
	require.NoError(t, err)
	defer nc.Close()
	raw{t, nc}.alive()
	require.NoError(t, s.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestTheLogNamesTheClientAndTheRuleItBroke(t *testing.T) {
	log := new(lines)
	s := startServer(t, ServerConfig{Logger: log.logger()})
	r := connectRaw(t, s)
	r.send("ff")
	r.expectClosed()
	require.NoError(t, s.Close())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), r.nc.LocalAddr().String())
	require.Contains(t, log.String(), "unknown opcode 255 in the dialect of PyTorch 1.13")
}
