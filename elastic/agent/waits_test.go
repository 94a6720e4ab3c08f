package agent

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

func TestWhatANodeWaitsForIsSaid(t *testing.T) {
	sum := func(phase rdzv.Phase, nodes, round int) rdzv.Summary {
		return rdzv.Summary{Phase: phase, Nodes: nodes, Round: round, Min: 3, Max: 4}
	}
	for want, s := range map[string]standing{
		"waiting for the store at h:1, job j, 12 s of 600 s":                                                             {placed: -1},
		"waiting for the store at h:1, job j, 12 s of 600 s: nobody is there":                                            {placed: -1, err: errors.New("nobody is there")},
		"waiting for the rendezvous at h:1, job j, 12 s of 600 s":                                                        {placed: -1, joined: true},
		"waiting for 1 more node at h:1, job j, 12 s of 600 s":                                                           {placed: -1, joined: true, known: true, sum: sum(rdzv.Gathering, 2, 0)},
		"waiting for 3 more nodes at h:1, job j, 12 s of 600 s":                                                          {placed: 4, joined: true, known: true, sum: sum(rdzv.Gathering, 0, 5)},
		"1 node is at h:1, job j; the round begins when there are 4, or 30 s after the last that was needed has come":    {placed: -1, joined: true, known: true, sum: rdzv.Summary{Phase: rdzv.Gathering, Nodes: 1, Min: 1, Max: 4}},
		"3 nodes are at h:1, job j; the round begins when there are 4, or 30 s after the last that was needed has come":  {placed: -1, joined: true, known: true, sum: sum(rdzv.Gathering, 3, 0)},
		"waiting for the next round at h:1, job j, 12 s of 600 s":                                                        {placed: -1, joined: true, known: true, sum: sum(rdzv.Complete, 3, 1)},
		"this node is redundant: 4 of 4 nodes take part at h:1, job j; it steps in when one of them is gone":             {placed: -1, joined: true, known: true, spare: true, sum: sum(rdzv.Complete, 4, 1)},
		"waiting for 1 more node at h:1, job j, 12 s of 600 s (other jobs meet there, too: k; is the id the right one?)": {placed: -1, joined: true, known: true, sum: sum(rdzv.Gathering, 2, 0), others: []string{"k"}},
	} {
		require.True(t, s.waiting())
		require.Equal(t, want, s.text("h:1, job j", 12*time.Second, 600*time.Second, 30*time.Second))
	}
	for _, s := range []standing{{placed: 1, known: true, sum: sum(rdzv.Complete, 3, 1)}, {placed: -1, over: true}, {placed: -1, known: true, sum: sum(rdzv.Closed, 0, 0)},
		{placed: 1, known: true, sum: sum(rdzv.Gathering, 3, 1)}} { // the last one is of a bulletin that is late
		require.False(t, s.waiting(), "%+v", s)
	}
}

func TestANodeThatWaitsSaysSoAfterSomeSecondsAndThenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		st := store.NewMemory()
		require.NoError(t, st.Set(t.Context(), "rdzv/another/leader", nil))
		var mu sync.Mutex
		var said []time.Duration
		var last string
		say := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			said, last = append(said, time.Since(start).Round(time.Second)), text
		}
		spec := Spec{MinNodes: 2, NprocPerNode: 1, RunID: "j", Endpoint: "h:1", LocalAddr: "here", Meet: func(context.Context) (store.Store, error) { return st, nil }}.populate()
		m, err := meet(t.Context(), &spec, say, nil)
		require.NoError(t, err)
		defer m.leave()
		time.Sleep(5*time.Minute + time.Second/2)
		mu.Lock()
		defer mu.Unlock()
		seconds := time.Second
		require.Equal(t, []time.Duration{3 * seconds, 10 * seconds, 30 * seconds, 60 * seconds, 120 * seconds, 180 * seconds, 240 * seconds, 300 * seconds}, said[:8])
		require.Equal(t, "waiting for 1 more node at h:1, job j, 300 s of 600 s (other jobs meet there, too: another; is the id the right one?)", last)
	})
}

func TestALineThatSaysNothingNewIsNotSaidAgain(t *testing.T) {
	start := time.Now()
	w := &waits{endpoint: "h:1", job: "j", since: start,
		what: standing{placed: -1, joined: true, known: true, sum: rdzv.Summary{Phase: rdzv.Gathering, Nodes: 2, Min: 2, Max: 4}}}
	after := func(s int) string { return w.line(t.Context(), start.Add(time.Duration(s)*time.Second)) }
	require.Contains(t, after(3), "2 nodes are at h:1")
	require.Empty(t, after(10))
	w.what.sum.Nodes = 3
	require.Contains(t, after(30), "3 nodes are at h:1")
	w.what.placed, w.what.sum.Phase = 0, rdzv.Complete
	require.Empty(t, after(40))
	w.what.placed, w.what.sum.Phase = -1, rdzv.Gathering
	require.Contains(t, after(60), "3 nodes are at h:1", "it waits anew")
}

// severed is a store that cannot be reached while it is down.
type severed struct {
	store.Store
	down *atomic.Bool
}

func (s severed) Set(c context.Context, k string, v []byte) error {
	if s.down.Load() {
		return store.ErrUnreachable
	}
	return s.Store.Set(c, k, v)
}

func TestANodeThatWaitsSaysNothingWhileTheRendezvousIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		st := severed{store.NewMemory(), new(atomic.Bool)}
		var mu sync.Mutex
		var said []time.Duration
		say := func(string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, time.Since(start).Round(time.Second))
		}
		spec := Spec{MinNodes: 2, NprocPerNode: 1, RunID: "j", Endpoint: "h:1", LocalAddr: "here", Meet: func(context.Context) (store.Store, error) { return st, nil }}.populate()
		m, err := meet(t.Context(), &spec, say, nil)
		require.NoError(t, err)
		defer m.leave()
		time.Sleep(5 * time.Second)
		st.down.Store(true)
		time.Sleep(40*time.Second + time.Second/2)
		mu.Lock()
		require.Equal(t, []time.Duration{3 * time.Second}, said)
		mu.Unlock()
		st.down.Store(false)
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Greater(t, len(said), 1)
	})
}

func TestAnEndpointThatSaysNothingIsSaidToBeNoStore(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	spec := job(t, "stay", 1)
	spec.MinNodes, spec.Endpoint, spec.JoinTimeout = 2, l.Addr().String(), 300*time.Millisecond
	_, err = run(t, t.Context(), spec)
	require.ErrorContains(t, err, "the rendezvous at "+spec.Endpoint+": something listens there that does not answer as a store")
}

func TestANodeSaysAtOnceThatItsEndpointIsTakenByWhatIsNoStore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	spec := job(t, "stay", 1)
	spec.MinNodes, spec.RunID, spec.Endpoint, spec.JoinTimeout = 2, "j", l.Addr().String(), 3600*time.Millisecond
	out := &proctest.Output{}
	spec.Stderr = out
	_, err = run(t, t.Context(), spec)
	why := ": something listens there that does not answer as a store, and it is on this machine: end it, or take another port"
	require.ErrorContains(t, err, "the rendezvous at "+spec.Endpoint+why)
	for _, at := range []string{"2", "3"} {
		require.Contains(t, out.String(), "weft: waiting for the store at "+spec.Endpoint+", job j, "+at+" s of 4 s"+why)
	}
}

func TestANodeHostsTheRendezvousOnceItsPortIsFree(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", proctest.Address())
	require.NoError(t, err)
	var say sync.Once
	spec := job(t, "stay", 1)
	spec.MinNodes, spec.RunID, spec.Endpoint = 2, "j", l.Addr().String()
	spec = spec.populate()
	m, err := meet(t.Context(), &spec, func(string) { say.Do(func() { _ = l.Close() }) }, nil)
	require.NoError(t, err)
	defer m.leave()
	require.True(t, m.hosts)
}

func TestANodeThatFindsTheEndOfAnEarlierRunSaysSo(t *testing.T) {
	t.Parallel()
	under := store.NewMemory()
	spec := job(t, "stay", 1)
	spec.RunID, spec.Endpoint, spec.Stays = "j", "h:1", 5*time.Minute
	spec.Meet = func(context.Context) (store.Store, error) { return store.NewPrefix("all", under), nil }
	meets := func(change func(*Spec)) error {
		spec := spec
		change(&spec)
		_, err := run(t, t.Context(), spec)
		return err
	}
	end := func(s *Spec) { s.Env = append(s.Env, "WEFT_TEST_WORKER=no part") }
	first := meets(end)
	require.NotContains(t, first.Error(), "earlier")
	for _, change := range []func(*Spec){end, func(s *Spec) { s.MaxRestarts = 7 }} { // also with other settings
		err := meets(change)
		require.ErrorIs(t, err, rdzv.ErrClosed)
		require.ErrorIs(t, err, ErrEarlier)
		require.Regexp(t, `^this id is of an earlier run: job j at h:1 ended \d+s ago, before this node came \(the rendezvous is closed: worker 0 of .* exit(ed)? .*99.*\); `+
			`what it has left there is gone 5 minutes after its end at most: until then take another id \(--rdzv-id\)$`, err.Error())
	}
	other := meets(func(s *Spec) { end(s); s.RunID = "k" })
	require.NotContains(t, other.Error(), "earlier")
}

func TestOfTwoNodesWithOneNodeRankTheSecondIsRefusedWithTheFirstOnesName(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.MaxNodes, s.WantRank = 1, 2, 1 })
	first := w.start(0)
	w.out.Await(t, "] here ", 1)
	w.start(1)
	require.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.ends) == 1 }, 20*time.Second, 5*time.Millisecond)
	first(errTestStop)
	w.runs.Wait()
	require.ErrorIs(t, w.ends[1], rdzv.ErrTaken)
	require.ErrorContains(t, w.ends[1], "refuses this node, as another has the same node rank (--node-rank): node rank 0 is taken by 127.")
	require.ErrorContains(t, w.ends[1], "if that is gone for good, it is free in 15s at most")
}

func TestANodeThatWaitedInVainSaysWhereHowManyCameAndWhatToDo(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "wait", 1, func(s *Spec) { s.MinNodes, s.MaxNodes, s.JoinTimeout = 2, 3, 2*time.Second })
	w.start(0)
	w.runs.Wait()
	require.ErrorIs(t, w.ends[0], rdzv.ErrTimeout)
	require.ErrorContains(t, w.ends[0], "there are 1 of the 2 nodes that are needed; they meet at "+w.spec.Endpoint+", job "+w.spec.RunID+
		": start at least 2 nodes (--nnodes) with the same --rdzv-endpoint and --rdzv-id, or give them more time (--rdzv-conf join_timeout=SECONDS)")
}
