package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
)

// Status is how one node's part of a job is.
type Status struct {
	RunID string
	// Placed says that the node has its place in a round; Rank, Nodes, World, Round and Restarts,
	// which the whole job has had, are of the last one.
	Placed                              bool
	Rank, Nodes, World, Round, Restarts int
	// Workers is how many this node is to have. Running, Succeeded and Failed are how many of them
	// there are, and Failures how often one has failed.
	Workers, Running, Succeeded, Failed, Failures int
	// Ending says that what runs is being stopped.
	Ending bool
	// Contact is how the node stands with the rendezvous.
	Contact Contact
}

// Contact is how a node stands with its rendezvous.
type Contact struct {
	// Heard is when the leader was last heard of, Silent for how long it was not, and Patience for
	// how long it may not be: keep_alive_timeout.
	Heard            time.Time
	Silent, Patience time.Duration
	// Known says that it was heard of at all; Round and Nodes are what it said last, of a round
	// that may be gathering.
	Known        bool
	Round, Nodes int
}

// Lost says that the rendezvous is lost as far as the node can tell: what hosts it has gone, or
// cannot be reached.
func (c Contact) Lost() bool { return c.Silent > c.Patience }

// contact is how a node stands with a rendezvous of which it heard last at a time.
func contact(now, heard time.Time, patience time.Duration, last rdzv.Summary, known bool) Contact {
	return Contact{Heard: heard, Silent: max(now.Sub(heard), 0), Patience: patience, Known: known, Round: last.Round, Nodes: last.Nodes}
}

// Ready says that the node is in a round, its workers run, or have ended well while others still
// run, and the rendezvous is not lost.
func (s Status) Ready() bool {
	return s.Placed && !s.Ending && s.Running > 0 && s.Running+s.Succeeded == s.Workers && !s.Contact.Lost()
}

// String is the status in a line for people.
func (s Status) String() string {
	lost := ""
	if s.Contact.Lost() {
		lost = fmt.Sprintf("the rendezvous is lost, no word from it for %v; ", s.Contact.Silent.Round(time.Second))
	}
	switch {
	case !s.Placed:
		return lost + "waits for a place in the job"
	case s.Ending:
		return fmt.Sprintf("is ending, %s left", plural(s.Running))
	}
	return lost + fmt.Sprintf("round %d, node %d of %d: of %s %d run, %d succeeded, %d failed", s.Round, s.Rank, s.Nodes, plural(s.Workers), s.Running, s.Succeeded, s.Failed)
}

// ErrNotRunning is what a Probe says whose Run has ended.
var ErrNotRunning = errors.New("the agent does not run any more")

// Probe asks the Run in whose Spec it is how it is. It serves one Run, and is safe for concurrent
// use.
type Probe struct {
	asks         chan chan<- Status
	began, ended chan struct{}
	begun, over  sync.Once
}

// NewProbe makes a Probe. Before its Run has begun to look after workers it answers for it: such a
// node is well, and has no place.
func NewProbe() *Probe {
	return &Probe{asks: make(chan chan<- Status), began: make(chan struct{}), ended: make(chan struct{})}
}

// Ask is answered by the agent's own loop: an agent that hangs does not answer, and c ends the
// wait.
func (p *Probe) Ask(c context.Context) (Status, error) {
	select {
	case <-p.ended:
		return Status{}, ErrNotRunning
	case <-p.began:
	default:
		return Status{}, nil
	}
	answer := make(chan Status, 1)
	select {
	case p.asks <- answer:
		return <-answer, nil
	case <-p.ended:
		return Status{}, ErrNotRunning
	case <-c.Done():
		return Status{}, fmt.Errorf("the agent does not answer: %w", context.Cause(c))
	}
}

// questions is where the loop takes questions; a nil Probe has none.
func (p *Probe) questions() <-chan chan<- Status {
	if p == nil {
		return nil
	}
	p.begun.Do(func() { close(p.began) })
	return p.asks
}

func (p *Probe) end() {
	if p != nil {
		p.over.Do(func() { close(p.ended) })
	}
}

// status is how the node is.
func (a *agent) status() Status {
	s := Status{RunID: a.spec.RunID, Workers: len(a.node.workers), Restarts: a.result.Restarts, Failures: a.node.fails, Ending: a.node.ending}
	if p := a.node.place; p != nil {
		s.Placed, s.Rank, s.Nodes, s.World, s.Round = true, p.Rank, p.Nodes, p.World, p.Round
	}
	cfg, _ := a.spec.rendezvous().Populate() // it was validated
	last, known := a.meeting.rdzv.Latest()
	s.Contact = contact(time.Now(), a.meeting.rdzv.Heard(), cfg.Silence, last, known)
	for _, w := range a.node.workers {
		switch w.phase {
		case running:
			s.Running++
		case well:
			s.Succeeded++
		case broken:
			s.Failed++
		}
	}
	return s
}
