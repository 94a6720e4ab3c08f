package server

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
)

func startServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Serve(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func connectRaw(t *testing.T, s *Server) talktest.Raw {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(20*time.Second)))
	return talktest.NewRaw(t, nc)
}

func TestTheServerSpeaksTheCapturedBytes(t *testing.T) {
	r := connectRaw(t, startServer(t, Config{}))
	for _, x := range talktest.Captured {
		t.Log(x.What)
		r.Send(x.Ask)
		r.Expect(x.Answer)
	}
}

func TestPipelinedAndFragmentedCommandsAreAnsweredInOrder(t *testing.T) {
	var ask, answer []byte
	for _, x := range talktest.Captured {
		ask, answer = append(ask, talktest.Unhex(t, x.Ask)...), append(answer, talktest.Unhex(t, x.Answer)...)
	}
	s := startServer(t, Config{})
	for seed := range uint64(20) {
		s.mu.Lock()
		s.members.state = state.New(s.limits)
		s.mu.Unlock()
		r, rnd := connectRaw(t, s), rand.New(rand.NewPCG(seed, 0))
		for rest := ask; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(1+int(seed)*20))
			_, err := r.NC.Write(rest[:n])
			require.NoError(t, err)
			rest = rest[n:]
		}
		got := make([]byte, len(answer))
		_, err := io.ReadFull(r.NC, got)
		require.NoError(t, err)
		require.Equal(t, answer, got)
		r.NC.Close()
	}
}

func TestAnAnswerDoesNotWaitForTheRestOfTheNextCommand(t *testing.T) {
	r := connectRaw(t, startServer(t, Config{}))
	r.Send("06 03 02 00*7")
	r.Expect("00*8")
	r.Send("'/n' 01 00*7")
	r.Expect("01 00*7")
}

func TestWatchersAreToldWhatHappens(t *testing.T) {
	s := startServer(t, Config{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	w.Send("07 02 00*7 '/w'")
	w.Expect("03")
	r.Send("00 02 00*7 '/w' 01 00*7 'a'")
	w.Expect("01 02 00*7 '/w' 00*8 01 00*7 'a'")
	r.Send("00 02 00*7 '/w' 01 00*7 '1'")
	w.Expect("00 02 00*7 '/w' 01 00*7 'a' 01 00*7 '1'")
	r.Send("03 02 00*7 '/w' 01 00*7")
	w.Expect("00 02 00*7 '/w' 01 00*7 '1' 01 00*7 '2'")
	r.Send("01 02 00*7 '/w' 01 00*7 'x' 01 00*7 'y'") // fails: no news
	r.Send("01 02 00*7 '/w' 01 00*7 '2' 01 00*7 'y'")
	w.Expect("00 02 00*7 '/w' 01 00*7 '2' 01 00*7 'y'")
	r.Send("08 02 00*7 '/w'")
	w.Expect("02 02 00*7 '/w' 01 00*7 'y' 00*8")
	// Observed with PyTorch 1.13: what creates a key is told as its creation, whichever command it
	// was.
	r.Send("03 02 00*7 '/w' 05 00*7")
	w.Expect("01 02 00*7 '/w' 00*8 01 00*7 '5'")
	r.Send("08 02 00*7 '/w' 01 02 00*7 '/w' 00*8 01 00*7 'y'")
	w.Expect("02 02 00*7 '/w' 01 00*7 '5' 00*8")
	w.Expect("01 02 00*7 '/w' 00*8 01 00*7 'y'")
	w.Alive()
}

func TestWhoBreaksARuleIsClosedAndNobodyElse(t *testing.T) {
	s := startServer(t, Config{Limits: kv.Limits{Key: 16, Value: 64, Keys: 8}})
	other := connectRaw(t, s)
	other.Send("00 02 00*7 '/x' 01 00*7 'x'")
	other.Alive()
	for name, bytes := range map[string]string{
		"unknown opcode":              "09",
		"the news is no command":      "ff",
		"get of a missing key":        "02 02 00*7 '/k'",
		"add to what is no number":    "03 02 00*7 '/x' 01 00*7",
		"key too long":                "02 11 00*7",
		"key of 2^62 bytes":           "02 00*7 40",
		"key of 2^64-1 bytes":         "02 ff*8",
		"value too long":              "00 02 00*7 '/k' 41 00*7",
		"expected value too long":     "01 02 00*7 '/k' 41 00*7",
		"desired value too long":      "01 02 00*7 '/k' 00*8 ff*7 7f",
		"too many keys":               "04 09 00*7",
		"too many keys to wait for":   "05 00*7 80",
		"too many bytes in the keys":  "04 05 00*7 10 00*7 '0123456789abcdef' 10 00*7 '0123456789abcdef' 10 00*7 '0123456789abcdef' 10 00*7 '0123456789abcdef' 10 00*7 '0123456789abcdef'",
		"a client of PyTorch 2 in D+": "00 ce f7 85 3c 0d 00*4",
	} {
		t.Run(name, func(t *testing.T) {
			r := connectRaw(t, s)
			r.Send("06 " + bytes)
			_, err := io.ReadFull(r.NC, make([]byte, 8))
			require.NoError(t, err, "what was asked before is answered")
			r.ExpectClosed()
			other.Alive()
		})
	}
	other.Send("02 02 00*7 '/x'")
	other.Expect("01 00*7 'x'")
}

func TestASlowOrSilentClientDelaysNobody(t *testing.T) {
	s := startServer(t, Config{})
	connectRaw(t, s) // PyTorch's second connection, which says nothing
	half := connectRaw(t, s)
	half.Send("00 02 00*7 '/k' ff 00*7 'begun'")
	deaf := connectRaw(t, s) // asks for much and reads nothing
	big := binary.LittleEndian.AppendUint64(talktest.Unhex(t, "00 04 00*7 '/big'"), 8<<20)
	_, err := deaf.NC.Write(append(big, make([]byte, 8<<20)...))
	require.NoError(t, err)
	for range 8 {
		deaf.Send("02 04 00*7 '/big'")
	}
	deaf.Send("07 02 00*7 '/n'")
	r := connectRaw(t, s)
	r.Send("05 01 00*7 04 00*7 '/big'")
	r.Expect("00")
	for range 100 {
		r.Send("03 02 00*7 '/n' 01 00*7")
		_, err := io.ReadFull(r.NC, make([]byte, 8))
		require.NoError(t, err)
	}
}

func TestAWatcherThatDoesNotReadIsClosedBeforeItsNewsFillTheMemory(t *testing.T) {
	nc, far := net.Pipe()
	defer far.Close()
	p := newPeer(1, nc, newServer(Config{Limits: kv.Limits{Key: 8, Value: 1024}}))
	p.say = talktest.Wires["1.13"]
	value := make([]byte, 1024)
	for i := 0; p.err == nil; i++ {
		require.Less(t, i, 1000)
		_, err := p.enqueue(state.Reply{Op: state.OpNews, Key: "k", Value: value}, state.OpSet, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, p.queued, p.most+2048)
	}
	require.ErrorIs(t, p.flush(), errSlow)
	call, err := p.enqueue(state.Reply{Op: state.OpNews}, state.OpSet, 0)
	require.NoError(t, err)
	require.False(t, call)
	_, err = nc.Write(nil)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestAWaiterThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := pipeServer(t)
		nc := dial()
		nc.Write(talktest.Unhex(t, "05 02 00*7 02 00*7 '/a' 02 00*7 '/b' 07 02 00*7 '/c'"))
		io.ReadFull(nc, make([]byte, 1))
		synctest.Wait()
		require.Equal(t, 1, s.members.state.Stats().Waiters)
		require.Equal(t, 1, s.members.state.Stats().Watchers)
		nc.Close()
		synctest.Wait()
		require.Zero(t, s.members.state.Stats().Waiters)
		require.Zero(t, s.members.state.Stats().Watchers)
		require.Empty(t, s.peers)
	})
}

func TestASecondWaitReplacesTheFirst(t *testing.T) {
	s := startServer(t, Config{})
	r, other := connectRaw(t, s), connectRaw(t, s)
	r.Send("05 01 00*7 02 00*7 '/a' 05 01 00*7 02 00*7 '/b'")
	r.Alive()
	other.Send("00 02 00*7 '/a' 00*8")
	other.Alive()
	r.Send("06") // the only answer: nothing is said of /a
	r.Expect("01 00*7")
	other.Send("00 02 00*7 '/b' 00*8")
	r.Expect("00")
}

func TestMoreClientsThanAllowedAreTurnedAway(t *testing.T) {
	s := startServer(t, Config{MaxClients: 1})
	r := connectRaw(t, s)
	r.Alive()
	connectRaw(t, s).ExpectClosed()
	r.Alive()
}

func TestTheServerListensOnItsAddressOnly(t *testing.T) {
	s := startServer(t, Config{})
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
	require.NotEqual(t, "0", port)
	_, err = net.Dial("tcp", net.JoinHostPort("127.0.0.2", port))
	require.Error(t, err)
	_, err = Serve(Config{Addr: s.Addr()})
	require.ErrorContains(t, err, "the server socket has failed to listen on any local network address (port "+port+")")
}

func TestABadServerConfigIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := Serve(Config{Addr: ":29500", MaxClients: -1, Limits: kv.Limits{Key: -1}})
	require.ErrorContains(t, err, "names no host")
	require.ErrorContains(t, err, "MaxClients")
	require.ErrorContains(t, err, "limits")
	_, err = Serve(Config{Addr: "nonsense"})
	require.ErrorContains(t, err, "missing port")
}

func TestClosingTheServerDisconnectsItsClients(t *testing.T) {
	s := startServer(t, Config{})
	r := connectRaw(t, s)
	r.Send("05 01 00*7 02 00*7 '/k' 06")
	r.Expect("00*8")
	require.NoError(t, s.Close())
	r.ExpectClosed()
	require.NoError(t, s.Close())
}

// pipeServer is a server without a network, and a function that makes connections to it.
func pipeServer(t *testing.T) (*Server, func() net.Conn) {
	s := newServer(Config{})
	t.Cleanup(func() { s.Close() })
	return s, func() net.Conn {
		near, far := net.Pipe()
		s.attach(far)
		return near
	}
}
