package ctx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// defaultLease is how long a part of a pass stays without word from the worker that opened it.
const defaultLease = 30 * time.Second

// ErrLease is why a part of a pass was freed whose opener could not be asked, or no longer has it.
var ErrLease = errors.New("the lease has run out")

// dueLocked says which parts of others' passes should be asked about, by opener, and which nobody
// answered for in time. The caller holds ct.mu.
func (ct *Container) dueLocked(now time.Time) (ask map[WorkerID][]PassID, over []*Pass) {
	ask = map[WorkerID][]PassID{}
	for id, p := range ct.passes {
		opener := id.Creator()
		if opener == ct.me {
			continue
		}
		switch age := now.Sub(p.heard); {
		case age >= ct.lease:
			over = append(over, p)
		case age >= ct.lease/3:
			ask[opener] = append(ask[opener], id)
		}
	}
	return ask, over
}

// watchLocked has leases looked after while there are parts of others' passes. The caller holds
// ct.mu.
func (ct *Container) watchLocked() {
	if ct.watching || ct.closed {
		return
	}
	ct.watching = true
	ct.watch = time.AfterFunc(ct.lease/3, ct.renew)
}

// renew is one look at all leases.
func (ct *Container) renew() {
	if !ct.begin() {
		return
	}
	defer ct.done()
	ct.mu.Lock()
	ask, over := ct.dueLocked(time.Now())
	ct.mu.Unlock()
	for _, p := range over {
		ct.expire(p, fmt.Errorf("%w: %s could not be asked", ErrLease, ct.links.Name(p.id.Creator())))
	}
	var wg sync.WaitGroup
	for opener, ids := range ask {
		wg.Go(func() { ct.askFor(opener, ids) })
	}
	wg.Wait()
	ct.mu.Lock()
	defer ct.mu.Unlock()
	ct.watching = false
	foreign := false
	for id := range ct.passes {
		foreign = foreign || id.Creator() != ct.me
	}
	if foreign {
		ct.watchLocked()
	}
}

// askFor renews the leases of passes that their opener still has, and frees the others.
func (ct *Container) askFor(opener WorkerID, ids []PassID) {
	c, cancel := context.WithTimeout(ct.cleanCtx, ct.lease/3)
	defer cancel()
	asked := time.Now()
	left, err := ct.links.SendRenew(c, opener, ids)
	if err != nil {
		ct.log.Debug("could not ask for passes", "peer", ct.links.Name(opener), "err", err)
		return
	}
	for _, id := range ids {
		ct.mu.Lock()
		p := ct.passes[id]
		if p != nil {
			p.heard = asked
		}
		ct.mu.Unlock()
		if p != nil && slices.Contains(left, id) {
			ct.expire(p, fmt.Errorf("%w: %s has left it", ErrLease, ct.links.Name(opener)))
		}
	}
}

// expire frees this worker's part of a pass, and those that it brought other workers.
func (ct *Container) expire(p *Pass, why error) {
	if ct.remove(p.id, ct.me, why) == nil {
		return
	}
	ct.log.Info("freed a pass", "pass", p.id, "why", why)
	p.release(p.id.Creator(), why)
	ct.clean(p.id, p.others(p.id.Creator()))
}

// HandleRenew says which of a worker's parts of passes that this one opened are of no use any more.
func (ct *Container) HandleRenew(ids []PassID) (left []PassID) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	for _, id := range ids {
		if ct.passes[id] == nil {
			left = append(left, id)
		}
	}
	return left
}
