package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// school is processes that train in a team while they are killed and others come.
type school struct {
	t       *testing.T
	lesson  lesson
	st      store.Store
	procs   []*proctest.Proc
	ready   []bool // by rank: it has the state
	came    chan int
	told    []report // of those who were killed, and at the end of all
	kills   int
	leaders int // of the rendezvous, among those killed
}

func newSchool(t *testing.T, size, founders int, l lesson) *school {
	t.Helper()
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: server.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	l.Place = workload.Place{
		Store: server.Addr(), World: "0/", Size: founders, Token: transport.NewToken(), Lanes: []string{transport.LaneLocal, transport.LaneQUIC},
	}
	s := &school{t: t, lesson: l, st: store.NewPrefix(meeting, st), procs: make([]*proctest.Proc, size), ready: make([]bool, size), came: make(chan int, 1024)}
	for rank := range founders {
		s.start(rank, false)
	}
	for range founders {
		s.ready[<-s.came] = true
	}
	return s
}

// start starts a student, who is at work some time later.
func (s *school) start(rank int, comes bool) {
	l := s.lesson
	l.Place.Rank, l.Comes = rank, comes
	p := proctest.Start(s.t, nil)
	s.procs[rank] = p
	go func() {
		c, cancel := context.WithTimeout(s.t.Context(), patience)
		defer cancel()
		if err := p.Ask(c, "enrol", l, nil); err != nil {
			s.t.Errorf("rank %d: %v", rank, err)
		}
		s.came <- rank
	}()
}

// arrivals notes who has come, and waits until so many are at work.
func (s *school) arrivals(atLeast int) {
	for {
		n := 0
		for _, r := range s.ready {
			if r {
				n++
			}
		}
		if n >= atLeast {
			select {
			case rank := <-s.came:
				s.ready[rank] = true
			default:
				return
			}
			continue
		}
		s.ready[<-s.came] = true
	}
}

// victim is somebody at work: the leader of the rendezvous where that is wanted and known.
func (s *school) victim(leader bool) int {
	if leader {
		if view, err := rdzv.Look(s.t.Context(), s.st); err == nil {
			for rank, p := range s.procs {
				if s.ready[rank] && view.Leader == nodeName(rank, p.PID()) {
					s.leaders++
					return rank
				}
			}
		}
	}
	for {
		if rank := rand.IntN(len(s.procs)); s.ready[rank] {
			return rank
		}
	}
}

// until waits until those at work have made a step.
func (s *school) until(step uint64) (now uint64) {
	c, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	require.NoError(s.t, s.procs[slices.Index(s.ready, true)].Ask(c, "until", step, &now))
	return now
}

// kill kills somebody at a random moment of a step, and has another one come.
func (s *school) kill(leader bool) {
	time.Sleep(time.Duration(rand.Int64N(int64(s.lesson.Pace)))) // any moment will do
	rank := s.victim(leader)
	c, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var r report
	require.NoError(s.t, s.procs[rank].Ask(c, "tell", nil, &r))
	s.told = append(s.told, r)
	s.procs[rank].Kill()
	s.ready[rank] = false
	s.kills++
	s.start(rank, true)
}

// undisturbed is the losses of one process.
func undisturbed(t *testing.T, l lesson, steps uint64) (losses []float64) {
	t.Helper()
	l.Away = min(l.Away, 1) // nobody waits for it
	x, err := newLearner(l)
	require.NoError(t, err)
	for step := range steps {
		loss, err := x.loss(t.Context(), x.rows().Of(step, 0, 1))
		require.NoError(t, err)
		v, err := loss.Item()
		require.NoError(t, err)
		losses = append(losses, v)
		grads, err := autodiff.Backward(loss)
		require.NoError(t, err)
		require.NoError(t, x.opt.Step(grads.All()))
		loss.Owner().Free()
	}
	return losses
}

// end compares what all have made with a run that nothing disturbed.
func (s *school) end() string {
	t := s.t
	s.arrivals(len(s.procs))
	c, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	steps := uint64(0)
	for _, p := range s.procs {
		var made uint64
		require.NoError(t, p.Ask(c, "pause", nil, &made))
		steps = max(steps, made+25)
	}
	for _, p := range s.procs {
		require.NoError(t, p.Ask(c, "stop", steps, nil))
	}
	want := undisturbed(t, s.lesson, steps)
	digests := map[float64]bool{}
	for rank, p := range s.procs {
		var r report
		require.NoError(t, p.Ask(c, "graduate", nil, &r))
		require.Empty(t, r.Err, "rank %d", rank)
		s.told = append(s.told, r)
		digests[r.Digest] = true
	}
	require.Len(t, digests, 1, "all have the same parameters")
	made, furthest, again := make([]bool, len(want)), 0.0, 0
	var stood, took []time.Duration
	for _, r := range s.told {
		if took = append(took, r.Took...); r.Stuck != "" {
			t.Log(r.Stuck)
		}
		for i, loss := range r.Losses {
			made[int(r.First)+i] = true
			furthest = max(furthest, loss-want[int(r.First)+i], want[int(r.First)+i]-loss)
		}
		for _, change := range r.Changes {
			again += change.Again
			if len(change.Lost) > 0 {
				stood = append(stood, change.Stood)
			}
		}
	}
	require.Less(t, furthest, 1e-5)
	lost := 0
	for _, there := range made {
		if !there {
			lost++
		}
	}
	slices.Sort(stood)
	if len(stood) == 0 {
		stood = append(stood, 0)
	}
	return fmt.Sprintf("%d steps, %d kills (%d of the rendezvous' leader): no loss is further than %.2g from the undisturbed run's; "+
		"from knowing of a loss to the next step %v (median), %v (9 of 10), %v (at most); no step took longer than %v; %d rows computed again; %d steps lost",
		steps, s.kills, s.leaders, furthest, stood[len(stood)/2], stood[len(stood)*9/10], stood[len(stood)-1], slices.Max(took), again, lost)
}

// TestATeamTrainsOnWhileItsProcessesAreKilled kills one of four processes every ten steps, and
// every fourth time the one that leads a rendezvous; another one comes each time. It is 4 kills,
// and with WEFT_SOAK 200 in 2,000 steps.
func TestATeamTrainsOnWhileItsProcessesAreKilled(t *testing.T) {
	t.Parallel()
	kills, pace := 4, 20*time.Millisecond
	if os.Getenv("WEFT_SOAK") != "" {
		kills, pace = 200, 80*time.Millisecond // so that newcomers are there in time
	}
	s := newSchool(t, 4, 4, lesson{Pace: pace, Inputs: 24, Hidden: 32})
	for i := range kills {
		s.until(uint64(10*i + 5))
		s.arrivals(3) // three or four are at work
		s.kill(i%4 == 3)
	}
	said := s.end()
	t.Log(said)
	require.Contains(t, said, " 0 steps lost")
}

// TestANewcomerWithALargeStateComesWhileTheOthersTrain has one come to two while these train, which
// compute their rows themselves, or have them computed elsewhere. It tells how long their steps
// took, and their processors, before, while the newcomer got the state, and with it: 3 MB, and with
// WEFT_SOAK 100 MB.
func TestANewcomerWithALargeStateComesWhileTheOthersTrain(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"rows of their own": 0, "rows computed elsewhere": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hidden, batch, pace, steps := 1000, 6, 20*time.Millisecond, uint64(20) // the race detector makes products slow
			if os.Getenv("WEFT_SOAK") != "" {
				hidden, batch, pace = 32500, 48, time.Second // 8.4 million parameters, and twice as many numbers of AdamW
			} else {
				away /= 50
			}
			t.Log(comes(t, lesson{Pace: pace, Away: away, Inputs: 252, Hidden: hidden, Batch: batch}, steps))
		})
	}
}

// comes has somebody come after so many steps.
func comes(t *testing.T, l lesson, steps uint64) string {
	s := newSchool(t, 3, 2, l)
	s.until(steps)
	s.start(2, true)
	s.end()
	first, guest := s.told[0], s.told[2]
	came := slices.IndexFunc(first.Changes, func(c resilient.Change) bool { return len(c.Came) > 0 })
	require.GreaterOrEqual(t, came, 0)
	from, to := first.Changes[came].Step-1, guest.First
	figures := func(took []time.Duration) string {
		sorted, sum := slices.Sorted(slices.Values(took)), time.Duration(0)
		for _, x := range took {
			sum += x
		}
		round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
		return fmt.Sprintf("%v (median; %v to %v; mean %v)", round(sorted[len(sorted)/2]), round(sorted[0]), round(sorted[len(sorted)-1]), round(sum/time.Duration(len(took))))
	}
	return fmt.Sprintf("steps 5 to %d took %s, and %s of processors; steps %d to %d, while the newcomer got the state, %s, and %s; "+
		"later ones, of three, %s, and %s; the newcomer used %v until it had the state",
		from, figures(first.Took[5:from]), figures(first.Used[5:from]), from, to, figures(first.Took[from:to]), figures(first.Used[from:to]),
		figures(first.Took[to:]), figures(first.Used[to:]), guest.Coming)
}
