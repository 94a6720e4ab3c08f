package store

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever some clients send, however it is cut, the server lives, takes memory by what arrived,
// forgets them, and serves another client.
func FuzzServer(f *testing.F) {
	for _, x := range captured {
		f.Add(unhex(f, x.ask), []byte("x"), uint8(3), uint8(0))
	}
	own := unhex(f, ownMode)
	for n := range wireNames {
		r, w := rand.New(rand.NewPCG(2, uint64(n))), wireOf(uint8(n))
		var all []byte
		if w.dialect == Dialect22 {
			all = unhex(f, hello)
		}
		if w.own {
			all = own
		}
		for range 3 {
			for _, o := range commandsOf(w) {
				all, _ = w.appendCommand(all, fillCommand(r, o))
			}
		}
		f.Add(all, all, uint8(100), uint8(w.dialect))
		for _, b := range lying(w) {
			f.Add(append(all[:0:0], b...), all, uint8(7), uint8(w.dialect))
		}
	}
	for _, path := range recordings(f) {
		var all []byte
		for _, x := range recordedIn(f, path) {
			all = append(all, unhex(f, x.ask)...)
		}
		f.Add(all, all, uint8(50), uint8(DialectAuto))
	}
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), own, uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, one, other []byte, piece, dialect uint8) {
		limits := Limits{Key: 64, Value: 256, Keys: 16, Memory: 1 << 14}
		s := newServer(ServerConfig{Limits: limits, Dialect: Dialect(dialect % byte(Dialect22+1))})
		defer s.Close()
		given := len(one) + len(other)
		got := allocated(func() {
			a, b := fuzzed(s), fuzzed(s)
			for len(one)+len(other) > 0 {
				one, other = a.next(one, piece), b.next(other, piece)
			}
			a.end()
			b.end()
		})
		require.Less(t, got, uint64(1<<20+256*given))
		require.LessOrEqual(t, s.Stats().Bytes, limits.Memory)
		for s.Stats().Clients > 0 { // who went is forgotten soon
			runtime.Gosched()
		}
		require.Zero(t, s.Stats().Waiters)
		require.Zero(t, s.Stats().Watchers)
		require.Zero(t, s.members.arriving.Load())
		last, far := net.Pipe()
		s.attach(far)
		go last.Write(unhex(t, hello+" 07"))
		_, err := io.ReadFull(last, make([]byte, 8))
		require.NoError(t, err, "another client must be served")
		last.Close()
	})
}

// fuzzClient sends pieces and reads whatever comes.
type fuzzClient struct {
	nc   net.Conn
	done chan struct{}
}

func fuzzed(s *Server) fuzzClient {
	near, far := net.Pipe()
	s.attach(far)
	x := fuzzClient{near, make(chan struct{})}
	go func() {
		defer close(x.done)
		_, _ = io.Copy(io.Discard, near)
	}()
	return x
}

// next sends a piece and returns what is left; nothing if the server has closed, as it may.
func (x fuzzClient) next(b []byte, piece uint8) []byte {
	n := min(len(b), 1+int(piece))
	if _, err := x.nc.Write(b[:n]); err != nil {
		return nil
	}
	return b[n:]
}

func (x fuzzClient) end() {
	x.nc.Close()
	<-x.done
}
