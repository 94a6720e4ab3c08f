package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
)

// call is one operation of a client. Where the context has no deadline it has none with a timer
// made for it, which would cost more than all the rest of an operation at this end: the
// connection's deadline does.
type call struct {
	c        context.Context // the caller's
	start    time.Time
	deadline time.Time // c's, or by the store's timeout
	addr     string
	name     string
	keys     []string
}

// begin refuses bad keys and a context that is over.
func (cl *Client) begin(c context.Context, name string, keys ...string) (*call, error) {
	k := &call{c: c, start: time.Now(), addr: cl.base.Addr, name: name, keys: keys}
	var bounded bool
	if k.deadline, bounded = c.Deadline(); !bounded {
		k.deadline = k.start.Add(cl.base.Timeout)
	}
	err := kv.CheckKeys(cl.base.Limits, keys)
	if err == nil && c.Err() != nil {
		err = k.over()
	}
	if err != nil {
		return nil, k.fail(err)
	}
	return k, nil
}

func (k *call) operation() *kv.Operation {
	return &kv.Operation{Context: k.c, Start: k.start, Name: k.name, Addr: k.addr, Keys: k.keys}
}

// fail dresses err; nil stays nil.
func (k *call) fail(err error) error {
	if err == nil {
		return nil
	}
	return k.operation().Fail(err)
}

// over says why there is no more time: the context's reason, or the store's own timeout.
func (k *call) over() error {
	var err error
	if k.c.Err() != nil {
		err = k.operation().Over()
	} else {
		err = kv.KeysTimeout(k.name, k.limit(), k.keys)
	}
	if k.name == "dial" && errors.Is(err, kv.ErrTimeout) { // in PyTorch's words
		err = kv.Timeout(fmt.Sprintf("client socket has timed out after %v while trying to connect to %s", k.limit().Round(time.Millisecond), k.addr))
	}
	return err
}

func (k *call) isOver() bool { return k.c.Err() != nil || !time.Now().Before(k.deadline) }

// limit is how long the operation had.
func (k *call) limit() time.Duration { return max(0, k.deadline.Sub(k.start)) }

// pause waits for d, or less if the operation or the client is over, and says why.
func (cl *Client) pause(k *call, d time.Duration) error {
	left := time.Until(k.deadline)
	t := time.NewTimer(min(d, left))
	defer t.Stop()
	select {
	case <-t.C:
		if d < left {
			return nil
		}
		return k.over()
	case <-k.c.Done():
		return k.over()
	case <-cl.life.Done():
		return kv.ErrClosed
	}
}

// withRetry does f on a connection, and again on another as long as that is safe and there is time.
func (cl *Client) withRetry(k *call, f func(*link) error) error {
	var r retry
	var last error // why the try before did not do it
	for start := k.start; ; start = time.Now() {
		o := cl.try(k, start, f)
		if o.err == nil {
			return nil
		}
		if errors.Is(o.err, errNotYet) {
			return errNotYet
		}
		gone := failedToDial(o.err) && errors.Is(last, kv.ErrNotTLS) // what the server was says more
		if last != nil && (o.late || o.final && gone) {
			o.err = fmt.Errorf("%w (%w)", o.err, last)
		}
		if !gone {
			last = o.err
		}
		wait, over, err := r.next(o, rand.Float64())
		if over {
			return err
		}
		if err := cl.pause(k, wait); err != nil {
			_, _, err = r.next(outcome{err: fmt.Errorf("%w (%w)", err, last), final: true}, 0)
			return err
		}
	}
}

// waitAnswer is run of what may say errNotYet.
func (cl *Client) waitAnswer(k *call, f func(l *link, turn int) error) (err error) {
	for turn := 0; ; turn++ {
		if err = cl.withRetry(k, func(l *link) error { return f(l, turn) }); !errors.Is(err, errNotYet) {
			return err
		}
	}
}

// briefly is how soon a connection is closed that the server does not want, rather than loses.
const briefly = time.Second

// try does f on one connection and says what became of it. The connection is kept for others if
// nothing is left to be read on it.
func (cl *Client) try(k *call, start time.Time, f func(*link) error) outcome {
	l, err := cl.acquire(k)
	if err != nil {
		return cl.explain(k, outcome{err: err})
	}
	l.arm(k)
	err = f(l)
	l.disarm()
	o := outcome{err: err, sent: l.sent, told: l.settled}
	switch {
	case err == nil || l.settled:
		cl.put(l)
	case l.owed != nil && cl.drainLink(l):
	default:
		cl.drop(l)
	}
	if err == nil {
		return outcome{}
	}
	o.brief = hungUp(err) && time.Since(start) < briefly
	return cl.explain(k, o)
}

// explain turns what a connection said into what is the matter.
func (cl *Client) explain(k *call, o outcome) outcome {
	switch {
	case o.told && !errors.Is(o.err, errGivenUp): // the server's own words, or nothing was asked
	case cl.life.Err() != nil:
		o.err, o.final = kv.ErrClosed, true
	case k.isOver():
		err := k.over()
		if !ended(o.err) { // what kept it from being done in time
			err = fmt.Errorf("%w (%w)", err, unreachable(o.err))
		}
		o.err, o.final, o.late = err, true, ended(o.err)
	case errors.Is(o.err, kv.ErrTooLarge): // what the server says is
		o.err, o.final = fmt.Errorf("%w: %w", kv.ErrProtocol, o.err), true
	case hopeless(o.err), errors.Is(o.err, errRefused):
		o.final = true
	case hungUp(o.err):
		cl.dropIdle()
		if failedToDial(o.err) {
			o.err = unreachable(o.err)
		} else {
			o.err = fmt.Errorf("%w: %w", errHungUp, o.err)
		}
	default:
		o.err = unreachable(o.err)
	}
	return o
}

// hopeless says whether err is what another try, or time, does not mend.
func hopeless(err error) bool {
	return errors.Is(err, kv.ErrProtocol) || errors.Is(err, errTLS) ||
		errors.Is(err, kv.ErrForeign) || errors.Is(err, kv.ErrStranger) || errors.Is(err, kv.ErrNeedsTLS)
}

// ended says whether err is only that the time was over.
func ended(err error) bool {
	return errors.Is(err, errGivenUp) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)
}

// errHungUp is ErrUnreachable after an established connection ended while an answer was due.
var errHungUp = fmt.Errorf("%w: the connection was closed", kv.ErrUnreachable)

// hungUp says whether err is what an ended connection looks like from this end.
func hungUp(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.As(err, &op)
}

func failedToDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func unreachable(err error) error {
	if errors.Is(err, kv.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: %w", kv.ErrUnreachable, err)
}
