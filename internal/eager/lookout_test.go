package eager

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNoMoreReadersLookThanThereAreProcessorsToSpare(t *testing.T) {
	l := &Lookout{most: 2}
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
	require.False(t, (&Lookout{}).watch(func() bool { return true }), "nobody to spare")
}

// pairOfReaders are the habits of two ends that take turns, on one clock.
type pairOfReaders struct {
	ends [2]habit
	now  time.Time
}

// live runs both for a while; wait says how long a wait takes when this end looks, and the other.
// It gives the share of waits in which both looked.
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

func TestAReaderOfAServerLooksOnlyWhileItIsAloneInWaiting(t *testing.T) {
	var a, b habit
	l := NewSoloLookout()
	require.False(t, l.alone(&a), "nobody is known yet")
	require.True(t, l.alone(&a))
	require.True(t, l.alone(&a))
	require.False(t, l.alone(&b))
	require.False(t, l.alone(&a))
	require.True(t, l.alone(&a))
	require.True(t, NewLookout().alone(&a), "readers of a network do not care")
}
