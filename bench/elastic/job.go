package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// perAgent is how many workers an agent has.
const perAgent = 2

// shape is a job: how many agents of how many that there may be, and how many seconds those that
// are there wait for more.
type shape struct {
	agents   int
	nnodes   string
	lastCall int
}

func (s shape) String() string { return fmt.Sprintf("agents=%d/nnodes=%s", s.agents, s.nnodes) }

// launcher is a program that runs an agent.
type launcher struct {
	name   string
	argv   []string
	python bool // it is torchrun
	group  bool // a failure costs every worker its process
}

// command is what runs one agent of a job.
func (l launcher) command(s shape, endpoint string, worker []string) []string {
	flags := []string{"--nnodes=" + s.nnodes, fmt.Sprintf("--nproc-per-node=%d", perAgent), "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
		"--rdzv-id=bench", "--monitor-interval=0.1", "--max-restarts=9", fmt.Sprintf("--rdzv-conf=last_call_timeout=%d", s.lastCall)}
	switch {
	case l.python: // 1.13 knows the spelling with underscores alone, and with Python 3.11 needs redirects for some rank
		for i, f := range flags {
			name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
			flags[i] = "--" + strings.ReplaceAll(name, "-", "_") + "=" + value
		}
		flags = append(flags, "--redirects=9:1", "--tee=9:1", "--no_python")
	case l.group:
		flags = append(flags, "--restart-policy=group")
	}
	return append(append(append([]string{}, l.argv...), flags...), worker...)
}

// job is agents that run, and who hears of their workers.
type job struct {
	*witness
	world  int
	agents []*exec.Cmd
	output []*bytes.Buffer
	dir    string
	cancel context.CancelFunc
}

// start starts a job's agents all at once.
func (b *bench) start(c context.Context, s shape, stay bool) (*job, error) {
	endpoint, err := freeAddress()
	if err != nil {
		return nil, err
	}
	w, err := newWitness(stay)
	if err != nil {
		return nil, err
	}
	j := &job{witness: w, world: s.agents * perAgent}
	if j.dir, err = os.MkdirTemp("", "bench-elastic-"); err != nil {
		w.dismiss()
		return nil, err
	}
	c, j.cancel = context.WithTimeout(c, patience)
	for range s.agents {
		argv := b.command(s, endpoint, b.worker)
		cmd, out := exec.CommandContext(c, argv[0], argv[1:]...), new(bytes.Buffer)
		cmd.Env = append(os.Environ(), witnessVariable+"="+w.l.Addr().String(), "TMPDIR="+j.dir, "TORCH_CPP_LOG_LEVEL=ERROR", "OMP_NUM_THREADS=1")
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it ends its workers
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, j.cleanUp())
		}
		j.agents, j.output = append(j.agents, cmd), append(j.output, out)
	}
	return j, nil
}

// wait waits for every agent to end, well.
func (j *job) wait() error {
	var errs []error
	for i, cmd := range j.agents {
		if err := cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("agent %d: %w\n%s", i, err, j.output[i]))
		}
	}
	j.agents = nil
	return errors.Join(errs...)
}

// cleanUp ends what still runs, and takes away what is left.
func (j *job) cleanUp() error {
	j.cancel()
	_ = j.wait() // it was cancelled
	j.dismiss()
	return os.RemoveAll(j.dir)
}

// nextSighting is the next worker that comes or goes.
func (j *job) nextSighting() (sighting, error) {
	select {
	case s := <-j.seen:
		return s, nil
	case <-time.After(patience):
		return sighting{}, fmt.Errorf("nothing was heard of a worker for %v; the first agent says:\n%s", patience, j.output[0])
	}
}

// freeAddress is where nobody listens now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// build makes the launcher of this tree.
func build(c context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "weft")
	cmd := exec.CommandContext(c, "go", "build", "-o", path, "github.com/weft-project/weft/cmd/weft")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build ./cmd/weft: %w\n%s", err, out)
	}
	return path, nil
}
