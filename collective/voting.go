package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// voting is a worker's part in agreeing on the generation after one. It carries out what the ballot
// says.
type voting struct {
	w    *rpc.Worker
	name string // of the group
	base ballot.Roll
	me   ballot.Who
	life context.Context
	end  context.CancelFunc
	runs crew
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	service string // of the members, in the generation that ends
	lineage string
	ballot  *ballot.Ballot
	met     map[ballot.Who]bool // who was a worker of the job at some time, as far as is known here
	hosts   map[ballot.Who]string
	next    *Group // that was founded and not handed out
	busy    bool
	failed  error // at the store, or in founding
}

func newVoting(w *rpc.Worker, name string, base ballot.Roll, me ballot.Who) *voting {
	v := &voting{
		w: w, name: name, base: base, me: me, wake: make(chan struct{}, 1),
		ballot: ballot.New(base, me, uint64(time.Now().UnixNano())), met: map[ballot.Who]bool{}, hosts: map[ballot.Who]string{me: hostname()},
	}
	v.life, v.end = context.WithCancel(context.Background())
	for _, who := range base.Members {
		v.met[who] = base.Has(me) // a newcomer may know less than the members
	}
	return v
}

// identify says which group's voting it is.
func (v *voting) identify(service, lineage string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.service, v.lineage = service, lineage
}

// hear takes what another has said. It says whether the group goes on without this worker.
func (v *voting) hear(from rpc.WorkerInfo, n vote) (out bool) {
	who := whoIs(from)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lineage == n.Lineage && n.Base.Generation == v.base.Generation {
		v.hosts[who] = n.Host
		v.ballot.Hear(who, n.Said)
		notify(v.wake)
	}
	return v.ballot.Out()
}

// left notes that a member has closed the group, and makes up no next generation.
func (v *voting) left(m Member) {
	v.with(func() { v.ballot.Left(m.who()) })
	notify(v.wake)
}

// pass notes that there is a later generation than the next one.
func (v *voting) pass() {
	v.with(v.ballot.Pass)
	notify(v.wake)
}

// inviting is how often newcomers are looked for that have not answered yet.
const inviting = 50 * time.Millisecond

// agree takes part until there is a next generation. start tells the ballot that this worker waits.
func (v *voting) agree(c context.Context, start func(*ballot.Ballot)) (*Group, error) {
	watched, cancel := context.WithCancel(c)
	defer cancel()
	events := v.w.Peers(watched)
	again := time.NewTicker(inviting)
	defer again.Stop()
	v.with(func() {
		v.failed = nil
		start(v.ballot)
	})
	for {
		v.look(c)
		v.act(c)
		if next, err := v.outcome(); next != nil || err != nil {
			return next, err
		}
		select {
		case <-v.wake:
		case <-v.ended():
		case <-again.C:
			v.with(v.ballot.Remind)
		case _, ok := <-events:
			if !ok && c.Err() == nil {
				return nil, rpc.ErrLeft
			}
		case <-v.life.Done():
			return nil, ErrClosed
		case <-c.Done():
			return nil, v.giveUp(c)
		}
	}
}

func (v *voting) with(do func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	do()
}

// look finds who is lost. Who was never known here may be about to be.
func (v *voting) look(c context.Context) {
	v.mu.Lock()
	people := v.ballot.People()
	v.mu.Unlock()
	for _, who := range people {
		info, err := v.w.Find(c, who.Name)
		if c.Err() != nil {
			return
		}
		v.with(func() {
			switch {
			case err == nil && info.Incarnation == who.Life:
				v.met[who] = true
			case errors.Is(err, rpc.ErrPeerLeft) && !errors.Is(err, transport.ErrClosed) && v.met[who]: // it says so, and not this end
				v.ballot.Left(who)
			case err == nil && info.Incarnation > who.Life, v.met[who]:
				v.ballot.Lose(who)
			}
		})
	}
}

// act does what the ballot asks for.
func (v *voting) act(c context.Context) {
	for {
		var acts []ballot.Action
		v.with(func() { acts = v.ballot.Actions() })
		if len(acts) == 0 {
			return
		}
		for _, a := range acts {
			switch a.Kind {
			case ballot.Say:
				v.say(a.To, a.Said)
			case ballot.Yield:
				v.runs.Go(v.yield)
			case ballot.Ask:
				v.runs.Go(func() { v.ask(c, a.Roll) })
			case ballot.Found:
				v.found(a.Roll)
			}
		}
	}
}

// say posts what this worker says. Who cannot be reached is found to be lost otherwise.
func (v *voting) say(to ballot.Who, said ballot.Said) {
	runs, life := &v.runs, v.life
	var n vote
	v.with(func() {
		n = vote{Lineage: v.lineage, Service: v.service, Base: ballot.Roll{Generation: v.base.Generation}, Host: v.hosts[v.me], Said: said}
		if v.next != nil { // which others wait for, also when this generation is over
			runs, life = &v.next.runs, v.next.life
		}
	})
	service := n.Service + votes
	if !v.base.Has(to) {
		service, n.Base = enlisting+v.name, v.base
	}
	raw := encode(n)
	runs.Go(func() {
		c, cancel := context.WithTimeout(life, patience)
		defer cancel()
		_ = rpc.Post(c, v.w, to.Name, service, raw)
	})
}

// yielding is longer than it takes until silence is a loss.
const yielding = 3 * time.Second

// yield gives a larger part of the group the time to see a loss.
func (v *voting) yield() {
	t := time.NewTimer(yielding)
	defer t.Stop()
	select {
	case <-t.C:
		v.with(v.ballot.Yielded)
		notify(v.wake)
	case <-v.life.Done():
	}
}

// ask proposes a generation to the store, which takes the first one.
func (v *voting) ask(c context.Context, roll ballot.Roll) {
	var before []byte // nothing is there before there has been another
	if v.base.Generation > 0 {
		before = encode(v.base)
	}
	c, cancel := context.WithCancel(c)
	defer cancel()
	defer context.AfterFunc(v.life, cancel)()
	raw, err := rpc.CompareSet(c, v.w, "collective/"+v.lineage, before, encode(roll))
	var now ballot.Roll
	if err == nil {
		err = cbor.Unmarshal(raw, &now)
	}
	if err == nil && now.Generation <= v.base.Generation {
		err = errors.New("it has forgotten the one before")
	}
	v.with(func() {
		if err != nil {
			v.ballot.Fail()
			v.failed = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
		} else {
			v.ballot.Answer(now)
		}
	})
	notify(v.wake)
}

// found makes the next generation's group, which others may send to from now on.
func (v *voting) found(roll ballot.Roll) {
	next, err := found(v.w, v.name, fmt.Sprintf("collective/%s/%d", v.lineage, roll.Generation), v.lineage, roll)
	v.with(func() {
		if err != nil {
			v.ballot.Unfounded()
			v.failed = err
			return
		}
		v.next = next
		v.ballot.Founded()
	})
}

// outcome is the next generation, or why there is none; neither while it is open.
func (v *voting) outcome() (*Group, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.ballot.Out():
		return nil, v.outLocked()
	case v.next != nil && (v.ballot.Done() || v.next.Err() != nil):
		next, hosts := v.next, make([]string, 0, len(v.hosts))
		v.next = nil
		for _, who := range next.roll.Members {
			hosts = append(hosts, v.hosts[who])
		}
		next.meet(hosts)
		for _, m := range next.members {
			if v.ballot.HasLeft(m.who()) { // too late to be left out
				next.voting.left(m)
				next.lose(m, &closedError{m.Worker})
			}
		}
		return next, nil
	case v.failed != nil:
		v.ballot.Stop()
		return nil, v.failed
	}
	return nil, nil
}

// ended is closed when the next generation has ended before this worker had it, as when a member
// that had it before lost another one. There is nobody to wait for then.
func (v *voting) ended() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		return nil
	}
	return v.next.over
}

// outLocked says with whom the group goes on. The caller holds v.mu.
func (v *voting) outLocked() error {
	next := v.ballot.Next()
	if next == nil {
		return ErrExcluded
	}
	return fmt.Errorf("%w: its generation %d has %v", ErrExcluded, next.Generation, names(next.Members))
}

func names(people []ballot.Who) (all []string) {
	for _, who := range people {
		all = append(all, who.Name)
	}
	return all
}

// giveUp says that this worker waits no more.
func (v *voting) giveUp(c context.Context) error {
	var missing []ballot.Who
	v.with(func() {
		missing = v.ballot.Missing()
		v.ballot.Stop()
	})
	v.act(v.life)
	if errors.Is(c.Err(), context.DeadlineExceeded) {
		return &LateError{By: v.me.Name, Missing: names(missing)}
	}
	return context.Cause(c)
}

// drop ends the voting, with what it has founded for nobody.
func (v *voting) drop() {
	v.end()
	v.runs.Close()
	v.mu.Lock()
	next := v.next
	v.next = nil
	v.mu.Unlock()
	if next != nil {
		_ = next.Close() // it owns nothing
	}
}
