package ctx

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds on telling one worker something. A worker that cannot be told in that time frees the pass
// by itself: when it notices that the opener is lost, or when the lease runs out.
const (
	maxTries    = 4
	tryTimeout  = 3 * time.Second
	firstPause  = 20 * time.Millisecond
	tellTimeout = maxTries * tryTimeout
)

// clean tells workers to free a pass, without waiting for them.
func (ct *Container) clean(id PassID, to []WorkerID) {
	ct.spread(id, "a pass was left", to, func(c context.Context, w WorkerID) error { return ct.links.SendCleanup(c, w, id) })
}

// spread brings news of a pass to workers, without waiting for them.
func (ct *Container) spread(id PassID, news string, to []WorkerID, send func(c context.Context, w WorkerID) error) {
	for _, w := range to {
		if !ct.begin() {
			return // they see this worker leave
		}
		go func() {
			defer ct.done()
			ct.notify(ct.cleanCtx, id, news, w, send)
		}()
	}
}

// begin counts something that Settle waits for, until done is called. It says no when the container
// is closed.
func (ct *Container) begin() bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	if !ct.closed {
		ct.telling++
	}
	return !ct.closed
}

func (ct *Container) done() {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	if ct.telling--; ct.telling == 0 && ct.settled != nil {
		close(ct.settled)
		ct.settled = nil
	}
}

// notify brings news to one worker. A message that gets lost is sent again; so is one that fails,
// unless the worker is lost.
func (ct *Container) notify(c context.Context, id PassID, news string, w WorkerID, send func(c context.Context, w WorkerID) error) {
	for try, pause := 0, firstPause; ; try, pause = try+1, 2*pause {
		once, cancel := context.WithTimeout(c, tryTimeout)
		err := send(once, w)
		cancel()
		switch {
		case err == nil || ct.cleanCtx.Err() != nil || errors.Is(err, ErrUnknownPass): // a worker that is closing is seen to leave
			return
		case errors.Is(err, ErrPeerLost):
			ct.log.Debug("could not tell a lost worker that "+news, "pass", id, "peer", ct.links.Name(w), "err", err)
			return
		case c.Err() != nil || try == maxTries-1:
			ct.log.Warn("could not tell a worker that "+news, "pass", id, "peer", ct.links.Name(w), "err", err)
			return
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-c.Done():
			wait.Stop()
		}
	}
}

// Settle waits until nothing is under way that this worker tells others of passes: clean-ups, news
// of failures, gradients for roots that have them already, and questions about leases.
func (ct *Container) Settle(c context.Context) error {
	ct.mu.Lock()
	busy := ct.telling > 0
	if busy && ct.settled == nil {
		ct.settled = make(chan struct{})
	}
	settled := ct.settled
	ct.mu.Unlock()
	if !busy {
		return nil
	}
	select {
	case <-settled:
		return nil
	case <-c.Done():
		return fmt.Errorf("%s: messages of passes are under way: %w", ct.links.Name(ct.me), context.Cause(c))
	}
}
