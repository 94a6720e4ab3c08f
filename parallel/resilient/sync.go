package resilient

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
	"github.com/weft-project/weft/rpc"
)

// word is what each member tells all when they come together.
type word struct {
	Status ledger.Status
	Nonce  string
	Life   string // the member's, by which it is known in another epoch, under whatever name
	Spec   string
	Calls  []string // newcomers that have called here
	Over   bool     // the members are about to become others: see Each
	Done   bool     // it makes no more steps
}

// pause is how long members wait before they look again for what they wait for.
const pause = 20 * time.Millisecond

// sync has the members tell one another their statuses, until all that are left have one plan. They
// are at its step then.
func (t *Team) sync(c context.Context) error {
	for c.Err() == nil {
		err := t.repair(c)
		var all []word
		if err == nil {
			all, err = collective.Agree(c, t.g, t.word(c))
		}
		again := false
		if err == nil {
			again, err = t.settle(c, all)
		}
		if err == nil && !again {
			return nil
		}
		if err != nil && !t.mends(c, err) {
			return err
		}
	}
	return context.Cause(c)
}

// mends says whether members that tell one another their statuses again get over an error.
func (t *Team) mends(c context.Context, err error) bool {
	for _, fatal := range []error{ErrClosed, ErrEnded, elastic.ErrOver, collective.ErrExcluded, parallel.ErrFailed, ErrDifferent, ErrNoState} {
		if errors.Is(err, fatal) {
			return false
		}
	}
	for _, passes := range []error{collective.ErrLost, collective.ErrAborted, collective.ErrMismatch, rpc.ErrTimeout} {
		if errors.Is(err, passes) && c.Err() == nil {
			if t.g.Err() == nil {
				t.mail.idle(c, pause) // who has left says so
			}
			return true
		}
	}
	return false
}

func (t *Team) word(c context.Context) word {
	if t.m.Role() == ledger.Catching && t.catching == nil { // its transfer was cut off, and what came with it is gone
		t.m = ledger.New(len(t.layout), false, 0)
	}
	s := word{Nonce: rand.Text(), Life: t.life, Spec: digestOf(t.spec), Over: t.isOver(), Done: t.done}
	t.m.Keep(t.keeps.steps()...)
	if t.m.Role() == ledger.Ready && t.batch > 0 {
		t.m.Rows(t.batch)
	}
	if t.caughtUp() {
		t.m.Claim()
	}
	if t.tell && (t.m.Role() == ledger.Ready || t.caughtUp()) {
		if digest, err := t.digest(); err == nil {
			t.m.Known(digest)
		}
	}
	s.Status, s.Calls = t.m.Status(), t.calls(c)
	return s
}

func (t *Team) isOver() bool {
	select {
	case <-t.over: // nil where nobody says so
		return true
	default:
		return false
	}
}

// settle makes of all words what is to be done; again says that all have to tell theirs again.
func (t *Team) settle(c context.Context, all []word) (again bool, err error) {
	if err := t.compare(c, all); err != nil {
		return false, err
	}
	t.meet(all)
	if slices.ContainsFunc(all, func(s word) bool { return s.Over }) {
		return false, elastic.ErrOver
	}
	if names := t.newcomers(all); len(names) > 0 {
		t.invite(c, names)
		return true, nil
	}
	ends := slices.ContainsFunc(all, func(s word) bool { return s.Done }) // who is a step behind gets that first
	if short := t.cfg.Min - len(all); short > 0 && !ends {
		t.awaitOthers(c, short)
		return true, nil
	}
	t.change.Short = 0
	var statuses []ledger.Status
	for _, s := range all {
		statuses = append(statuses, s.Status)
	}
	p, err := ledger.Decide(statuses, len(t.layout))
	if err != nil {
		return false, t.named(err)
	}
	if err := t.undertake(c, p, all); err != nil {
		return false, err
	}
	return t.dismiss(all)
}

// undertake begins with a plan: who is a step behind makes that step.
func (t *Team) undertake(c context.Context, p ledger.Plan, all []word) error {
	rank, era := t.g.Rank(), p.Era
	if era == "" {
		era = all[0].Nonce
	}
	was := t.m.Role()
	if void := t.m.Take(p, rank, era); void {
		t.dropStep()
	}
	if p.Base[rank] {
		t.dropLast()
		t.stopCatching()
	}
	for _, tr := range p.Before {
		if err := t.spread(c, tr, t.last, t.m.Step() < p.Step); err != nil {
			return err
		}
	}
	if t.m.Step() < p.Step {
		if err := t.apply(); err != nil {
			return err
		}
	}
	var ready []string // workers
	wanted := map[uint64]bool{}
	for r, role := range p.Roles {
		switch {
		case role == ledger.Ready:
			ready = append(ready, t.g.Members()[r].Worker)
		case p.Base[r]:
			wanted[p.Step] = true
		case !all[r].Status.Loaded:
			wanted[all[r].Status.Base] = true
		}
	}
	t.keeps.only(wanted)
	switch {
	case p.Roles[rank] == ledger.Ready:
		t.stopCatching()
		host.Forget(t.blank)
		if wanted[p.Step] {
			t.keeps.snap(p.Step, t.state)
		}
		if was != ledger.Ready {
			t.cfg.Logger.Debug("this member has the state", "step", p.Step)
		}
	case p.Base[rank]:
		t.startCatching(p.Step)
	}
	t.catchFrom(ready)
	t.plan, t.tell, t.prev = &p, false, nil
	return nil
}

// dismiss lets those go that make no more steps.
func (t *Team) dismiss(all []word) (again bool, err error) {
	var done []string
	rest := 0
	for rank, s := range all {
		switch {
		case s.Done:
			done = append(done, t.g.Members()[rank].Worker)
		case t.plan.Roles[rank] == ledger.Ready:
			rest++
		}
	}
	switch {
	case rest == 0 && len(done) > 0 && !t.done:
		return false, ErrEnded
	case len(done) == 0, t.done:
		return false, nil
	case all[t.g.Rank()].Status.Step < t.m.Step(): // its step is made, and perhaps it was the last one
		t.plan = nil
		return false, nil
	}
	t.mail.leaves(done)
	return true, nil // repair goes on without them
}
