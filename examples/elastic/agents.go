package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// crew is agents on this machine, each a process of its own. Its methods have one user.
type crew struct {
	command, env []string                 // of an agent
	heard        func(agent, line string) // every line of every agent, one at a time

	agents  map[string]*agentProcess
	changed chan struct{} // capacity 1: there is another line, or an agent has ended

	mu     sync.Mutex
	leader string // the agent whose worker leads
	step   int    // that its worker has told
	of     int
}

type agentProcess struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	spared bool // it was sent a signal, so that its end is no failure
	worker int  // its latest worker's process; guarded by crew.mu
}

func newCrew(command, env []string, heard func(agent, line string)) *crew {
	return &crew{command: command, env: env, heard: heard, agents: map[string]*agentProcess{}, changed: make(chan struct{}, 1)}
}

// start starts an agent.
func (w *crew) start(name string) error {
	a := &agentProcess{cmd: exec.Command(w.command[0], w.command[1:]...), ended: make(chan struct{})}
	a.cmd.Env = append(os.Environ(), w.env...)
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	a.cmd.Stderr = a.cmd.Stdout
	if err := a.cmd.Start(); err != nil {
		return err
	}
	w.agents[name] = a
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); w.poke() {
			w.handleLine(name, a, lines.Text())
		}
		_ = a.cmd.Wait() // how it ended is in its state
		close(a.ended)
		w.poke()
	}()
	return nil
}

func (w *crew) poke() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

var (
	processLine = regexp.MustCompile(`^\[\d+\] worker \d+ is process (\d+)$`)
	stepLine    = regexp.MustCompile(`^\[\d+\] step (\d+)/(\d+) `)
)

// handleLine reads one line of an agent.
func (w *crew) handleLine(name string, a *agentProcess, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := processLine.FindStringSubmatch(line); m != nil {
		a.worker, _ = strconv.Atoi(m[1])
	}
	if m := stepLine.FindStringSubmatch(line); m != nil {
		w.leader = name
		w.step, _ = strconv.Atoi(m[1])
		w.of, _ = strconv.Atoi(m[2])
	}
	w.heard(name, line)
}

// errTrained is that training is over, so that nothing can happen to it any more.
var errTrained = errors.New("training has ended before the rest of the demonstration")

// reach waits until training has come to a part of all steps, and returns who leads then.
func (w *crew) reach(c context.Context, part float64) (leader string, err error) {
	for {
		w.mu.Lock()
		there := w.of > 0 && float64(w.step) >= part*float64(w.of)
		over := w.of > 0 && w.step == w.of
		leader = w.leader
		w.mu.Unlock()
		if over || len(w.running()) == 0 {
			return "", errTrained
		}
		if there {
			return leader, nil
		}
		select {
		case <-w.changed:
		case <-c.Done():
			return "", context.Cause(c)
		}
	}
}

// running are the agents that nobody has sent a signal, and that have not ended, by name.
func (w *crew) running() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.agents)), func(name string) bool {
		select {
		case <-w.agents[name].ended:
			return true
		default:
			return w.agents[name].spared
		}
	})
}

// follower is an agent that runs and does not lead.
func (w *crew) follower(leader string) string {
	for _, name := range w.running() {
		if name != leader {
			return name
		}
	}
	return leader
}

// signal sends a signal to an agent.
func (w *crew) signal(name string, s syscall.Signal) error {
	a := w.agents[name]
	a.spared = true
	return a.cmd.Process.Signal(s)
}

// killWorker kills an agent's worker.
func (w *crew) killWorker(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	pid := w.agents[name].worker
	if pid == 0 {
		return fmt.Errorf("%s has not said which process its worker is", name)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// wait waits for the end of all agents, and says which have failed that nobody has sent a signal.
func (w *crew) wait(c context.Context) error {
	var errs []error
	for name, a := range w.agents {
		select {
		case <-a.ended:
		case <-c.Done():
			return context.Cause(c)
		}
		if !a.spared && !a.cmd.ProcessState.Success() {
			errs = append(errs, fmt.Errorf("%s: %v", name, a.cmd.ProcessState))
		}
	}
	return errors.Join(errs...)
}

// endAll ends what is left.
func (w *crew) endAll() {
	for _, a := range w.agents {
		_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, a := range w.agents {
		select {
		case <-a.ended:
		case <-time.After(10 * time.Second):
			_ = a.cmd.Process.Kill()
			<-a.ended
		}
	}
}
