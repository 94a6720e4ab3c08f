package server

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// Whatever some clients send, however it is cut, the server lives, takes memory by what arrived,
// forgets them, and serves another client.
func FuzzServer(f *testing.F) {
	for _, x := range talktest.Captured {
		f.Add(talktest.Unhex(f, x.Ask), []byte("x"), uint8(3), uint8(0))
	}
	own := talktest.Unhex(f, talktest.OwnMode)
	for n := range talktest.WireNames {
		r, w := rand.New(rand.NewPCG(2, uint64(n))), talktest.WireOf(uint8(n))
		var all []byte
		if w.Dialect == wire.Dialect22 {
			all = talktest.Unhex(f, talktest.Hello)
		}
		if w.Own {
			all = own
		}
		for range 3 {
			for _, o := range talktest.CommandsOf(w) {
				all, _ = w.AppendCommand(all, talktest.FillCommand(r, o))
			}
		}
		f.Add(all, all, uint8(100), uint8(w.Dialect))
		for _, b := range talktest.Lying(w) {
			f.Add(append(all[:0:0], b...), all, uint8(7), uint8(w.Dialect))
		}
	}
	for _, path := range talktest.Recordings(f) {
		var all []byte
		for _, x := range talktest.RecordedIn(f, path) {
			all = append(all, talktest.Unhex(f, x.Ask)...)
		}
		f.Add(all, all, uint8(50), uint8(wire.DialectAuto))
	}
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), own, uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, one, other []byte, piece, dialect uint8) {
		limits := kv.Limits{Key: 64, Value: 256, Keys: 16, Memory: 1 << 14}
		s := newServer(Config{Limits: limits, Dialect: wire.Dialect(dialect % byte(wire.Dialect22+1))})
		defer s.Close()
		given := len(one) + len(other)
		got := talktest.Allocated(func() {
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
		go last.Write(talktest.Unhex(t, talktest.Hello+" 07"))
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
