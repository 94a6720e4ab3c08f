//go:build unix

package transport

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
func eagerPair(t *testing.T, l *lookout) (*eagerConn, *net.UnixConn) {
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	defer ln.Close()
	dialed, err := net.Dial("unix", ln.Addr().String())
	require.NoError(t, err)
	served, err := ln.Accept()
	require.NoError(t, err)
	e, err := newEagerConn(served.(*net.UnixConn), l)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dialed.Close(); _ = e.Close() })
	return e, dialed.(*net.UnixConn)
}

func TestAnEagerReaderGetsEveryByteInOrderAndThenTheEnd(t *testing.T) {
	leak.Check(t)
	for name, most := range map[string]int32{"looking": 8, "never looking": 0} {
		t.Run(name, func(t *testing.T) {
			r, w := eagerPair(t, &lookout{most: most})
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
	r, _ := eagerPair(t, newLookout())
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
	r, w := eagerPair(t, newLookout())
	_, err := r.Write([]byte("unread")) // closing a socket with unread bytes resets it
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestNoMoreReadersLookThanThereAreProcessorsToSpare(t *testing.T) {
	l := &lookout{most: 2}
	in, out, found := make(chan struct{}), make(chan struct{}), make(chan bool)
	for range 2 {
		go func() { found <- l.watch(func() bool { in <- struct{}{}; <-out; return true }) }()
		<-in
	}
	require.False(t, l.watch(func() bool { return true }), "two are looking already: it does not even look")
	close(out)
	require.True(t, <-found)
	require.True(t, <-found)
	require.True(t, l.watch(func() bool { return true }))
	require.False(t, (&lookout{}).watch(func() bool { return true }), "nobody to spare")
}

// livesWith runs a habit through n waits whose length wait gives, and says how many of them looked.
func livesWith(h *habit, n int, wait func(looks bool) time.Duration) (looked int) {
	for range n {
		if h.looks {
			looked++
		}
		h.took(wait(h.looks))
	}
	return looked
}

func TestAReaderLooksWhereThatMakesTheWaitsShorterAndSleepsWhereItDoesNot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	around := func(d time.Duration) time.Duration { return d/2 + time.Duration(r.Int64N(int64(d))) }
	idle := func(looks bool) time.Duration { // processors to spare
		if looks {
			return around(6 * time.Microsecond)
		}
		return around(40 * time.Microsecond)
	}
	busy := func(looks bool) time.Duration { // the looking keeps the peer from answering
		if looks {
			return around(90 * time.Microsecond)
		}
		return around(15 * time.Microsecond)
	}
	var h habit
	require.Greater(t, livesWith(&h, 4000, idle), 3600)
	livesWith(&h, 1000, busy) // it has to be noticed
	require.Less(t, livesWith(&h, 4000, busy), 400)
	livesWith(&h, 1000, idle)
	require.Greater(t, livesWith(&h, 4000, idle), 3600)
}

func TestAReaderOfAQuietLinkSleeps(t *testing.T) {
	var h habit
	require.Zero(t, livesWith(&h, 1000, func(bool) time.Duration { return time.Second }))
	livesWith(&h, 1000, func(looks bool) time.Duration {
		if looks {
			return time.Microsecond
		}
		return 50 * time.Microsecond
	})
	require.True(t, h.looks)
	h.took(time.Second)
	require.Zero(t, livesWith(&h, 1000, func(bool) time.Duration { return time.Second }))
}
