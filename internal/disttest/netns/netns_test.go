//go:build netns && linux

package netns

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lossy is a path of 50 ms each way, of which every twentieth packet is lost.
var lossy = Path{Delay: 50 * time.Millisecond, Loss: 0.05}

func TestResultsAreRightOverALossySlowPath(t *testing.T) {
	l := found(t, lossy)
	l.all(t, func(i int) error {
		var steps int
		return l.hosts[i].Ask(t.Context(), "mix", mixing{Seed: uint64(i), Steps: 40, MaxElems: 16 << 10}, &steps)
	})
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
	t.Logf("%+v", l.Stats())
}

func TestThroughputBesideTCPs(t *testing.T) {
	for name, p := range map[string]Path{"delay": {Delay: lossy.Delay}, "delay and loss": lossy} {
		t.Run(name, func(t *testing.T) {
			l := found(t, p)
			size := 8 << 20
			if p.Loss > 0 {
				size = 1 << 20
			}
			var sink string
			var tcp, weft time.Duration
			require.NoError(t, l.hosts[1].Ask(t.Context(), "sink", hostAddr(1)+":0", &sink))
			require.NoError(t, l.hosts[0].Ask(t.Context(), "send", sending{"worker1", size}, &weft))
			require.NoError(t, l.hosts[0].Ask(t.Context(), "pour", sending{sink, size}, &tcp))
			t.Logf("%d MiB: Weft %v (%.3g MB/s), TCP %v (%.3g MB/s)", size>>20, weft, rate(size, weft), tcp, rate(size, tcp))
			l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
		})
	}
}

func rate(bytes int, d time.Duration) float64 { return float64(bytes) / 1e6 / d.Seconds() }

func TestAPartitionOfASecondHealsWithoutAnError(t *testing.T) {
	good := Path{Delay: 5 * time.Millisecond}
	l := found(t, good)
	go func() { // the mix goes on for longer than this
		for range 2 {
			time.Sleep(time.Second)
			l.Set(Path{Cut: true})
			time.Sleep(time.Second)
			l.Set(good)
		}
	}()
	l.all(t, func(i int) error {
		return l.hosts[i].Ask(t.Context(), "mix", mixing{Seed: uint64(i), For: 6 * time.Second, MaxElems: 16 << 10}, nil)
	})
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
}

// detection is within what time a silent peer must count as lost by default.
const detection = 3 * time.Second

func TestALongPartitionIsNoticedOnAllSidesAndTheWorkersCanJoinAgain(t *testing.T) {
	good := Path{Delay: 5 * time.Millisecond}
	l := found(t, good)
	cut := make(chan time.Time, 1)
	go func() {
		time.Sleep(time.Second) // until the calls are there
		l.Set(Path{Cut: true})
		cut <- time.Now()
	}()
	var ends [hosts]ending
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "pending", name((i+1)%hosts), &ends[i]) })
	at := <-cut
	for i, e := range ends {
		t.Logf("%s: %v after the cut: %s", name(i), e.At.Sub(at), e.Text)
		require.True(t, e.Lost, e.Text)
		require.Contains(t, e.Text, name((i+1)%hosts))
		require.Less(t, e.At.Sub(at), detection)
	}
	time.Sleep(time.Until(at.Add(10 * time.Second)))
	l.Set(good)
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
	l.join(t)
	l.all(t, func(i int) error {
		return l.hosts[i].Ask(t.Context(), "mix", mixing{Seed: uint64(i), Steps: 40, MaxElems: 16 << 10}, nil)
	})
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
}

func TestCancellingACallThreeWorkersDeepCancelsAllThree(t *testing.T) {
	const delay = 50 * time.Millisecond
	l := found(t, Path{Delay: delay})
	var cancelled time.Time
	way := []int{1, 2, 0}
	require.NoError(t, l.hosts[0].Ask(t.Context(), "cancel", []string{name(way[0]), name(way[1]), name(way[2])}, &cancelled))
	for hops, i := range way {
		var at time.Time
		require.NoError(t, l.hosts[i].Ask(t.Context(), "cancelled", nil, &at))
		took := at.Sub(cancelled) // one machine, one clock
		t.Logf("%s, %d hops away: %v", name(i), hops+1, took)
		require.Less(t, took, time.Duration(hops+1)*delay+100*time.Millisecond)
	}
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
}
