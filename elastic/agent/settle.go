package agent

import (
	"context"
	"time"

	"github.com/weft-project/weft/elastic/internal/process"
)

// drainOutput waits until all output is written. That may take as long as who reads it likes, until
// this node is asked to end: then it takes process.Drain at most.
func (a *agent) drainOutput(c context.Context, asks <-chan chan<- Status) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.waiters.Wait()
		a.out.Drain()
		a.err.Drain()
	}()
	cancelled, aborted := c.Done(), a.spec.Abort
	var late <-chan time.Time
	for {
		select {
		case <-written:
			return
		case answer := <-asks:
			answer <- a.status()
			continue
		case <-late:
			a.out.Close()
			a.err.Close()
			return
		case <-cancelled:
		case <-aborted:
		}
		cancelled, aborted, late = nil, nil, time.After(process.Drain)
	}
}
