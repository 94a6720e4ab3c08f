package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// waits is what a node without a place tells people: what it waits for, after a few seconds and
// then rarely.
type waits struct {
	endpoint, job string
	patience      time.Duration // of one that joins
	lastCall      time.Duration
	say           func(string)

	mu    sync.Mutex
	since time.Time // when this waiting began
	said  int       // how often it was told
	text  string    // what was told last in this waiting
	what  standing
	met   bool             // it has heard of a rendezvous that was not over
	rdzv  *rdzv.Rendezvous // nil while its store is not reached
	under store.Store
}

// standing is how things stand for the node.
type standing struct {
	err    error // of the store that was not reached, as far as is known
	joined bool
	known  bool // sum was heard
	sum    rdzv.Summary
	placed int // the round of its last place, -1 if it had none
	spare  bool
	over   bool
	others []string // jobs in that store
}

func (w *waits) reset(spec *Spec, now time.Time) {
	cfg, _ := spec.rendezvous().Populate() // it was validated
	w.endpoint, w.job, w.patience, w.lastCall = spec.Endpoint, spec.RunID, cfg.JoinTimeout, cfg.LastCall
	w.since, w.what.placed = now, -1
}

// lacks takes why the store was not reached. What people should look after is said at once.
func (w *waits) lacks(err error, urgent bool) {
	w.mu.Lock()
	w.what.err = err
	what, waited := w.what, time.Since(w.since)
	w.mu.Unlock()
	if urgent {
		w.say(what.text(w.where(), waited, w.patience, w.lastCall))
	}
}

func (w *waits) where() string { return fmt.Sprintf("%s, job %s", w.endpoint, w.job) }

// hasMet says whether the node has heard of a rendezvous that was not over.
func (w *waits) hasMet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.met
}

// joined takes it that the store was reached.
func (w *waits) joined(r *rdzv.Rendezvous, under store.Store, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rdzv, w.under, w.what.joined = r, under, true
	w.anew(now)
}

// anew takes it that a waiting begins.
func (w *waits) anew(now time.Time) { w.since, w.said, w.text = now, 0, "" }

// heard takes what the rendezvous says to the node.
func (w *waits) heard(a rdzv.Action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.met = w.met || a.Kind == rdzv.Place || a.Kind == rdzv.Wait || a.Kind == rdzv.Spare
	switch a.Kind {
	case rdzv.Place:
		w.what.placed, w.what.spare, w.said, w.text = a.Placement.Round, false, 0, ""
	case rdzv.Wait, rdzv.Spare:
		w.what.spare = a.Kind == rdzv.Spare
	case rdzv.Finished, rdzv.Refuse:
		w.what.over = true
	}
}

// announce tells, until c is over.
func (w *waits) announce(c context.Context) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-c.Done():
			return
		case now := <-ticks.C:
			if line := w.line(c, now); line != "" {
				w.say(line)
			}
		}
	}
}

// when are the times at which a node that waits says so, and how often after those.
var when = [...]time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}

func dueAt(said int) time.Duration {
	if said < len(when) {
		return when[said]
	}
	return when[len(when)-1] * time.Duration(said-len(when)+2)
}

// line is what there is to say now, "" if nothing, or nothing new.
func (w *waits) line(c context.Context, now time.Time) string {
	what, under, waited := w.due(now)
	if !what.waiting() {
		return ""
	}
	if what.joined && what.placed < 0 && what.sum.Nodes < what.sum.Min {
		what.others = otherJobs(c, under, w.job)
	}
	text := what.text(w.where(), waited, w.patience, w.lastCall)
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == w.text {
		return ""
	}
	w.text = text
	return text
}

// due is how things stand, if it is time to say so, and they are known: not while the rendezvous is
// out of reach. Else nobody waits.
func (w *waits) due(now time.Time) (what standing, under store.Store, waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rdzv != nil {
		if w.rdzv.Away() {
			return standing{over: true}, nil, 0
		}
		w.what.sum, w.what.known = w.rdzv.Latest()
		w.met = w.met || w.what.known && w.what.sum.Phase != rdzv.Closed
	}
	if !w.what.waiting() {
		w.anew(now)
	}
	waited = now.Sub(w.since)
	if waited.Round(time.Second) < dueAt(w.said) { // a tick may come early
		return standing{over: true}, nil, 0
	}
	w.said++
	return w.what, w.under, waited
}

// waiting says whether the node has no place in a round that is complete.
func (s standing) waiting() bool {
	if s.over || s.sum.Phase == rdzv.Closed {
		return false
	}
	return s.placed < 0 || s.known && s.sum.Phase == rdzv.Gathering && s.sum.Round > s.placed
}

// text says what the node waits for, at an endpoint and of a job.
func (s standing) text(at string, waited, patience, lastCall time.Duration) string {
	spent := fmt.Sprintf("%.0f s of %.0f s", waited.Seconds(), patience.Seconds())
	lack := s.sum.Min - s.sum.Nodes
	switch {
	case !s.joined && s.err != nil:
		return fmt.Sprintf("waiting for the store at %s, %s: %v", at, spent, s.err)
	case !s.joined:
		return fmt.Sprintf("waiting for the store at %s, %s", at, spent)
	case !s.known:
		return fmt.Sprintf("waiting for the rendezvous at %s, %s", at, spent)
	case s.sum.Phase == rdzv.Gathering && lack > 0:
		return fmt.Sprintf("waiting for %s at %s, %s%s", more(lack), at, spent, s.elsewhere())
	case s.sum.Phase == rdzv.Gathering:
		return fmt.Sprintf("%s at %s; the round begins when there are %d, or %.0f s after the last that was needed has come", there(s.sum.Nodes), at, s.sum.Max, max(lastCall, 0).Seconds())
	case s.spare:
		return fmt.Sprintf("this node is redundant: %d of %d nodes take part at %s; it steps in when one of them is gone", s.sum.Nodes, s.sum.Max, at)
	}
	return fmt.Sprintf("waiting for the next round at %s, %s", at, spent)
}

func there(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return fmt.Sprintf("%d nodes are", n)
}

func more(n int) string {
	if n == 1 {
		return "1 more node"
	}
	return fmt.Sprintf("%d more nodes", n)
}

func (s standing) elsewhere() string {
	if len(s.others) == 0 {
		return ""
	}
	return " (other jobs meet there, too: " + strings.Join(s.others, ", ") + "; is the id the right one?)"
}

// otherJobs are some of the other jobs that meet in a store: who waits in vain may have the wrong
// name.
func otherJobs(c context.Context, st store.Store, own string) []string {
	c, cancel := context.WithTimeout(c, time.Second)
	defer cancel()
	jobs, err := Jobs(c, st)
	if err != nil {
		return nil // a store of another kind may be unable to tell
	}
	jobs = slices.DeleteFunc(jobs, func(id string) bool { return id == own })
	return jobs[:min(len(jobs), 3)]
}

// Jobs are the names of the jobs whose nodes meet, or have met, in a store, sorted.
func Jobs(c context.Context, st store.Store) ([]string, error) {
	keys, err := st.ListKeys(c)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, key := range keys {
		id, found := strings.CutPrefix(key, rendezvousKeys)
		if id, leader := strings.CutSuffix(id, "/leader"); found && leader {
			out = append(out, id)
		}
	}
	return out, nil
}
