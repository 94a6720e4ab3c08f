package elastic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

func at(second int) time.Time { return time.Unix(1_000_000+int64(second), 0) }

func TestAJobWhoseWorkersAllSucceedGivesNoOrders(t *testing.T) {
	g := newGroup(3, 30*time.Second)
	for rank := range 3 {
		require.False(t, g.done())
		require.Empty(t, g.exited(at(rank), rank, status{}, false, "").orders)
	}
	require.True(t, g.done())
	require.False(t, g.stopping)
	require.Equal(t, -1, g.first)
}

func TestTheFirstFailureStopsTheOthersAndLaterOnesChangeNothing(t *testing.T) {
	g := newGroup(4, 30*time.Second)
	require.Empty(t, g.exited(at(0), 3, status{}, false, "").orders)
	d := g.exited(at(5), 2, status{code: 3}, false, "worker2 exited with code 3")
	require.Equal(t, []order{{rank: 0}, {rank: 1}}, d.orders)
	require.Equal(t, "worker2 exited with code 3; stopping 2 workers", d.reason)
	require.Equal(t, at(35), g.deadline)
	require.Empty(t, g.exited(at(6), 0, status{code: 1}, false, "worker0 exited with code 1").orders)
	require.Equal(t, 2, g.first)

	require.Empty(t, g.expire(at(34)).orders, "a second too early")
	d = g.expire(at(35))
	require.Equal(t, []order{{rank: 1, kill: true}}, d.orders)
	require.Equal(t, "1 worker did not end within 30s of SIGTERM; killing", d.reason)
	require.Empty(t, g.expire(at(36)).orders, "killing once is enough")
	g.exited(at(36), 1, status{code: 137, signal: 9}, false, "")
	require.True(t, g.done())
}

func TestASparedFailureGivesNoOrdersAndTheNextOneDoes(t *testing.T) {
	g := newGroup(3, time.Second)
	d := g.exited(at(0), 1, status{code: 137, signal: 9}, true, "worker1 was killed")
	require.Empty(t, d.orders)
	require.Equal(t, "worker1 was killed; 2 workers left", d.reason)
	require.Equal(t, -1, g.first)
	require.False(t, g.stopping)
	require.Equal(t, []order{{rank: 2}}, g.exited(at(1), 0, status{code: 1}, false, "worker0 exited with code 1").orders)
	require.Equal(t, 0, g.first)
}

func TestAFailureAfterARequestToStopIsNotTheCause(t *testing.T) {
	g := newGroup(2, time.Second)
	require.Equal(t, []order{{rank: 0}, {rank: 1}}, g.stop(at(0), "interrupted").orders)
	require.Empty(t, g.stop(at(0), "interrupted again").orders)
	require.Empty(t, g.exited(at(1), 0, status{code: 143, signal: 15}, false, "").orders)
	require.Empty(t, g.exited(at(1), 0, status{code: 1}, false, "").orders, "a worker ends once")
	require.False(t, g.done())
	require.Equal(t, -1, g.first)
}

func TestTheLastWorkersFailureNeedsNoOrders(t *testing.T) {
	g := newGroup(1, time.Second)
	require.Equal(t, decision{}, g.exited(at(0), 0, status{code: 1}, false, "worker0 exited with code 1"))
	require.Equal(t, 0, g.first)
	require.True(t, g.done())
}

// simulated is a worker of the random test: when it ends by itself, how, and whether it heeds SIGTERM.
type simulated struct {
	ends  int // second; -1 never
	code  int
	heeds int // seconds from SIGTERM to its end; -1 ignores it
}

func TestEveryRandomJobEndsAndBlamesTheEarliestFailure(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range soak.Cases(2000) {
		workers := make([]simulated, 1+r.IntN(6))
		for k := range workers {
			workers[k] = simulated{ends: r.IntN(20) - 1, code: r.IntN(3) / 2, heeds: r.IntN(8) - 1}
		}
		stopAt := r.IntN(30)
		simulate(t, workers, 1+r.IntN(5), stopAt, fmt.Sprintf("seed %d case %d: %+v stop %d", seed, i, workers, stopAt))
	}
}

// simulate plays a job second by second, and holds the group against what can be read off the workers directly.
func simulate(t *testing.T, workers []simulated, grace, stopAt int, what string) {
	g := newGroup(len(workers), time.Duration(grace)*time.Second)
	first, begin := -1, stopAt // the oracle: who fails first, and when stopping begins
	for k, w := range workers {
		if w.code != 0 && w.ends >= 0 && w.ends <= begin && (first < 0 || w.ends < workers[first].ends) {
			first, begin = k, w.ends
		}
	}
	termed, killed := map[int]int{}, map[int]bool{}
	var now int
	obey := func(d decision) {
		for _, o := range d.orders {
			require.True(t, g.alive[o.rank], "%s: an order to the dead", what)
			require.GreaterOrEqual(t, now, begin, "%s: an order before anything happened", what)
			if !o.kill {
				termed[o.rank] = now
				continue
			}
			require.GreaterOrEqual(t, now-termed[o.rank], grace, "%s: killed within the grace", what)
			killed[o.rank] = true
		}
	}
	for now = 0; !g.done(); now++ {
		require.LessOrEqual(t, now, begin+grace+1, "%s: the job does not end", what)
		for k, w := range workers {
			since, asked := termed[k]
			switch {
			case !g.alive[k]:
			case killed[k]:
				obey(g.exited(at(now), k, status{code: 137, signal: 9}, false, ""))
			case w.ends == now:
				obey(g.exited(at(now), k, status{code: w.code}, false, "failed"))
			case asked && w.heeds >= 0 && now >= since+w.heeds:
				obey(g.exited(at(now), k, status{code: 143, signal: 15}, false, ""))
			}
		}
		if now == stopAt {
			obey(g.stop(at(now), "stop"))
		}
		obey(g.expire(at(now)))
	}
	require.Equal(t, first, g.first, what)
	require.True(t, g.deadline.IsZero(), what)
}
