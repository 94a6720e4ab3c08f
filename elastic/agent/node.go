package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/elastic/rdzv"
)

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

// decision is what an event leads to: the orders, what to tell the rendezvous, and for people the
// reason ("" where there is nothing to say).
type decision struct {
	orders []order
	fail   *failed
	done   bool // every worker here has ended well
	clear  bool // no worker runs here that is of a world before the round that is coming
	reason string
}

// stamped is the decision with its reason told at a time.
func (d decision) stamped(now time.Time) decision {
	if d.reason != "" {
		d.reason = stamp(now, d.reason)
	}
	return d
}

// stamp is what has happened with the time in front, by the clock of people.
func stamp(now time.Time, what string) string { return now.Format("15:04:05 ") + what }

// failed is a failure to tell the rendezvous, which knows whether there is a restart left.
type failed struct {
	rank int // local
	nth  int // of this node's failures, from 1
	why  string
}

// phase is where a worker is.
type phase int

const (
	idle phase = iota // never started, or ended to be started in the next place
	running
	well   // it has ended with code 0, or its failure was spared
	broken // it has failed, and waits for leave to be started again
)

// node is the pure state of one node's workers over the rounds of a job: events and the time in,
// decisions out. It has no I/O and no clock.
type node struct {
	grace   time.Duration
	workers []slot
	place   *rdzv.Placement // the latest
	next    *rdzv.Placement // the one that is coming, nil if none is
	out     bool            // place is over, and none is coming yet
	left    int             // how many run
	ending  bool            // nothing is started any more
	killed  bool            // what still runs then has got SIGKILL
	over    bool            // the rendezvous is finished, or was left
	fails   int
	due     time.Time // when the survivors of SIGTERM get SIGKILL; zero while nothing is due
}

type slot struct {
	phase phase
	nth   int  // of its latest failure
	stale bool // it runs in a world that is over, and is being ended
}

func newNode(workers int, grace time.Duration) *node {
	return &node{grace: grace, workers: make([]slot, workers)}
}

// done says that nothing runs and nothing will.
func (n *node) done() bool { return n.left == 0 && n.ending && n.over }

// A round counts on every worker of its nodes: each has to have started in it, or to have heard of
// it. So what does not run when a round is coming starts in it, whether it has failed or ended
// well, and so does what ends meanwhile, or ends well while its node has no place. Who ends well in
// a round has done its share of it, if it has heard of it (exited). A failure that is spared is
// the end of a worker's share, too, also where the worker has not heard of the round.

// coming takes it that a new round has formed, and why. A worker that called elastic.Join hears of
// its new place and runs on. A worker that did not is deaf: the node ends it. Where the round
// restarts all workers, the node ends every one. All that do not run then start once every node of
// the round has ended its own (placed).
func (n *node) coming(now time.Time, p rdzv.Placement, why string, deaf func(worker int) bool) decision {
	if n.ending {
		return decision{}
	}
	n.next, n.out = &p, false
	for i := range n.workers {
		if s := &n.workers[i]; s.phase == broken { // this is the leave that it waited for
			s.phase = idle
		}
	}
	if n.place != nil && p.Restarts > n.place.Restarts && why == "" {
		why = fmt.Sprintf("restart %d of %d", p.Restarts, p.MaxRestarts)
	}
	return n.retire(now, fmt.Sprintf("round %d", p.Round), why, func(i int) bool { return p.Restart || deaf(i) })
}

// outside takes it that this node has no place in the round that runs: it was lost, and the others
// have gone on without it.
func (n *node) outside(now time.Time, deaf func(worker int) bool) decision {
	if n.ending || n.place == nil {
		return decision{}
	}
	n.out = true
	return n.retire(now, fmt.Sprintf("round %d", n.place.Round), "it is over, and this node has no place in the next one yet", deaf)
}

// retire ends the workers whose world is over, and says so of the round, with the reason why.
func (n *node) retire(now time.Time, round, why string, over func(worker int) bool) decision {
	var d decision
	kept := 0
	for i := range n.workers {
		switch s := &n.workers[i]; {
		case s.stale || s.phase == idle || s.phase == broken:
		case s.phase == well:
			s.phase = idle
		case !over(i):
			kept++
		default:
			s.stale = true
			d.orders = append(d.orders, order{i, terminate})
		}
	}
	d.clear = n.next != nil && len(n.stale(terminate)) == 0
	if n.place == nil || kept == len(n.workers) {
		return d
	}
	what := "starting all workers again"
	if kept > 0 {
		what = fmt.Sprintf("starting %s again; the others called elastic.Join and go on", plural(len(n.workers)-kept))
	}
	if why != "" {
		what += ": " + why
	}
	if len(d.orders) > 0 {
		n.due = now.Add(n.grace)
		what += "; stopping " + plural(len(d.orders))
	}
	d.reason = round + ": " + what
	return d
}

// stale are orders for the workers that run in a world that is over.
func (n *node) stale(what deed) []order {
	return slices.DeleteFunc(n.all(what), func(o order) bool { return !n.workers[o.rank].stale })
}

// placed takes the place that was coming, now that no node of its round runs a worker of a world
// before it: what does not run is started.
func (n *node) placed(p rdzv.Placement) decision {
	if n.ending {
		return decision{}
	}
	n.place, n.next, n.out = &p, nil, false
	return decision{orders: n.start(func(slot) bool { return true })}
}

// restart takes the leave to start again the workers that had failed by then.
func (n *node) restart(nth int, p rdzv.Placement) decision {
	if n.ending || n.next != nil { // the place that is coming starts them
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
	return out
}

// exited takes a worker's end. Text says for people how it ended. A failure that is spared counts
// as a good end, and is not started again for being behind. A worker that has ended with code 0 and
// is behind has not heard of its latest place: it starts again in that, which costs no restart.
func (n *node) exited(i int, st process.Status, spared, behind bool, text string) decision {
	s := &n.workers[i]
	if s.phase != running {
		return decision{}
	}
	old := s.stale
	s.phase, s.stale = idle, false
	n.left--
	left := len(n.stale(kill))
	if n.left == 0 || left == 0 && !n.ending {
		n.due = time.Time{}
	}
	switch {
	case n.ending:
		return decision{}
	case old:
		return decision{clear: left == 0 && n.next != nil}
	case !st.OK() && !spared:
		n.fails++
		s.phase, s.nth = broken, n.fails
		return decision{fail: &failed{i, n.fails, text}}
	case spared:
		text = fmt.Sprintf("%s; %s left", text, plural(n.left))
	case n.next == nil && !n.out && behind:
		s.phase = running
		n.left++
		return decision{orders: []order{{i, launch}}, reason: fmt.Sprintf("%s, and had not heard of its place in round %d: starting it again", text, n.place.Round)}
	default:
		text = ""
	}
	if n.next != nil || n.out { // the next place starts it
		return decision{reason: text}
	}
	s.phase = well
	return decision{done: !slices.ContainsFunc(n.workers, func(s slot) bool { return s.phase != well }), reason: text}
}

// end takes the end of the job: what runs is stopped, and nothing more is started.
func (n *node) end(now time.Time, why string) decision {
	n.over = true
	return n.stop(now, why)
}

// abort ends this node's part without grace.
func (n *node) abort(why string) decision {
	n.over, n.ending, n.killed, n.due = true, true, true, time.Time{}
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
	n.due, n.killed = time.Time{}, n.ending
	orders := n.all(kill)
	if !n.ending {
		orders = n.stale(kill)
	}
	return decision{orders: orders, reason: fmt.Sprintf("%s did not end within %v of SIGTERM; killing", plural(len(orders)), n.grace)}
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

func plural(n int) string { return count(n, "worker") }

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
