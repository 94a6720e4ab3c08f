package elastic

import (
	"fmt"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
)

// status is how a process ended: a signal, or an exit code.
type status struct {
	code   int // exit code; 128 + the signal's number where a signal ended it
	signal int // 0 if it exited by itself
}

func (s status) ok() bool { return s.code == 0 && s.signal == 0 }

// deed is what the shell is to do with a worker.
type deed int

const (
	launch deed = iota
	terminate
	kill
)

// order is one thing for the shell to do with the worker of a local rank.
type order struct {
	rank int
	deed deed
}

// decision is what an event leads to: the orders, what to tell the rendezvous, and for people the reason ("" where there is nothing to say).
type decision struct {
	orders []order
	fail   *failed
	done   bool // every worker here has ended well
	reason string
}

// failed is a failure to tell the rendezvous, which knows whether there is a restart left.
type failed struct {
	rank int // local
	nth  int // of this node's failures, from 1
	why  string
}

// phase is where a worker is.
type phase int

const (
	idle phase = iota // never started, or stopped for the next start
	running
	well   // it has ended with code 0, or its failure was spared
	broken // it has failed, and waits for leave to be started again
)

// node is the pure state of one node's workers over the rounds of a job: events and the time in, decisions out. It has no I/O and no clock.
type node struct {
	grace   time.Duration
	workers []slot
	place   *rdzv.Placement // the latest
	left    int             // how many run
	ending  bool            // nothing is started any more
	again   bool            // all are being stopped, to be started again
	told    bool            // that all have ended well
	over    bool            // the rendezvous is finished, or was left
	fails   int
	due     time.Time // when the survivors of SIGTERM get SIGKILL; zero while nothing is due
}

type slot struct {
	phase phase
	nth   int // of its latest failure
}

func newNode(workers int, grace time.Duration) *node {
	return &node{grace: grace, workers: make([]slot, workers)}
}

// done says that nothing runs and nothing will.
func (n *node) done() bool { return n.left == 0 && n.ending && n.over }

// placed takes a place in a new round. Workers that run go on, unless the whole group is to start again.
func (n *node) placed(now time.Time, p rdzv.Placement) decision {
	if n.ending {
		return decision{}
	}
	first, why := n.place == nil, fmt.Sprintf("round %d: starting all workers again", p.Round)
	if !first && p.Restarts > n.place.Restarts {
		why += fmt.Sprintf(": restart %d of %d", p.Restarts, p.MaxRestarts)
	}
	n.place = &p
	switch {
	case first:
		return decision{orders: n.start(func(slot) bool { return true })}
	case !p.Restart:
		return decision{orders: n.start(func(s slot) bool { return s.phase == broken })}
	case n.again:
		return decision{}
	case n.left == 0:
		return decision{orders: n.start(func(slot) bool { return true }), reason: why}
	}
	n.again = true
	return n.terminate(now, why)
}

// restart takes the leave to start again the workers that had failed by then.
func (n *node) restart(nth int, p rdzv.Placement) decision {
	if n.ending || n.again {
		return decision{}
	}
	n.place = &p
	return decision{orders: n.start(func(s slot) bool { return s.phase == broken && s.nth <= nth })}
}

// start starts the workers that which names, if they do not run.
func (n *node) start(which func(slot) bool) []order {
	var out []order
	for i := range n.workers {
		if s := &n.workers[i]; s.phase != running && which(*s) {
			s.phase = running
			n.left++
			out = append(out, order{i, launch})
		}
	}
	n.told = false
	return out
}

// exited takes a worker's end. Text says for people how it ended. A failure that is spared counts as a good end.
func (n *node) exited(i int, st status, spared bool, text string) decision {
	s := &n.workers[i]
	if s.phase != running {
		return decision{}
	}
	s.phase = idle
	if n.left--; n.left == 0 {
		n.due = time.Time{}
	}
	switch {
	case n.ending:
		return decision{}
	case n.again:
		if n.left > 0 {
			return decision{}
		}
		n.again = false
		return decision{orders: n.start(func(slot) bool { return true })}
	case st.ok():
		s.phase = well
		return n.finished("")
	case spared:
		s.phase = well
		return n.finished(fmt.Sprintf("%s; %s left", text, plural(n.left)))
	}
	n.fails++
	s.phase, s.nth = broken, n.fails
	return decision{fail: &failed{i, n.fails, text}}
}

// finished tells once that all have ended well.
func (n *node) finished(reason string) decision {
	for _, s := range n.workers {
		if s.phase != well {
			return decision{reason: reason}
		}
	}
	first := !n.told
	n.told = true
	return decision{done: first, reason: reason}
}

// end takes the end of the job: what runs is stopped, and nothing more is started.
func (n *node) end(now time.Time, why string) decision {
	n.over = true
	return n.stop(now, why)
}

// abort ends this node's part without grace.
func (n *node) abort(why string) decision {
	n.over, n.ending, n.due = true, true, time.Time{}
	if n.left == 0 {
		return decision{}
	}
	return decision{orders: n.all(kill), reason: fmt.Sprintf("%s; killing %s", why, plural(n.left))}
}

// stop ends the workers; the rendezvous is yet to be left.
func (n *node) stop(now time.Time, why string) decision {
	if n.ending {
		return decision{}
	}
	n.ending = true
	return n.terminate(now, why)
}

func (n *node) terminate(now time.Time, why string) decision {
	if n.left == 0 {
		return decision{}
	}
	n.due = now.Add(n.grace)
	return decision{orders: n.all(terminate), reason: fmt.Sprintf("%s; stopping %s", why, plural(n.left))}
}

// expire takes the passing of time: the grace of those still alive may have ended.
func (n *node) expire(now time.Time) decision {
	if n.due.IsZero() || now.Before(n.due) {
		return decision{}
	}
	n.due = time.Time{}
	return decision{orders: n.all(kill), reason: fmt.Sprintf("%s did not end within %v of SIGTERM; killing", plural(n.left), n.grace)}
}

func (n *node) all(d deed) []order {
	var out []order
	for i, s := range n.workers {
		if s.phase == running {
			out = append(out, order{i, d})
		}
	}
	return out
}

func plural(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}
