package store

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A release is what a fake server is like, as far as a client can notice.
type release struct {
	dialect Dialect
	own     bool // Weft's
	libuv   bool // answers a missing key with an empty value, where the others hang up
	lacks   []op
}

var (
	queueOps  = []op{opPush, opPop, opLen}
	newestOps = []op{opList, opBarrier}
	fakes     = map[string]release{
		"1.13": {dialect: Dialect113},
		"2.0":  {dialect: Dialect20},
		"2.1":  {dialect: Dialect21},
		"2.4":  {dialect: Dialect22, libuv: true, lacks: slices.Concat([]op{opPing}, queueOps, newestOps)},
		"2.6":  {dialect: Dialect22, libuv: true, lacks: slices.Concat(queueOps, newestOps)},
		"2.8":  {dialect: Dialect22, libuv: true, lacks: newestOps},
		"2.15": {dialect: Dialect22, libuv: true},
		"poll": {dialect: Dialect22, lacks: slices.Concat(queueOps, newestOps)}, // 2.6 with USE_LIBUV=0

		"2.15 poll": {dialect: Dialect22, lacks: queueOps},
		"weft":      {dialect: Dialect22, own: true},
	}
)

// fake is a server in this process: the core behind the wire, without limits, counters and care. It
// can vanish and come back, with or without what it knew, and be told what to do wrong.
type fake struct {
	t testing.TB
	release

	mu     sync.Mutex
	state  *state
	conns  map[clientID]*fakeConn
	last   clientID
	down   bool
	dialed int
	// on, unless nil, is told of every command before it is applied and says whether to hang up
	// instead. after is asked when it was, before it is answered.
	on, after func(cmd command) (hangUp bool)
	mute      func(cmd command) bool // says whether not to answer
	late      time.Duration          // for so long an answer is on its way
	deaf      bool                   // to waits, when a COMPARE_SET makes the key or a push ends them
}

type fakeConn struct {
	nc   net.Conn
	in   *decoder
	wake sync.Cond
	out  []byte
	gone bool
	// there are the keys of the last command if that was a CHECK answered with yes, and of its
	// peeks: another may have deleted them since.
	there []string
}

func newFake(t testing.TB, name string) *fake {
	rel, there := fakes[name]
	require.True(t, there, name)
	f := &fake{t: t, release: rel, state: newState(Limits{}.withDefaults()), conns: map[clientID]*fakeConn{}}
	t.Cleanup(f.stop)
	return f
}

// has says whether the release knows a command.
func (f *fake) has(o op) bool {
	_, err := wire{dialect: f.dialect, own: f.own}.code(o)
	return err == nil && !slices.Contains(f.lacks, o)
}

// client is one of the fake's.
func (f *fake) client(cfg ClientConfig) *Client {
	f.t.Helper()
	cfg.Addr, cfg.dial = "fake:1", f.dial
	if f.dialect == Dialect20 || f.dialect == Dialect21 {
		cfg.Dialect = f.dialect
	}
	cl, err := Dial(context.Background(), cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { cl.Close() })
	return cl
}

func (f *fake) dial(context.Context, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialed++
	if f.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	f.last++
	c := &fakeConn{nc: far, in: newDecoder(far, wire{dialect: f.dialect}, Limits{}.withDefaults())}
	c.wake.L = &f.mu
	f.conns[f.last] = c
	go f.read(f.last, c)
	go f.write(c)
	return near, nil
}

// stop hangs up on everybody; who dials is refused.
func (f *fake) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	for id, c := range f.conns {
		f.goneLocked(id, c)
	}
}

func (f *fake) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
}

func (f *fake) set(key, value string) {
	f.apply(command{op: opSet, key: key, value: []byte(value)})
}

// apply does what somebody else asks.
func (f *fake) apply(cmd command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replyLocked(f.state.apply(0, cmd, nil))
}

// stats is what the state holds, once what is under way has arrived: for use in a synctest bubble.
func (f *fake) stats() stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.stats()
}

func (f *fake) goneLocked(id clientID, c *fakeConn) {
	c.gone = true
	c.wake.Signal()
	delete(f.conns, id)
	f.replyLocked(f.state.leaves(id, nil))
}

func (f *fake) read(id clientID, c *fakeConn) {
	ok := f.dialect != Dialect22 || c.in.greeting(Dialect22) == nil
	for ok {
		cmd, err := c.in.command()
		ok = err == nil && !slices.Contains(f.lacks, cmd.op) && f.take(id, c, cmd)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.goneLocked(id, c)
}

func (f *fake) take(id clientID, c *fakeConn, cmd command) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case c.gone || f.on != nil && f.on(cmd):
		return false
	case cmd.op == opPing:
		c.sendLocked(reply{op: opPing, n: cmd.delta})
		return true
	case f.own && c.in.asksOwnMode(&cmd):
		c.sendLocked(reply{op: opCheck, ok: true})
		c.in.own = true
		return true
	case cmd.op == opCompareSet && f.libuv:
		if string(cmd.expected) == unlikely && !slices.Contains(c.there, cmd.key) && !f.state.has(cmd.key) {
			f.t.Error("the client peeks at a server that wakes those who wait")
		}
	}
	replies := f.state.apply(id, cmd, nil)
	if cmd.op != opCompareSet {
		c.there = nil
	}
	if cmd.op == opCheck && len(replies) > 0 && replies[0].ok {
		c.there = cmd.keys
	}
	if f.after != nil && f.after(cmd) {
		return false
	}
	if f.mute != nil && f.mute(cmd) {
		return true
	}
	if f.deaf && (cmd.op == opCompareSet || cmd.op == opPush) {
		replies = slices.DeleteFunc(replies, func(r reply) bool { return r.to != id })
	}
	return f.replyLocked(replies)
}

func (f *fake) replyLocked(replies []reply) (ok bool) {
	ok = true
	for _, r := range replies {
		c := f.conns[r.to]
		if c == nil {
			continue
		}
		if !c.in.own && (r.err != nil || r.op == opMultiGet && !r.ok) {
			if ok = f.libuv && (r.op == opMultiGet || errors.Is(r.err, errNoKey)); !ok {
				continue
			}
			r.err = nil
		}
		c.sendLocked(r)
	}
	return ok
}

func (c *fakeConn) sendLocked(r reply) {
	if c.in.answered(r.op) || r.op == opNews {
		c.out = c.in.appendReply(c.out, r)
		c.wake.Signal()
	}
}

func (f *fake) write(c *fakeConn) {
	defer c.nc.Close()
	for {
		f.mu.Lock()
		for len(c.out) == 0 && !c.gone {
			c.wake.Wait()
		}
		out := c.out
		c.out = nil
		late := f.late
		f.mu.Unlock()
		time.Sleep(late)
		if len(out) == 0 {
			return
		}
		_ = c.nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.nc.Write(out); err != nil {
			return
		}
	}
}
