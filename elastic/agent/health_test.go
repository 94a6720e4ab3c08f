package agent

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

func TestAProbeIsToldHowANodeIsFromItsFirstMomentToItsLast(t *testing.T) {
	t.Parallel()
	spec := job(t, "stay", 2)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	spec.Probe, spec.RunID, spec.MaxRestarts = NewProbe(), "seven", 1
	ask := func() Status {
		c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		s, err := spec.Probe.Ask(c)
		require.NoError(t, err)
		return s
	}
	require.Equal(t, "waits for a place in the job", ask().String())
	require.False(t, ask().Ready())
	c, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := Run(c, spec); ended <- err }()
	out.Await(t, "] here ", 2)
	s := ask()
	require.Less(t, s.Contact.Silent, s.Contact.Patience)
	s.Contact = Contact{}
	require.Equal(t, Status{RunID: "seven", Placed: true, Nodes: 1, World: 2, Workers: 2, Running: 2}, s)
	require.True(t, s.Ready())
	require.Equal(t, "round 0, node 0 of 1: of 2 workers 2 run, 0 succeeded, 0 failed", s.String())
	w := crew{out: out}
	require.NoError(t, syscall.Kill(w.pids()[1], syscall.SIGKILL))
	out.Await(t, "] here ", 3)
	s = ask()
	require.Equal(t, []int{1, 1, 2}, []int{s.Restarts, s.Failures, s.Running})
	cancel(errTestStop)
	require.ErrorIs(t, <-ended, errTestStop)
	_, err := spec.Probe.Ask(t.Context())
	require.ErrorIs(t, err, ErrNotRunning)
	_, err = Run(t.Context(), Spec{Probe: spec.Probe})
	require.ErrorIs(t, err, ErrInvalidSpec, "a probe that has had its Run does no harm")
}

func TestANodeWhoseRendezvousIsGoneIsNotReadyUntilItIsBack(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) {
		s.MinNodes, s.Silence, s.Probe = 1, time.Second, NewProbe()
		s.MaxNodes = 2
		s.LastCall = -1
	})
	server, err := store.Serve(store.ServerConfig{Addr: w.spec.Endpoint})
	require.NoError(t, err)
	end := w.start(0)
	w.out.Await(t, "] here ", 1)
	becomes := func(ready bool) Status {
		var s Status
		require.Eventually(t, func() bool {
			s, err = w.spec.Probe.Ask(t.Context())
			require.NoError(t, err)
			return s.Ready() == ready
		}, time.Minute, 5*time.Millisecond)
		return s
	}
	becomes(true)
	require.NoError(t, server.Close())
	require.Contains(t, becomes(false).String(), "the rendezvous is lost, no word from it for 1s; round 0, node 0 of 1: of 1 worker 1 run")
	server, err = store.Serve(store.ServerConfig{Addr: w.spec.Endpoint})
	require.NoError(t, err)
	becomes(true)
	end(errTestStop)
	w.runs.Wait()
	require.NoError(t, server.Close())
}

func TestAnAgentThatHangsDoesNotAnswerItsProbe(t *testing.T) {
	p := NewProbe()
	p.questions() // nobody takes the questions
	late := errors.New("late")
	c, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	_, err := p.Ask(c)
	require.ErrorIs(t, err, late)
	require.ErrorContains(t, err, "the agent does not answer")
}

func TestANodeIsReadyWhileItsWorkersRunInARound(t *testing.T) {
	for _, c := range []struct {
		s    Status
		want bool
	}{
		{Status{Workers: 2, Running: 2}, false},
		{Status{Placed: true, Workers: 2, Running: 2}, true},
		{Status{Placed: true, Workers: 2, Running: 1, Succeeded: 1}, true},
		{Status{Placed: true, Workers: 2, Running: 1, Failed: 1}, false},
		{Status{Placed: true, Workers: 2, Running: 1}, false},
		{Status{Placed: true, Workers: 2, Succeeded: 2}, false},
		{Status{Placed: true, Workers: 2, Running: 2, Ending: true}, false},
	} {
		require.Equal(t, c.want, c.s.Ready(), "%+v", c.s)
	}
	lost := Status{Placed: true, Nodes: 2, Workers: 2, Running: 2, Contact: contact(at(16), at(0), 15*time.Second, rdzv.Summary{Round: 3, Nodes: 2}, true)}
	require.False(t, lost.Ready())
	require.Equal(t, "the rendezvous is lost, no word from it for 16s; round 0, node 0 of 2: of 2 workers 2 run, 0 succeeded, 0 failed", lost.String())
	lost.Contact = contact(at(15), at(0), 15*time.Second, rdzv.Summary{}, true)
	require.True(t, lost.Ready(), "it may come yet")
	require.Zero(t, contact(at(0), at(5), time.Second, rdzv.Summary{}, true).Silent, "clocks go back")
	require.Equal(t, "is ending, 1 worker left", Status{Placed: true, Ending: true, Running: 1}.String())
}
