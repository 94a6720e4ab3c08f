package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// link is one connection of a client, used by one operation at a time.
type link struct {
	nc  net.Conn
	in  *decoder
	out []byte
}

// ask sends a command and reads its reply.
func (l *link) ask(cmd command) (reply, error) {
	var err error
	if l.out, err = l.in.appendCommand(l.out[:0], cmd); err != nil {
		return reply{}, err
	}
	if !l.in.answered(cmd.op) {
		cmd = command{op: opCheck}
		if l.out, err = l.in.appendCommand(l.out, cmd); err != nil {
			return reply{}, err
		}
	}
	if _, err := l.nc.Write(l.out); err != nil {
		return reply{}, err
	}
	if cap(l.out) > peerFull {
		l.out = nil
	}
	r, err := l.in.reply(cmd)
	if errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return r, err
}

// with lends f a connection for the time of the operation. The connection is kept for others only if f succeeded
// before the operation's context was over: then nothing is left to be read on it.
func (cl *Client) with(o *Operation, f func(*link) error) error {
	l, err := cl.take(o)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(o.Context, func() { _ = l.nc.SetDeadline(time.Unix(1, 0)) })
	err = f(l)
	if inTime := stop(); err == nil && inTime {
		cl.put(l)
		return nil
	}
	cl.drop(l)
	if err == nil {
		return nil
	}
	return cl.explain(o, err)
}

// explain turns what a connection said into what is the matter.
func (cl *Client) explain(o *Operation, err error) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.closed:
		return ErrClosed
	case o.Context.Err() != nil:
		return o.Over()
	case errors.Is(err, ErrProtocol):
		return err
	case hungUp(err): // the idle connections are most likely dead too
		for _, l := range cl.idle {
			l.nc.Close()
			delete(cl.live, l)
		}
		cl.idle = nil
		return fmt.Errorf("%w: %w", errHungUp, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// take gives an idle connection or a new one. A client that was connected once does not wait for a server that is
// gone.
func (cl *Client) take(o *Operation) (*link, error) {
	cl.mu.Lock()
	if cl.closed {
		cl.mu.Unlock()
		return nil, ErrClosed
	}
	if n := len(cl.idle); n > 0 {
		l := cl.idle[n-1]
		cl.idle = slices.Delete(cl.idle, n-1, n)
		cl.mu.Unlock()
		return l, nil
	}
	cl.mu.Unlock()
	l, err := cl.connect(o)
	if err != nil {
		return nil, cl.explain(o, err)
	}
	return l, nil
}

func (cl *Client) put(l *link) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !cl.closed && len(cl.idle) < cl.cfg.MaxIdle {
		cl.idle = append(cl.idle, l)
		return
	}
	delete(cl.live, l)
	l.nc.Close()
}

func (cl *Client) drop(l *link) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.live, l)
	l.nc.Close()
}

func (cl *Client) connect(o *Operation) (*link, error) {
	nc, err := cl.cfg.dial(o.Context, cl.base.addr)
	if err != nil {
		return nil, err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.closed {
		nc.Close()
		return nil, ErrClosed
	}
	l := &link{nc: nc, in: newDecoder(nc, wire{dialect: Dialect113}, cl.base.limits)}
	cl.live[l] = struct{}{}
	return l, nil
}

// connectUntil tries until there is a server or no time.
func (cl *Client) connectUntil(o *Operation) (*link, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		l, err := cl.connect(o)
		if err == nil {
			return l, nil
		}
		// Many workers start at the same moment; the jitter keeps them from knocking at the same moment too.
		over := pause(o, wait/2+rand.N(wait))
		if errors.Is(over, context.Canceled) {
			return nil, fmt.Errorf("%w: gave up trying to connect to %s (%w): %w", ErrUnreachable, cl.base.addr, err, over)
		}
		if over != nil {
			return nil, fmt.Errorf("%w: client socket has timed out after %v while trying to connect to %s (%w): %w",
				ErrUnreachable, o.limit(), cl.base.addr, err, over)
		}
	}
}

// pollEvery is how often is looked for what nobody tells.
const pollEvery = 10 * time.Millisecond

// pause waits for d, or less if the operation is over, and says why.
func pause(o *Operation, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-o.Context.Done():
		return o.Over()
	}
}
