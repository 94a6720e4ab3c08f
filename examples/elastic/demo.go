package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// agentVariable makes this program an agent of the demonstration: it names where the agents meet.
const agentVariable = "ELASTIC_EXAMPLE_MEETS_AT"

// runAgent is what weft run would be on one machine of three.
func runAgent(c context.Context, s settings, args []string, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	spec := agent.Spec{
		Program: self, Args: args, NprocPerNode: 1, MinNodes: 1, MaxNodes: 3, Endpoint: os.Getenv(agentVariable), RunID: "elastic",
		MaxRestarts: 9, LastCall: s.lastCall, Silence: s.silence, Grace: 5 * time.Second, Stdout: stdout, Stderr: stderr,
	}
	if s.policy == "group" {
		spec.Policy = rdzv.RestartGroup
	}
	_, err = agent.Run(c, spec)
	return err
}

// event is something that happens to the agents when a part of all steps is made.
type event struct {
	at float64
	do func(w *crew, leader string) (what string, err error)
}

// The events of the demonstration, and of the tests.
func killWorker(w *crew, leader string) (string, error) {
	name := w.follower(leader)
	return "kill -9 of the worker of " + name, w.killWorker(name)
}

func stopAgent(w *crew, leader string) (string, error) {
	name := w.follower(leader)
	return "SIGTERM to " + name, w.signal(name, syscall.SIGTERM)
}

func killFirstAgent(w *crew, leader string) (string, error) {
	return "kill -9 of " + leader + ", which has rank 0", w.signal(leader, syscall.SIGKILL)
}

func addAgent(w *crew, _ string) (string, error) {
	name := fmt.Sprint("agent", len(w.agents)+1)
	return name + " is started", w.start(name)
}

// demonstrate runs three agents on this machine and does things to them.
func demonstrate(c context.Context, s settings, args []string, stdout io.Writer) error {
	own := []string{"--pace", "10ms", "--lines", fmt.Sprint(max(1, min(45, 2*s.epochs)))} // what is given counts more
	return perform(c, append(own, args...), s.policy, []event{
		{0.15, killWorker}, {0.3, stopAgent}, {0.45, killFirstAgent}, {0.6, addAgent}, {0.75, addAgent},
	}, stdout)
}

// perform trains on three agents, and has things happen to them. The store in which they meet is
// this process's, so that any agent may go.
func perform(c context.Context, args []string, policy string, events []event, stdout io.Writer) error {
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer server.Close() //nolint:errcheck // the agents are gone
	return performAt(c, server.Addr(), args, policy, events, stdout)
}

// performAt is perform with the agents meeting somewhere.
func performAt(c context.Context, endpoint string, args []string, policy string, events []event, stdout io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return performAs(c, append([]string{self, "--restart-policy", policy}, args...), []string{agentVariable + "=" + endpoint}, events, stdout)
}

var isCheckpoints = regexp.MustCompile(`^--?checkpoints(=|$)`)

// performAs is perform with agents that are started by a command, to which arguments of this
// program may be added.
func performAs(c context.Context, command, env []string, events []event, stdout io.Writer) error {
	if !slices.ContainsFunc(command, isCheckpoints.MatchString) {
		folder, err := os.MkdirTemp("", "elastic-checkpoints-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder) //nolint:errcheck // what cannot be removed is the system's to remove
		command = append(command, "--checkpoints", folder)
	}
	env = append(env, elastic.TokenVariable+"="+transport.NewToken(), elastic.TokenFileVariable+"=")
	w := newCrew(command, env, func(name, line string) {
		fmt.Fprintf(stdout, "%s %s\n", name, line)
	})
	defer w.endAll()
	for range 3 {
		if _, err := addAgent(w, ""); err != nil {
			return err
		}
	}
	for _, e := range events {
		leader, err := w.reach(c, e.at)
		if errors.Is(err, errTrained) {
			fmt.Fprintf(stdout, "------ %v\n", err)
			break
		}
		if err != nil {
			return err
		}
		what, err := e.do(w, leader)
		w.mu.Lock()
		fmt.Fprintf(stdout, "------ %s\n", what)
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return w.wait(c)
}
