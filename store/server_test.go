package store

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func startServer(t *testing.T, cfg ServerConfig) *Server {
	t.Helper()
	s, err := Serve(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func connectRaw(t *testing.T, s *Server) raw {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(20*time.Second)))
	return raw{t, nc}
}

func TestTheServerSpeaksTheCapturedBytes(t *testing.T) {
	r := connectRaw(t, startServer(t, ServerConfig{}))
	for _, x := range captured {
		t.Log(x.what)
		r.send(x.ask)
		r.expect(x.answer)
	}
}

func TestPipelinedAndFragmentedCommandsAreAnsweredInOrder(t *testing.T) {
	var ask, answer []byte
	for _, x := range captured {
		ask, answer = append(ask, unhex(t, x.ask)...), append(answer, unhex(t, x.answer)...)
	}
	s := startServer(t, ServerConfig{})
	for seed := range uint64(20) {
		s.mu.Lock()
		s.members.state = newState(s.limits)
		s.mu.Unlock()
		r, rnd := connectRaw(t, s), rand.New(rand.NewPCG(seed, 0))
		for rest := ask; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(1+int(seed)*20))
			_, err := r.nc.Write(rest[:n])
			require.NoError(t, err)
			rest = rest[n:]
		}
		got := make([]byte, len(answer))
		_, err := io.ReadFull(r.nc, got)
		require.NoError(t, err)
		require.Equal(t, answer, got)
		r.nc.Close()
	}
}

func TestAnAnswerDoesNotWaitForTheRestOfTheNextCommand(t *testing.T) {
	r := connectRaw(t, startServer(t, ServerConfig{}))
	r.send("06 03 02 00*7")
	r.expect("00*8")
	r.send("'/n' 01 00*7")
	r.expect("01 00*7")
}

func TestWatchersAreToldWhatHappens(t *testing.T) {
	s := startServer(t, ServerConfig{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	w.send("07 02 00*7 '/w'")
	w.expect("03")
	r.send("00 02 00*7 '/w' 01 00*7 'a'")
	w.expect("01 02 00*7 '/w' 00*8 01 00*7 'a'")
	r.send("00 02 00*7 '/w' 01 00*7 '1'")
	w.expect("00 02 00*7 '/w' 01 00*7 'a' 01 00*7 '1'")
	r.send("03 02 00*7 '/w' 01 00*7")
	w.expect("00 02 00*7 '/w' 01 00*7 '1' 01 00*7 '2'")
	r.send("01 02 00*7 '/w' 01 00*7 'x' 01 00*7 'y'") // fails: no news
	r.send("01 02 00*7 '/w' 01 00*7 '2' 01 00*7 'y'")
	w.expect("00 02 00*7 '/w' 01 00*7 '2' 01 00*7 'y'")
	r.send("08 02 00*7 '/w'")
	w.expect("02 02 00*7 '/w' 01 00*7 'y' 00*8")
	// Observed with PyTorch 1.13: what creates a key is told as its creation, whichever command it
	// was.
	r.send("03 02 00*7 '/w' 05 00*7")
	w.expect("01 02 00*7 '/w' 00*8 01 00*7 '5'")
	r.send("08 02 00*7 '/w' 01 02 00*7 '/w' 00*8 01 00*7 'y'")
	w.expect("02 02 00*7 '/w' 01 00*7 '5' 00*8")
	w.expect("01 02 00*7 '/w' 00*8 01 00*7 'y'")
	w.alive()
}

func TestWhoBreaksARuleIsClosedAndNobodyElse(t *testing.T) {
	s := startServer(t, ServerConfig{Limits: Limits{Key: 16, Value: 64, Keys: 8}})
	other := connectRaw(t, s)
	other.send("00 02 00*7 '/x' 01 00*7 'x'")
	other.alive()
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
			r.send("06 " + bytes)
			_, err := io.ReadFull(r.nc, make([]byte, 8))
			require.NoError(t, err, "what was asked before is answered")
			r.expectClosed()
			other.alive()
		})
	}
	other.send("02 02 00*7 '/x'")
	other.expect("01 00*7 'x'")
}

func TestASlowOrSilentClientDelaysNobody(t *testing.T) {
	s := startServer(t, ServerConfig{})
	connectRaw(t, s) // PyTorch's second connection, which says nothing
	half := connectRaw(t, s)
	half.send("00 02 00*7 '/k' ff 00*7 'begun'")
	deaf := connectRaw(t, s) // asks for much and reads nothing
	big := binary.LittleEndian.AppendUint64(unhex(t, "00 04 00*7 '/big'"), 8<<20)
	_, err := deaf.nc.Write(append(big, make([]byte, 8<<20)...))
	require.NoError(t, err)
	for range 8 {
		deaf.send("02 04 00*7 '/big'")
	}
	deaf.send("07 02 00*7 '/n'")
	r := connectRaw(t, s)
	r.send("05 01 00*7 04 00*7 '/big'")
	r.expect("00")
	for range 100 {
		r.send("03 02 00*7 '/n' 01 00*7")
		_, err := io.ReadFull(r.nc, make([]byte, 8))
		require.NoError(t, err)
	}
}

func TestAWatcherThatDoesNotReadIsClosedBeforeItsNewsFillTheMemory(t *testing.T) {
	nc, far := net.Pipe()
	defer far.Close()
	p := newPeer(1, nc, newServer(ServerConfig{Limits: Limits{Key: 8, Value: 1024}}))
	p.say = wires["1.13"]
	value := make([]byte, 1024)
	for i := 0; p.err == nil; i++ {
		require.Less(t, i, 1000)
		_, err := p.add(reply{op: opNews, key: "k", value: value}, opSet, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, p.queued, p.most+2048)
	}
	require.ErrorIs(t, p.flush(), errSlow)
	call, err := p.add(reply{op: opNews}, opSet, 0)
	require.NoError(t, err)
	require.False(t, call)
	_, err = nc.Write(nil)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestAWaiterThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := pipeServer(t)
		nc := dial()
		nc.Write(unhex(t, "05 02 00*7 02 00*7 '/a' 02 00*7 '/b' 07 02 00*7 '/c'"))
		io.ReadFull(nc, make([]byte, 1))
		synctest.Wait()
		require.Equal(t, 1, s.members.state.stats().waiters)
		require.Equal(t, 1, s.members.state.stats().watchers)
		nc.Close()
		synctest.Wait()
		require.Zero(t, s.members.state.stats().waiters)
		require.Zero(t, s.members.state.stats().watchers)
		require.Empty(t, s.peers)
	})
}

func TestASecondWaitReplacesTheFirst(t *testing.T) {
	s := startServer(t, ServerConfig{})
	r, other := connectRaw(t, s), connectRaw(t, s)
	r.send("05 01 00*7 02 00*7 '/a' 05 01 00*7 02 00*7 '/b'")
	r.alive()
	other.send("00 02 00*7 '/a' 00*8")
	other.alive()
	r.send("06") // the only answer: nothing is said of /a
	r.expect("01 00*7")
	other.send("00 02 00*7 '/b' 00*8")
	r.expect("00")
}

func TestMoreClientsThanAllowedAreTurnedAway(t *testing.T) {
	s := startServer(t, ServerConfig{MaxClients: 1})
	r := connectRaw(t, s)
	r.alive()
	connectRaw(t, s).expectClosed()
	r.alive()
}

func TestTheServerListensOnItsAddressOnly(t *testing.T) {
	s := startServer(t, ServerConfig{})
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
	require.NotEqual(t, "0", port)
	_, err = net.Dial("tcp", net.JoinHostPort("127.0.0.2", port))
	require.Error(t, err)
	_, err = Serve(ServerConfig{Addr: s.Addr()})
	require.ErrorContains(t, err, "the server socket has failed to listen on any local network address (port "+port+")")
}

func TestABadServerConfigIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := Serve(ServerConfig{Addr: ":29500", MaxClients: -1, Limits: Limits{Key: -1}})
	require.ErrorContains(t, err, "names no host")
	require.ErrorContains(t, err, "MaxClients")
	require.ErrorContains(t, err, "limits")
	_, err = Serve(ServerConfig{Addr: "nonsense"})
	require.ErrorContains(t, err, "missing port")
}

func TestClosingTheServerDisconnectsItsClients(t *testing.T) {
	s := startServer(t, ServerConfig{})
	r := connectRaw(t, s)
	r.send("05 01 00*7 02 00*7 '/k' 06")
	r.expect("00*8")
	require.NoError(t, s.Close())
	r.expectClosed()
	require.NoError(t, s.Close())
}

// pipeServer is a server without a network, and a function that makes connections to it.
func pipeServer(t *testing.T) (*Server, func() net.Conn) {
	s := newServer(ServerConfig{})
	t.Cleanup(func() { s.Close() })
	return s, func() net.Conn {
		near, far := net.Pipe()
		s.attach(far)
		return near
	}
}
