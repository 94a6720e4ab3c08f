//go:build unix

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

// wayTo is how an agent with two workers comes to a stage.
type wayTo struct {
	name   string
	script string // of the workers
	change func(*Spec)
}

// deafOne has worker 1 ignore SIGTERM, and worker 0 fail as soon as it does.
const deafOne = `if [ $RANK = 0 ]; then
	until [ -e "$0.deaf" ]; do sleep .01; done
	exit 9
fi
trap '' TERM
echo here $$
touch "$0.deaf"
while :; do sleep 600 & wait; done
`

// ways are to all stages; TestASignalEndsAnAgentInEveryStage finds one that is missing.
var ways = map[stage]wayTo{
	stageMeeting: {name: "meeting", change: func(s *Spec) {
		s.Meet = func(c context.Context) (store.Store, error) { <-c.Done(); return nil, context.Cause(c) }
	}},
	stageWaiting:    {name: "waiting", change: func(s *Spec) { s.MinNodes, s.MaxNodes = 2, 2 }},
	stageRunning:    {name: "running", script: deafOne},
	stageFailing:    {name: "failing", script: deafOne},
	stageFinished:   {name: "finished", script: "exit 0\n"},
	stageRegrouping: {name: "regrouping", script: deafOne, change: func(s *Spec) { s.Policy = rdzv.RestartGroup }},
	stageStopping:   {name: "stopping", script: deafOne, change: func(s *Spec) { s.MaxRestarts = 0 }},
	stageKilling:    {name: "killing", script: deafOne, change: func(s *Spec) { s.MaxRestarts, s.Grace = 0, time.Millisecond }},
	stageSettling:   {name: "settling", script: "echo words; exit 0\n", change: func(s *Spec) { s.Stdout = newGate() }},
	stageParting:    {name: "parting", script: "exit 0\n"},
}

// signals are what the agent is asked in a stage: to end, to end while its rendezvous' store does
// not answer, and to end at once.
var signals = []struct {
	name       string
	grace      time.Duration
	hangs, now bool
}{{"once", 50 * time.Millisecond, false, false}, {"once, with a store that hangs", 50 * time.Millisecond, true, false}, {"twice", time.Hour, false, true}}

func TestASignalEndsAnAgentInEveryStage(t *testing.T) {
	t.Parallel()
	require.Empty(t, strayed(func() {
		var runs sync.WaitGroup // they wait for most of their time
		for at := range stages {
			way, known := ways[at]
			require.True(t, known, "stage %d has no test", at)
			for _, s := range signals {
				runs.Go(func() {
					t.Run(way.name+"/"+s.name, func(t *testing.T) { signalled(t, at, way, s.grace, s.hangs, s.now) })
				})
			}
		}
		runs.Wait()
	}))
}

// signalled asks an agent to end as soon as it is in a stage.
func signalled(t *testing.T, at stage, way wayTo, grace time.Duration, hangs, now bool) {
	out, abort, under := &proctest.Output{}, make(chan struct{}), &hanging{Store: store.NewMemory()}
	spec := Spec{Program: "/bin/sh", Args: []string{"-c", way.script, filepath.Join(t.TempDir(), "it")}, NprocPerNode: 2, Stdout: out, Stderr: out, Endpoint: "h:1", LocalAddr: "127.0.0.1", RunID: "j",
		MaxRestarts: 1 << 20, Grace: grace, Abort: abort}
	spec.Meet = func(context.Context) (store.Store, error) { return under, nil }
	if way.change != nil {
		way.change(&spec)
	}
	c, cancel := context.WithCancelCause(t.Context())
	var once sync.Once
	spec.entered = func(s stage) {
		if s != at {
			return
		}
		once.Do(func() {
			under.hung.Store(hangs)
			cancel(errTestStop)
			if now {
				close(abort)
			}
		})
	}
	_, err := Run(c, spec)
	require.ErrorIs(t, context.Cause(c), errTestStop, "the stage was not reached: %v\n%s", err, out)
	if g, held := spec.Stdout.(*gate); held {
		close(g.open)
	}
	requireGone(t, out.String())
}

// requireGone looks whether the processes that have said that they are there are gone.
func requireGone(t *testing.T, said string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)\] here (\d+)$`).FindAllStringSubmatch(said, -1) {
		pid, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
}

// hanging is a store that may stop answering whoever writes.
type hanging struct {
	store.Store
	hung atomic.Bool
}

func (h *hanging) wait(c context.Context) error {
	if h.hung.Load() {
		<-c.Done()
	}
	return context.Cause(c)
}

func (h *hanging) Set(c context.Context, key string, value []byte) error {
	if err := h.wait(c); err != nil {
		return err
	}
	return h.Store.Set(c, key, value)
}

func (h *hanging) Push(c context.Context, key string, value []byte) error {
	if err := h.wait(c); err != nil {
		return err
	}
	return h.Store.Push(c, key, value)
}

func (h *hanging) CompareSet(c context.Context, key string, old, value []byte) ([]byte, error) {
	if err := h.wait(c); err != nil {
		return nil, err
	}
	return h.Store.CompareSet(c, key, old, value)
}

// TestASignalEndsAnAgentWithinFiveSecondsOfTheGrace goes through what takes time after the workers
// are gone, and measures it where there are none.
func TestASignalEndsAnAgentWithinFiveSecondsOfTheGrace(t *testing.T) {
	hearing, clearing, settling := process.Drain, process.Drain, process.Drain
	require.LessOrEqual(t, hearing+clearing+settling+hurry, 5*time.Second)
	for _, at := range []stage{stageMeeting, stageWaiting} {
		synctest.Test(t, func(t *testing.T) {
			under := &hanging{Store: store.NewMemory()}
			c, cancel := context.WithCancelCause(t.Context())
			spec := Spec{Program: "/bin/sh", NprocPerNode: 2, Endpoint: "h:1", LocalAddr: "127.0.0.1", RunID: "j", MinNodes: 2,
				Meet: func(context.Context) (store.Store, error) { return under, nil }}
			if change := ways[at].change; at == stageMeeting {
				change(&spec)
			}
			var asked time.Time
			spec.entered = func(s stage) {
				if s == at && asked.IsZero() {
					asked = time.Now()
					under.hung.Store(true)
					cancel(errTestStop)
				}
			}
			_, err := Run(c, spec)
			require.ErrorIs(t, err, errTestStop)
			require.LessOrEqual(t, time.Since(asked), 5*time.Second, fmt.Sprint(ways[at].name))
		})
	}
}
