package resilient

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
	"github.com/weft-project/weft/rpc"
)

// word is what each member tells all when they come together.
type word struct {
	Status ledger.Status
	Nonce  string
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
	for _, fatal := range []error{ErrClosed, ErrEnded, elastic.ErrOver, collective.ErrExcluded, ErrDifferent, ErrNoState} {
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
	s := word{Nonce: rand.Text(), Spec: digestOf(t.spec), Over: t.isOver(), Done: t.done}
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

// calls are newcomers that may come in.
func (t *Team) calls(c context.Context) []string {
	var dead []string
	names := slices.DeleteFunc(t.waiting(), func(name string) bool {
		_, err := t.g.Worker().Find(c, name)
		if err != nil {
			dead = append(dead, name)
		}
		return err != nil
	})
	t.mail.discard(dead)
	return names
}

// waiting are the newcomers that have called, and for whom there is room.
func (t *Team) waiting() []string {
	members := workers(t.g)
	names := slices.DeleteFunc(t.mail.calls(), func(name string) bool { return slices.Contains(members, name) })
	if t.cfg.Max > 0 {
		names = names[:min(len(names), max(t.cfg.Max-len(members), 0))]
	}
	return names
}

// repair goes on with the members that are left, where some are not.
func (t *Team) repair(c context.Context) error {
	for {
		before := workers(t.g)
		left := t.mail.gone(before)
		if t.g.Err() == nil && len(left) == 0 {
			return nil
		}
		if err := t.g.Err(); errors.Is(err, ErrClosed) || errors.Is(err, collective.ErrExcluded) {
			return err
		}
		if t.since.IsZero() {
			t.since = t.known.when()
		}
		next, err := t.without(c, left)
		switch {
		case t.unconfirmed(c, err):
			continue
		case err != nil:
			return err
		}
		t.adopt(next, before)
		if t.over != nil && 2*next.Size() <= t.world {
			return t.awaitPlace(c)
		}
	}
}

// unconfirmed says whether the store has not said who goes on, and waits a little then: it is asked
// again.
func (t *Team) unconfirmed(c context.Context, err error) bool {
	if !errors.Is(err, collective.ErrUnconfirmed) || c.Err() != nil {
		return false
	}
	t.cfg.Logger.Warn("the job's store does not say who goes on; asking again", "error", err)
	t.mail.idle(c, 10*pause)
	return true
}

// awaitPlace waits for what the nodes agree on, where half of an epoch's workers or more are lost:
// the others may be at work in the next one, whatever this one's store has confirmed.
func (t *Team) awaitPlace(c context.Context) error {
	t.cfg.Logger.Warn("most workers are lost; waiting for the nodes to agree who goes on", "left", workers(t.g))
	select {
	case <-t.over:
		return elastic.ErrOver
	case <-c.Done():
		return context.Cause(c)
	}
}

// without is the next generation. It is of no use when the members are about to become others.
func (t *Team) without(c context.Context, left []string) (*collective.Group, error) {
	c, cancel := context.WithCancel(c)
	defer cancel()
	if t.over != nil {
		done := make(chan struct{})
		defer func() { cancel(); <-done }()
		go func() {
			defer close(done)
			select {
			case <-t.over:
				cancel()
			case <-c.Done():
			}
		}()
	}
	next, err := t.g.Without(c, left...)
	if err != nil && t.isOver() {
		return nil, elastic.ErrOver
	}
	return next, err
}

// adopt makes the next generation the team's.
func (t *Team) adopt(next *collective.Group, before []string) {
	now := workers(next)
	for _, name := range before {
		if !slices.Contains(now, name) {
			t.change.Lost = append(t.change.Lost, name)
		}
	}
	for _, name := range now {
		if !slices.Contains(before, name) {
			t.change.Came = append(t.change.Came, name)
			t.mail.welcome(name)
		}
	}
	t.g, t.known, t.plan = next, know(next), nil
	t.mail.discard(now)
}

// settle makes of all words what is to be done; again says that all have to tell theirs again.
func (t *Team) settle(c context.Context, all []word) (again bool, err error) {
	if err := t.compare(c, all); err != nil {
		return false, err
	}
	if slices.ContainsFunc(all, func(s word) bool { return s.Over }) {
		return false, elastic.ErrOver
	}
	if names := t.newcomers(all); len(names) > 0 {
		return true, t.invite(c, names)
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
	return t.dismiss(c, all)
}

// newcomers are those that come in now: not before the team has begun, and not before a step under
// way is made, unless there are too few to make it.
func (t *Team) newcomers(all []word) (names []string) {
	begun, underway := false, false
	for _, s := range all {
		if s.Done {
			return nil
		}
		names = append(names, s.Calls...)
		begun, underway = begun || s.Status.Era != "", underway || len(s.Status.Covered) > 0
	}
	if !begun || underway && len(all) >= t.cfg.Min {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if t.cfg.Max > 0 { // members may have heard different calls
		names = names[:min(len(names), max(t.cfg.Max-len(all), 0))]
	}
	return names
}

// awaitOthers waits for other members to come, and says so once.
func (t *Team) awaitOthers(c context.Context, short int) {
	if t.change.Short != short {
		t.change.Short = short
		t.announce()
	}
	t.mail.idle(c, pause)
}

// invite takes newcomers in.
func (t *Team) invite(c context.Context, names []string) error {
	before := workers(t.g)
	limited, cancel := context.WithTimeout(c, inviting)
	defer cancel()
	next, err := t.g.With(limited, names...)
	if err != nil {
		t.mail.discard(names) // who is there calls again
		if c.Err() == nil && t.g.Err() == nil {
			t.cfg.Logger.Warn("newcomers that have called do not come", "workers", names, "error", err)
			return nil
		}
		return err
	}
	t.adopt(next, before)
	return nil
}

// inviting bounds how long newcomers may take that have called, and then do not come.
const inviting = 2 * time.Second

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
func (t *Team) dismiss(c context.Context, all []word) (again bool, err error) {
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
	}
	before := workers(t.g)
	next, err := t.g.Without(c, done...)
	switch {
	case err == nil:
		t.adopt(next, before)
	case t.unconfirmed(c, err):
		err = nil
	}
	return true, err
}
