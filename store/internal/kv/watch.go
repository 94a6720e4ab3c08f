package kv

import (
	"context"
	"sync"
)

// ChangeKind is what happened to a watched key. The values are those of PyTorch 1.13's protocol.
type ChangeKind byte

// The kinds of change.
const (
	Updated ChangeKind = iota
	Created
	Deleted
)

// String is the kind's name.
func (k ChangeKind) String() string {
	switch k {
	case Updated:
		return "updated"
	case Created:
		return "created"
	case Deleted:
		return "deleted"
	}
	return "unknown"
}

// Change is one thing that happened to a watched key. The reader owns its slices.
type Change struct {
	Kind     ChangeKind
	Key      string
	Old, New []byte // nil where there was none, and where there is none any more
	// Dropped is how many changes before this one are missing, because the reader was slow or the
	// connection was lost; -1 means that it is not known how many. The latest change is never
	// dropped.
	Dropped int
}

const (
	watchMost  = 1024     // changes kept for a slow reader
	watchBytes = 32 << 20 // bytes of values in them; one change is kept whatever its size
)

// Watch is the news of one key: changes in their order. It keeps up to 1024 of them, or 32 MiB, for
// a slow reader and then drops the oldest. It is safe for concurrent use.
type Watch struct {
	// C delivers the changes. It is closed when the watch has ended.
	C <-chan Change

	over context.CancelCauseFunc
	wake chan struct{} // capacity 1
	done chan struct{} // closed after C

	mu      sync.Mutex
	queue   []Change
	bytes   int   // in queue
	dropped int   // before queue[0]
	ended   error // no more will be sent; what is queued is still delivered
	err     error
}

// NewWatch is for those who write a Store: a watch that lives until c is over, Stop is called, or
// its last change after end was delivered; then it calls release, once. send queues a change, never
// blocks, and owns its slices; end closes the watch after what is queued, with an error that Err
// returns and that is not nil. Both may be called at any time; after end the other does nothing.
func NewWatch(c context.Context, release func()) (w *Watch, send func(Change), end func(error)) {
	c, over := context.WithCancelCause(c)
	out := make(chan Change)
	w = &Watch{C: out, over: over, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.forward(c, out, release)
	return w, w.send, w.end
}

// Stop ends the watch and returns when nothing of it is left.
func (w *Watch) Stop() {
	w.over(nil)
	<-w.done
}

// Err says why C was closed: the context's cause, ErrClosed, or what became of the connection. It
// is nil before, and context.Canceled after Stop.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Watch) forward(c context.Context, out chan<- Change, release func()) {
	err := w.deliver(c, out)
	release()
	w.over(nil)
	w.mu.Lock()
	w.err, w.queue = err, nil
	w.mu.Unlock()
	close(out)
	close(w.done)
}

func (w *Watch) deliver(c context.Context, out chan<- Change) error {
	for {
		ch, there, ended := w.poll()
		switch {
		case there:
			select {
			case out <- ch:
			case <-c.Done():
				return context.Cause(c)
			}
		case ended != nil:
			return ended
		default:
			select {
			case <-w.wake:
			case <-c.Done():
				return context.Cause(c)
			}
		}
	}
}

func (w *Watch) poll() (ch Change, there bool, ended error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Change{}, false, w.ended
	}
	ch = w.firstLocked()
	ch.Dropped, w.dropped = addDropped(ch.Dropped, w.dropped), 0
	return ch, true, nil
}

func (w *Watch) send(ch Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil || w.err != nil {
		return
	}
	w.queue = append(w.queue, ch)
	w.bytes += len(ch.Old) + len(ch.New)
	for len(w.queue) > watchMost || w.bytes > watchBytes && len(w.queue) > 1 {
		w.dropped = addDropped(addDropped(w.dropped, w.firstLocked().Dropped), 1)
	}
	w.nudge()
}

// firstLocked takes the oldest change out of the queue.
func (w *Watch) firstLocked() Change {
	ch := w.queue[0]
	w.queue[0] = Change{} // what was delivered is not kept
	w.queue = w.queue[1:]
	w.bytes -= len(ch.Old) + len(ch.New)
	return ch
}

func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = err
	}
	w.nudge()
}

func (w *Watch) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// addDropped adds two counts of which -1 means unknown.
func addDropped(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}
