//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

// hindrance is why a worker cannot start.
type hindrance struct {
	breaks string // the shell makes it so of the program "$0"; "" where it is the system that refuses something
	step   string // at which it refuses, and what it says
	err    error
	code   int
	says   string // of the error of every agent
}

var hindrances = map[string]hindrance{
	"no such program": {breaks: `rm "$0"`, code: 127, says: `did not start: program ".*" does not exist; give its path`},
	"wrong format": {breaks: `printf "echo hi\n" >"$0.new"; chmod +x "$0.new"; mv "$0.new" "$0"`, code: 126,
		says: "did not start: fork/exec .*: exec format error: .* a script names its interpreter"},
	"no permission":  {breaks: `chmod -x "$0"`, code: 126, says: `did not start: program ".*" is not executable; run chmod \+x on it`},
	"no descriptors": {step: "start", err: fmt.Errorf("pipe: %w", os.NewSyscallError("pipe2", syscall.EMFILE)), code: 126, says: "did not start: pipe: pipe2: too many open files: .* raise ulimit -n"},
	"no memory": {step: "start", err: &fs.PathError{Op: "fork/exec", Path: "it", Err: syscall.ENOMEM}, code: 126,
		says: "did not start: fork/exec it: cannot allocate memory: .* no memory left for another process"},
	"no space for its logs": {step: "log", err: &fs.PathError{Op: "mkdir", Path: "logs", Err: syscall.ENOSPC}, code: 126,
		says: "did not start: mkdir logs: no space left on device: no space, or no inodes, are left there"},
}

// situation is when a worker cannot start.
type situation struct {
	policy rdzv.Policy
	later  bool // its first start goes well, and then it fails
	joins  bool // its node comes to those that run
}

var situations = map[string]situation{
	"first start":    {},
	"single restart": {later: true},
	"group restart":  {later: true, policy: rdzv.RestartGroup},
	"a node joining": {joins: true},
}

// TestAWorkerThatCannotStartIsAFailureLikeAnyOther is 6 hindrances in 4 situations with 1 and 2
// agents: the restarts of the job are spent, all agents name the cause, and nothing is left behind.
func TestAWorkerThatCannotStartIsAFailureLikeAnyOther(t *testing.T) {
	programs, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var jobs []*hindered
	for what, h := range hindrances {
		for when, s := range situations {
			for _, agents := range []int{1, 2} {
				j := &hindered{name: fmt.Sprintf("%s/%s/%d", what, when, agents), folder: programs, h: h, s: s, out: &proctest.Output{}, under: store.NewMemory(), agents: agents,
					starts: map[int]int{}, results: make([]*Result, agents+1), ends: make([]error, agents+1), left: make([]string, agents+1)}
				for n := range agents + 1 { // before anything is started, which would hold a program open while it is written
					j.write(t, n)
				}
				jobs = append(jobs, j)
			}
		}
	}
	before, turns := 0, make(chan struct{}, 8)
	var runs sync.WaitGroup // they wait for most of their time
	for i, j := range jobs {
		hinder := func() {
			turns <- struct{}{}
			t.Run(j.name, j.hinder)
			<-turns
		}
		if i > 0 {
			runs.Go(hinder)
			continue
		}
		hinder()
		before = descriptors(t) // the runtime keeps some of its own
	}
	runs.Wait()
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.LessOrEqual(t, descriptors(t), before, "descriptors")
}

func descriptors(t *testing.T) int {
	open, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(open)
}

// hindered is a job of some agents with two workers each, of which the last one's cannot start.
type hindered struct {
	name    string
	folder  string // of the programs
	h       hindrance
	s       situation
	out     *proctest.Output
	under   store.Store
	agents  int
	mu      sync.Mutex
	starts  map[int]int // by rank
	runs    sync.WaitGroup
	results []*Result
	ends    []error
	left    []string // goroutines
}

const hinderedRestarts = 2

func (j *hindered) hinder(t *testing.T) {
	defer j.under.Close()
	h, s, agents := j.h, j.s, j.agents
	for n := range agents {
		j.start(n, !s.joins)
	}
	if s.joins {
		j.out.Await(t, "] here ", 2*agents)
		j.start(agents, true)
	}
	j.runs.Wait()
	require.Empty(t, strings.Join(j.left, ""), "goroutines that outlived Run")
	var failures int
	for n, err := range j.ends {
		if n == agents && !s.joins {
			break
		}
		require.Regexp(t, h.says, err, "node %d: %s", n, j.out)
		if j.results[n] != nil { // the job may be over before one of two agents was to start anything
			require.Equal(t, hinderedRestarts, j.results[n].Restarts)
		}
		if s.later {
			// One worker fails, again and again: each restart is heard of before the next failure.
			// Elsewhere several fail at once. They may spend all restarts before their agents hear
			// of one, and the end overtakes the leave to restart.
			require.Contains(t, j.out.String(), fmt.Sprintf("restart %[1]d of %[1]d: ", hinderedRestarts))
		}
		var failure *WorkerError
		if !errors.As(err, &failure) {
			require.ErrorIs(t, err, rdzv.ErrClosed)
			require.ErrorContains(t, err, rdzv.Spent(hinderedRestarts))
			continue
		}
		failures++
		require.Equal(t, h.code, failure.Code)
		require.Zero(t, failure.PID)
		if h.err != nil {
			require.ErrorIs(t, err, h.err)
		}
		require.Regexp(t, `worker\d+ \(rank \d+\) `+h.says, failure.Report())
	}
	require.Positive(t, failures, "one node has the worker")
	requireGone(t, j.out.String())
}

func (j *hindered) program(n int) string {
	return filepath.Join(j.folder, fmt.Sprintf("%s %d", strings.ReplaceAll(j.name, "/", " "), n))
}

// write writes the program of agent n.
func (j *hindered) write(t *testing.T, n int) {
	script := "#!/bin/sh\necho here $$\n"
	if j.s.later && n == j.agents-1 {
		script += fmt.Sprintf("if [ $RANK = %d ]; then\nuntil [ -e \"$0.read\" ]; do sleep .01; done\n%s\nexit 9\nfi\n", 2*j.agents-1, j.h.breaks) // not before the other one has begun
	}
	require.NoError(t, os.WriteFile(j.program(n), []byte(script+"touch \"$0.read\"\nexec sleep 600\n"), 0o700))
}

// start starts agent n; its workers are hindered where the situation says so.
func (j *hindered) start(n int, hindered bool) {
	program := j.program(n)
	spec := Spec{Program: program, NprocPerNode: 2, Stdout: j.out, Stderr: j.out, Endpoint: "h:1", LocalAddr: "127.0.0.1", RunID: "j",
		MinNodes: j.agents, MaxNodes: j.agents, WantRank: n + 1, MaxRestarts: hinderedRestarts, Policy: j.s.policy, LastCall: -1}
	if j.s.joins {
		spec.MinNodes, spec.MaxNodes = 1, j.agents+1
	}
	spec.Meet = func(context.Context) (store.Store, error) {
		if hindered && !j.s.later && j.h.breaks != "" { // after the spec was found to be right
			if err := exec.Command("sh", "-c", j.h.breaks, program).Run(); err != nil {
				return nil, err
			}
		}
		return store.NewPrefix("all", j.under), nil
	}
	if hindered && j.h.err != nil {
		spec.refuses = func(step string, rank int) error {
			j.mu.Lock()
			defer j.mu.Unlock()
			if step == "log" {
				j.starts[rank]++
			}
			if step == j.h.step && (!j.s.later || j.starts[rank] > 1) {
				return j.h.err
			}
			return nil
		}
	}
	j.runs.Go(func() {
		j.left[n] = strayed(func() { j.results[n], j.ends[n] = Run(context.Background(), spec) })
	})
}
