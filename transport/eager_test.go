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

// pairOfReaders are the habits of two ends that take turns, on one clock.
type pairOfReaders struct {
	ends [2]habit
	now  time.Time
}

// live runs both for a while; wait says how long a wait takes when this end looks, and the other. It gives the share of waits
// in which both looked.
func (p *pairOfReaders) live(d time.Duration, wait func(looks, peerLooks bool) time.Duration) float64 {
	looked, n := 0, 0
	for end := p.now.Add(d); p.now.Before(end); n++ {
		a, b := p.ends[0].way(p.now), p.ends[1].way(p.now)
		p.ends[0].took(a, wait(a, b))
		p.ends[1].took(b, wait(b, a))
		p.now = p.now.Add(wait(a, b))
		if a && b {
			looked++
		}
	}
	return float64(looked) / float64(n)
}

func TestReadersLookWhereThatMakesTheWaitsShorterAndSleepWhereItDoesNot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	around := func(d time.Duration) time.Duration { return d/2 + time.Duration(r.Int64N(int64(d))) }
	idle := func(looks, peerLooks bool) time.Duration { // processors to spare: but one that looks alone has slept when the answer comes
		if looks && peerLooks {
			return around(6 * time.Microsecond)
		}
		return around(90 * time.Microsecond)
	}
	busy := func(looks, peerLooks bool) time.Duration { // looking keeps the peer from answering
		if looks || peerLooks {
			return around(90 * time.Microsecond)
		}
		return around(15 * time.Microsecond)
	}
	p := &pairOfReaders{now: time.Unix(1000, 0)}
	p.live(time.Second, idle)
	require.Greater(t, p.live(time.Second, idle), 0.9)
	p.live(time.Second, busy)
	require.Less(t, p.live(time.Second, busy), 0.1)
	p.live(time.Second, idle)
	require.Greater(t, p.live(time.Second, idle), 0.9)
}

func TestAReaderOfAQuietLinkSleeps(t *testing.T) {
	p := &pairOfReaders{now: time.Unix(1000, 0)}
	seldom := func(bool, bool) time.Duration { return 20 * time.Millisecond }
	require.Less(t, p.live(time.Minute, seldom), 0.1)
	require.False(t, p.ends[0].looks)
}

func TestAnEagerUDPSocketGivesEveryDatagramOnce(t *testing.T) {
	leak.Check(t)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer udp.Close()
	raw, err := eager(udp).(*eagerUDP).SyscallConn()
	require.NoError(t, err)
	raw.(*eagerRaw).habit.looks = true
	go func() {
		for i := range 200 {
			_, _ = udp.WriteTo([]byte{byte(i)}, udp.LocalAddr())
		}
	}()
	for i := range 200 {
		var b [8]byte
		n := 0
		require.NoError(t, raw.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), b[:])
			return err == nil
		}))
		require.Equal(t, []byte{byte(i)}, b[:n])
	}
}
