package agent

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/soak"
)

func at(second int) time.Time { return time.Unix(1_000_000+int64(second), 0) }

// begun is a node whose workers run in a first round.
func begun(t *testing.T, workers int) *node {
	n := newNode(workers, 30*time.Second)
	require.Equal(t, decision{clear: true}, n.coming(at(0), rdzv.Placement{}, "", nobody))
	d := n.placed(rdzv.Placement{})
	require.Len(t, d.orders, workers)
	return n
}

// nobody and everybody are deaf to their places.
func nobody(int) bool    { return false }
func everybody(int) bool { return true }

func TestANodeWhoseWorkersAllSucceedSaysSoOnceAndIsDoneWhenTheJobIs(t *testing.T) {
	n := begun(t, 3)
	for i := range 3 {
		d := n.exited(i, process.Status{}, false, false, "")
		require.Equal(t, i == 2, d.done)
		require.Empty(t, d.orders)
	}
	require.False(t, n.done())
	require.Empty(t, n.end(at(9), "the job is over").orders)
	require.True(t, n.done())
}

func TestAFailureIsToldAndNothingIsStoppedBeforeTheAnswer(t *testing.T) {
	n := begun(t, 3)
	d := n.exited(2, process.Status{Code: 3}, false, false, "worker2 exited with code 3")
	require.Equal(t, decision{fail: &failed{2, 1, "worker2 exited with code 3"}}, d)
	d = n.restart(1, rdzv.Placement{Restarts: 1})
	require.Equal(t, []order{{2, launch}}, d.orders)
	d = n.exited(2, process.Status{Code: 3}, false, false, "again")
	require.Equal(t, &failed{2, 2, "again"}, d.fail)
	d = n.end(at(5), "worker2 failed")
	require.Equal(t, []order{{0, terminate}, {1, terminate}}, d.orders)
	require.Equal(t, "worker2 failed; stopping 2 workers", d.reason)
	require.Empty(t, n.restart(2, rdzv.Placement{}).orders, "too late")

	require.Empty(t, n.expire(at(34)).orders, "a second too early")
	require.Empty(t, n.exited(0, process.Status{Code: 143, Signal: 15}, false, false, "").fail, "what is stopped has not failed")
	d = n.expire(at(35))
	require.Equal(t, []order{{1, kill}}, d.orders)
	require.Equal(t, "1 worker did not end within 30s of SIGTERM; killing", d.reason)
	require.Empty(t, n.expire(at(36)).orders, "killing once is enough")
	n.exited(1, process.Status{Code: 137, Signal: 9}, false, false, "")
	require.True(t, n.done())
	require.Equal(t, broken, n.workers[2].phase)
}

func TestAnAbortKillsWhatRunsWithoutGraceAndNothingStartsAfterIt(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		n := begun(t, 3)
		n.exited(1, process.Status{}, false, false, "")
		if stopped {
			n.end(at(1), "over")
		}
		d := n.abort("enough")
		require.Equal(t, decision{orders: []order{{0, kill}, {2, kill}}, reason: "enough; killing 2 workers"}, d)
		require.Empty(t, n.expire(at(99)).orders)
		require.Empty(t, n.coming(at(2), rdzv.Placement{Round: 1, Restart: true}, "", nobody))
		require.Empty(t, n.placed(rdzv.Placement{Round: 1, Restart: true}))
		n.exited(0, process.Status{Code: 137, Signal: 9}, false, false, "")
		n.exited(2, process.Status{Code: 137, Signal: 9}, false, false, "")
		require.True(t, n.done())
		require.Empty(t, n.abort("enough"))
	}
}

func TestASparedFailureIsAGoodEnd(t *testing.T) {
	n := begun(t, 2)
	d := n.exited(1, process.Status{Code: 137, Signal: 9}, true, false, "worker1 was killed")
	require.Equal(t, decision{reason: "worker1 was killed; 1 worker left"}, d)
	require.True(t, n.exited(0, process.Status{}, false, false, "").done)
	require.Equal(t, well, n.workers[1].phase)
}

func TestInANewRoundWorkersThatRunGoOnAndAllOthersStartAgain(t *testing.T) {
	n := begun(t, 3)
	n.exited(0, process.Status{Code: 1}, false, false, "")
	n.exited(1, process.Status{}, false, false, "")
	require.Equal(t, decision{clear: true, reason: "round 1: starting 2 workers again; the others called elastic.Join and go on: a node joins"},
		n.coming(at(1), rdzv.Placement{Round: 1}, "a node joins", nobody))
	require.Empty(t, n.restart(1, rdzv.Placement{}), "the place that is coming starts it")
	require.Equal(t, []order{{0, launch}, {1, launch}}, n.placed(rdzv.Placement{Round: 1}).orders)
	require.Empty(t, n.restart(1, rdzv.Placement{}).orders, "the leave comes after the round: it runs already")
}

func TestANodeThatHasAPlaceInANewRoundThoughAllItsWorkersHadEndedWellStartsThemAgain(t *testing.T) {
	n := begun(t, 2)
	n.exited(0, process.Status{}, false, false, "")
	require.True(t, n.exited(1, process.Status{}, false, false, "").done)
	require.Equal(t, decision{clear: true, reason: "round 1: starting all workers again: a node joins"}, n.coming(at(1), rdzv.Placement{Round: 1}, "a node joins", nobody))
	require.Equal(t, []order{{0, launch}, {1, launch}}, n.placed(rdzv.Placement{Round: 1}).orders)
	require.Empty(t, n.coming(at(2), rdzv.Placement{Round: 2}, "a node joins", nobody).orders)
	n.exited(0, process.Status{}, false, true, "")
	require.False(t, n.exited(1, process.Status{}, false, false, "").done, "the next round has formed, and counts on them")
	require.Equal(t, []order{{0, launch}, {1, launch}}, n.placed(rdzv.Placement{Round: 2}).orders)
}

func TestAWorkerThatEndsWellBeforeItHearsOfItsPlaceStartsAgainInIt(t *testing.T) {
	n := begun(t, 2)
	n.coming(at(1), rdzv.Placement{Round: 1}, "", nobody)
	require.Empty(t, n.placed(rdzv.Placement{Round: 1}))
	require.Equal(t, decision{orders: []order{{1, launch}}, reason: "worker1 ended, and had not heard of its place in round 1: starting it again"},
		n.exited(1, process.Status{}, false, true, "worker1 ended"))
	require.Equal(t, 2, n.left)
	require.Empty(t, n.exited(1, process.Status{}, false, false, ""), "it knew this place")
	require.Equal(t, &failed{0, 1, "worker0 failed"}, n.exited(0, process.Status{Code: 1}, false, true, "worker0 failed").fail, "a failure is one")
	require.Len(t, n.restart(1, rdzv.Placement{Round: 1}).orders, 1)
	require.Equal(t, decision{done: true, reason: "worker0 was killed; 0 workers left"}, n.exited(0, process.Status{Code: 1}, true, true, "worker0 was killed"))
}

func TestARestartOfTheGroupStopsAllAndStartsAllWhenNoneRunsOnAnyNode(t *testing.T) {
	n := begun(t, 2)
	n.exited(0, process.Status{Code: 1}, false, false, "")
	d := n.coming(at(1), rdzv.Placement{Round: 1, Restart: true, Restarts: 1, MaxRestarts: 3}, "", nobody)
	require.Equal(t, "round 1: starting all workers again: restart 1 of 3; stopping 1 worker", d.reason)
	require.Equal(t, []order{{1, terminate}}, d.orders)
	require.False(t, d.clear)
	require.Equal(t, idle, n.workers[0].phase, "its failure has had its restart, and does not end the job")
	require.Equal(t, decision{reason: "round 2: starting all workers again: node c joins"}, n.coming(at(2), rdzv.Placement{Round: 2, Restart: true}, "node c joins", nobody), "it is under way")
	require.Equal(t, decision{clear: true}, n.exited(1, process.Status{Code: 143, Signal: 15}, false, false, ""))
	require.Equal(t, []order{{0, launch}, {1, launch}}, n.placed(rdzv.Placement{Round: 2, Restart: true}).orders)
	require.Equal(t, 2, n.place.Round)
	require.Empty(t, n.expire(at(100)).orders)
	require.Equal(t, "round 3: starting all workers again: node b joins; stopping 2 workers", n.coming(at(3), rdzv.Placement{Round: 3, Restart: true}, "node b joins", nobody).reason)
}

func TestInANewRoundWorkersThatAreDeafToTheirPlacesStartAgainAndTheOthersGoOn(t *testing.T) {
	n := begun(t, 4)
	n.exited(0, process.Status{}, false, false, "")
	n.exited(1, process.Status{}, false, false, "")
	deaf := func(i int) bool { return i%2 == 0 }
	d := n.coming(at(1), rdzv.Placement{Round: 1}, "node b joins", deaf)
	require.Equal(t, decision{orders: []order{{2, terminate}},
		reason: "round 1: starting 3 workers again; the others called elastic.Join and go on: node b joins; stopping 1 worker"}, d)
	require.Empty(t, n.expire(at(30)))
	require.Equal(t, []order{{2, kill}}, n.expire(at(31)).orders, "who goes on is left alone")
	require.Equal(t, "w3", n.exited(3, process.Status{Code: 1}, false, false, "w3").fail.why, "who goes on may fail meanwhile")
	require.Equal(t, decision{clear: true}, n.exited(2, process.Status{Code: 1}, false, false, "w2"), "what is stopped has not failed")
	require.Len(t, n.placed(rdzv.Placement{Round: 1}).orders, 4)
}

func TestANodeThatTheOthersHaveLostEndsItsWorkersThatAreDeafToTheirPlaces(t *testing.T) {
	require.Empty(t, newNode(1, time.Second).outside(at(0), everybody), "it had no place")
	n := begun(t, 2)
	require.Empty(t, n.outside(at(1), nobody))
	d := n.outside(at(1), everybody)
	require.Equal(t, []order{{0, terminate}, {1, terminate}}, d.orders)
	require.Equal(t, "round 0: starting all workers again: it is over, and this node has no place in the next one yet; stopping 2 workers", d.reason)
	require.Empty(t, n.exited(0, process.Status{Code: 1}, false, false, ""))
	require.Equal(t, decision{reason: "round 3: starting all workers again"}, n.coming(at(2), rdzv.Placement{Round: 3}, "", everybody))
	require.Equal(t, decision{clear: true}, n.exited(1, process.Status{}, false, false, ""))
	require.Len(t, n.placed(rdzv.Placement{Round: 3}).orders, 2)
}

func TestAWorkerThatEndsWellWhileItsNodeHasNoPlaceStartsInTheNextOneAndNotBefore(t *testing.T) {
	n := begun(t, 3)
	n.outside(at(1), nobody)
	require.Empty(t, n.exited(0, process.Status{}, false, true, "worker0 ended"), "nobody is where it would start")
	require.Empty(t, n.exited(1, process.Status{}, false, false, "worker1 ended"))
	require.Empty(t, n.exited(2, process.Status{}, false, false, "worker2 ended"), "its node is of no round with which it could be done")
	require.True(t, n.coming(at(2), rdzv.Placement{Round: 2}, "", nobody).clear)
	require.Equal(t, []order{{0, launch}, {1, launch}, {2, launch}}, n.placed(rdzv.Placement{Round: 2}).orders)
	n.exited(0, process.Status{}, false, false, "")
	require.Equal(t, []order{{1, launch}}, n.exited(1, process.Status{}, false, true, "worker1 ended").orders, "it has a place again")
	n.exited(1, process.Status{}, false, false, "")
	require.True(t, n.exited(2, process.Status{}, false, false, "").done)
}

// TestRandomEventsNeverGiveAnOrderThatCannotBe plays rounds, leaves, ends and requests in any
// order.
func TestRandomEventsNeverGiveAnOrderThatCannotBe(t *testing.T) {
	for seed := range uint64(soak.Cases(2000)) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := newNode(1+r.IntN(4), 5*time.Second)
		runs, termed := make([]bool, len(n.workers)), make([]int, len(n.workers))
		now, round, fails, ended, clear := 0, 0, 0, false, false
		var next rdzv.Placement
		obey := func(d decision) {
			what := fmt.Sprintf("seed %d at %d: %+v", seed, now, d)
			for _, o := range d.orders {
				require.Equal(t, o.deed != launch, runs[o.rank], what)
				switch o.deed {
				case launch:
					require.False(t, ended, what)
					runs[o.rank], termed[o.rank] = true, 0
				case terminate:
					termed[o.rank] = now
				case kill:
					require.GreaterOrEqual(t, now-termed[o.rank], 5, what)
					require.NotZero(t, termed[o.rank], what)
				}
			}
			if d.fail != nil {
				fails++
				require.Equal(t, fails, d.fail.nth, what)
			}
			if d.done {
				require.NotContains(t, runs, true, what)
			}
			clear = clear || d.clear
			for i, run := range runs { // what was asked to end by a place that came is not clear
				require.False(t, d.clear && run && termed[i] != 0, what)
			}
		}
		for range 60 {
			now++
			i := r.IntN(len(runs))
			switch k := r.IntN(10); {
			case k == 0:
				round++
				clear = false
				if next = (rdzv.Placement{Round: round, Restart: r.IntN(2) == 0}); !ended {
					obey(n.coming(at(now), next, "", func(int) bool { return r.IntN(2) == 0 }))
				}
			case k == 8 && n.place != nil:
				obey(n.outside(at(now), func(int) bool { return r.IntN(2) == 0 }))
			case k == 9 && clear && n.next != nil:
				obey(n.placed(next))
			case k == 1 && n.place != nil:
				obey(n.restart(r.IntN(fails+1), rdzv.Placement{}))
			case k < 6 && runs[i]:
				runs[i] = false
				obey(n.exited(i, process.Status{Code: r.IntN(2)}, r.IntN(8) == 0, r.IntN(4) == 0, "ended"))
			case k == 7 && r.IntN(20) == 0:
				ended = true
				for _, o := range n.abort("enough").orders { // whatever the grace
					require.Equal(t, kill, o.deed)
					require.True(t, runs[o.rank])
				}
			case k == 6 && r.IntN(8) == 0:
				ended = true
				obey(n.end(at(now), "over"))
			default:
				obey(n.expire(at(now)))
			}
			left := 0
			for _, run := range runs {
				if run {
					left++
				}
			}
			require.Equal(t, left, n.left)
			require.Equal(t, ended && left == 0, n.done())
		}
	}
}
