package elastic

import (
	"fmt"
	"time"
)

// status is how a process ended: a signal, or an exit code.
type status struct {
	code   int // exit code; 128 + the signal's number where a signal ended it
	signal int // 0 if it exited by itself
}

func (s status) ok() bool { return s.code == 0 && s.signal == 0 }

// order is one thing for the shell to do: send a worker SIGTERM, or SIGKILL if kill is set.
type order struct {
	rank int // local rank
	kill bool
}

// decision is what an event leads to: the orders, and for people the reason ("" where there is nothing to say).
type decision struct {
	orders []order
	reason string
}

// group is the pure state of one node's workers: events and the time in, decisions out. It has no I/O and no clock.
type group struct {
	grace    time.Duration
	alive    []bool
	left     int       // how many are alive
	stopping bool      // SIGTERM has been sent
	deadline time.Time // when the survivors of SIGTERM get SIGKILL; zero while nothing is due
	first    int       // local rank of the first worker that failed by itself, or -1
}

func newGroup(workers int, grace time.Duration) *group {
	g := &group{grace: grace, alive: make([]bool, workers), left: workers, first: -1}
	for i := range g.alive {
		g.alive[i] = true
	}
	return g
}

// done says that every worker has ended.
func (g *group) done() bool { return g.left == 0 }

// exited takes a worker's end. The first failure stops the others, unless it is spared; ends after that are their consequence.
// Text says for people how it ended.
func (g *group) exited(now time.Time, rank int, st status, spared bool, text string) decision {
	if !g.alive[rank] {
		return decision{}
	}
	g.alive[rank] = false
	g.left--
	if g.left == 0 {
		g.deadline = time.Time{}
	}
	if st.ok() || g.stopping {
		return decision{}
	}
	if spared {
		return decision{reason: fmt.Sprintf("%s; %s left", text, plural(g.left))}
	}
	g.first = rank
	return g.terminate(now, text)
}

// stop ends the job on request.
func (g *group) stop(now time.Time, why string) decision {
	if g.stopping {
		return decision{}
	}
	return g.terminate(now, why)
}

func (g *group) terminate(now time.Time, why string) decision {
	g.stopping = true
	if g.left == 0 {
		return decision{}
	}
	g.deadline = now.Add(g.grace)
	return decision{g.orders(false), fmt.Sprintf("%s; stopping %s", why, plural(g.left))}
}

// expire takes the passing of time: the grace of those still alive may have ended.
func (g *group) expire(now time.Time) decision {
	if g.deadline.IsZero() || now.Before(g.deadline) {
		return decision{}
	}
	g.deadline = time.Time{}
	return decision{g.orders(true), fmt.Sprintf("%s did not end within %v of SIGTERM; killing", plural(g.left), g.grace)}
}

func (g *group) orders(kill bool) []order {
	var out []order
	for rank, alive := range g.alive {
		if alive {
			out = append(out, order{rank, kill})
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
