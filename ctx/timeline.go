package ctx

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
)

// Activity is what a worker's part of a backward does for a while.
type Activity string

// The activities. Gradients on their way are [Links]' matter.
const (
	Computing Activity = "compute"
	Waiting   Activity = "wait" // for gradients of other workers, or their answers
)

// Observer is told of the backwards of a container. Its methods are called on the goroutines of
// backwards, and must not wait.
type Observer interface {
	// Backward is told that this worker's part of a backward begins. Gradients are sent under the
	// context that it gives.
	Backward(c context.Context, pass PassID, id BackwardID) (context.Context, Timeline)
}

// Timeline is told what one part of a backward did; its methods are called one at a time.
type Timeline interface {
	// Did is told of one activity after the other; what names the functions, and the send functions
	// whose gradients came.
	Did(a Activity, what string, start, end time.Time)
	// End is told how the part ended.
	End(err error)
}

// timeline cuts a part of a backward into activities: it computes while its driver or a node beside
// it is at work. A nil one does nothing.
type timeline struct {
	to Timeline

	mu          sync.Mutex
	working     int
	since       time.Time
	first, last string // functions that ran since
	ran         int
}

// observe begins the timeline of a backward, where somebody observes.
func (b *backward) observe(c context.Context) context.Context {
	o := b.pass.ct.observer
	if o == nil {
		return c
	}
	c, to := o.Backward(c, b.pass.id, b.id)
	b.line = &timeline{to: to, working: 1, since: time.Now()}
	return c
}

// work says that somebody begins, or ceases, to work.
func (t *timeline) work(more int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.working
	t.working += more
	switch {
	case before == 0:
		t.cutLocked(Waiting, "")
	case t.working == 0:
		t.cutLocked(Computing, t.whatLocked())
	}
}

func (t *timeline) cutLocked(a Activity, what string) {
	now := time.Now()
	if a == Waiting || t.ran > 0 {
		t.to.Did(a, what, t.since, now)
	}
	t.since, t.ran = now, 0
}

func (t *timeline) whatLocked() string {
	switch t.ran {
	case 0, 1:
		return t.first
	case 2:
		return t.first + ", " + t.last
	}
	return fmt.Sprintf("%s … %s (%d in all)", t.first, t.last, t.ran)
}

// seal closes the timeline.
func (t *timeline) seal(err error) {
	if t == nil {
		return
	}
	t.work(-1)
	t.to.End(err)
}

// pull computes a node's gradients, and notes how long that took where somebody observes.
func (b *backward) pull(c context.Context, n *autodiff.Node, grads []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
	how := autodiff.Pull{Retain: b.retain, Anomaly: b.anomaly}
	if b.joint.has(n) {
		how.Shared = func(n *autodiff.Node, grads []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
			return b.joint.pull(c, n, grads)
		}
	}
	if b.line == nil {
		return n.PullWith(grads, how)
	}
	began := time.Now()
	outs, err := n.PullWith(grads, how)
	took := time.Since(began)
	b.line.mu.Lock()
	if b.line.last = n.Name(); b.line.ran == 0 {
		b.line.first = n.Name()
	}
	b.line.ran++
	b.line.mu.Unlock()
	b.pass.mu.Lock()
	b.pass.shown.took(n, took)
	b.pass.mu.Unlock()
	return outs, err
}
