//go:build unix

package eager

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

// eagerPair is a pair of connected sockets, the first of which reads eagerly.
func eagerPair(t *testing.T, l *Lookout) (*Conn, *net.UnixConn) {
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	defer ln.Close()
	dialed, err := net.Dial("unix", ln.Addr().String())
	require.NoError(t, err)
	served, err := ln.Accept()
	require.NoError(t, err)
	e, err := NewConn(served.(*net.UnixConn), l)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dialed.Close(); _ = e.Close() })
	return e, dialed.(*net.UnixConn)
}

func TestAnEagerReaderGetsEveryByteInOrderAndThenTheEnd(t *testing.T) {
	leak.Check(t)
	for name, most := range map[string]int32{"looking": 8, "never looking": 0} {
		t.Run(name, func(t *testing.T) {
			r, w := eagerPair(t, &Lookout{most: most})
			want := make([]byte, 1<<20)
			src := rand.NewChaCha8([32]byte{1})
			_, _ = src.Read(want)
			go func() {
				sizes := rand.New(src)
				for b := want; len(b) > 0; {
					n := min(len(b), 1+sizes.IntN(9000))
					if _, err := w.Write(b[:n]); err != nil {
						return
					}
					b = b[n:]
				}
				_ = w.Close()
			}()
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestAnEagerReaderIsInterruptedByCloseAndByDeadlines(t *testing.T) {
	leak.Check(t)
	r, _ := eagerPair(t, NewLookout())
	n, err := r.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, r.SetReadDeadline(time.Unix(1, 0)))
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, r.SetReadDeadline(time.Time{}))
	failed := make(chan error)
	go func() {
		_, err := r.Read(make([]byte, 1))
		failed <- err
	}()
	require.NoError(t, r.Close())
	require.ErrorIs(t, <-failed, net.ErrClosed)
}

func TestAnEagerReaderTellsWhatBrokeTheSocket(t *testing.T) {
	r, w := eagerPair(t, NewLookout())
	_, err := r.Write([]byte("unread")) // closing a socket with unread bytes resets it
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}
