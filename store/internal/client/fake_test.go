package client

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
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// A release is what a fake server is like, as far as a client can notice.
type release struct {
	dialect wire.Dialect
	own     bool // Weft's
	libuv   bool // answers a missing key with an empty value, where the others hang up
	lacks   []state.Op
}

var (
	queueOps  = []state.Op{state.OpPush, state.OpPop, state.OpLen}
	newestOps = []state.Op{state.OpList, state.OpBarrier}
	fakes     = map[string]release{
		"1.13": {dialect: wire.Dialect113},
		"2.0":  {dialect: wire.Dialect20},
		"2.1":  {dialect: wire.Dialect21},
		"2.4":  {dialect: wire.Dialect22, libuv: true, lacks: slices.Concat([]state.Op{state.OpPing}, queueOps, newestOps)},
		"2.6":  {dialect: wire.Dialect22, libuv: true, lacks: slices.Concat(queueOps, newestOps)},
		"2.8":  {dialect: wire.Dialect22, libuv: true, lacks: newestOps},
		"2.15": {dialect: wire.Dialect22, libuv: true},
		"poll": {dialect: wire.Dialect22, lacks: slices.Concat(queueOps, newestOps)}, // 2.6 with USE_LIBUV=0

		"2.15 poll": {dialect: wire.Dialect22, lacks: queueOps},
		"weft":      {dialect: wire.Dialect22, own: true},
	}
)

// fake is a server in this process: the core behind the wire, without limits, counters and care. It
// can vanish and come back, with or without what it knew, and be told what to do wrong.
type fake struct {
	t testing.TB
	release

	mu     sync.Mutex
	state  *state.State
	conns  map[state.ClientID]*fakeConn
	last   state.ClientID
	down   bool
	dialed int
	// on, unless nil, is told of every command before it is applied and says whether to hang up
	// instead. after is asked when it was, before it is answered.
	on, after func(cmd state.Command) (hangUp bool)
	mute      func(cmd state.Command) bool // says whether not to answer
	late      time.Duration                // for so long an answer is on its way
	deaf      bool                         // to waits, when a COMPARE_SET makes the key or a push ends them
}

type fakeConn struct {
	nc   net.Conn
	in   *wire.Decoder
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
	f := &fake{t: t, release: rel, state: state.New(kv.Defaulted(kv.Limits{})), conns: map[state.ClientID]*fakeConn{}}
	t.Cleanup(f.stop)
	return f
}

// has says whether the release knows a command.
func (f *fake) has(o state.Op) bool {
	_, err := wire.Protocol{Dialect: f.dialect, Own: f.own}.Code(o)
	return err == nil && !slices.Contains(f.lacks, o)
}

// client is one of the fake's.
func (f *fake) client(cfg Config) *Client {
	f.t.Helper()
	cfg.Addr, cfg.dial = "fake:1", f.dial
	if f.dialect == wire.Dialect20 || f.dialect == wire.Dialect21 {
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
	c := &fakeConn{nc: far, in: wire.NewDecoder(far, wire.Protocol{Dialect: f.dialect}, kv.Defaulted(kv.Limits{}))}
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
	f.apply(state.Command{Op: state.OpSet, Key: key, Value: []byte(value)})
}

// apply does what somebody else asks.
func (f *fake) apply(cmd state.Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replyLocked(f.state.Apply(0, cmd, nil))
}

// stats is what the state holds, once what is under way has arrived: for use in a synctest bubble.
func (f *fake) stats() state.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Stats()
}

func (f *fake) goneLocked(id state.ClientID, c *fakeConn) {
	c.gone = true
	c.wake.Signal()
	delete(f.conns, id)
	f.replyLocked(f.state.Leaves(id, nil))
}

func (f *fake) read(id state.ClientID, c *fakeConn) {
	ok := f.dialect != wire.Dialect22 || c.in.Greeting(wire.Dialect22) == nil
	for ok {
		cmd, err := c.in.Command()
		ok = err == nil && !slices.Contains(f.lacks, cmd.Op) && f.take(id, c, cmd)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.goneLocked(id, c)
}

func (f *fake) take(id state.ClientID, c *fakeConn, cmd state.Command) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case c.gone || f.on != nil && f.on(cmd):
		return false
	case cmd.Op == state.OpPing:
		c.sendLocked(state.Reply{Op: state.OpPing, N: cmd.Delta})
		return true
	case f.own && c.in.AsksOwnMode(&cmd):
		c.sendLocked(state.Reply{Op: state.OpCheck, OK: true})
		c.in.Own = true
		return true
	case cmd.Op == state.OpCompareSet && f.libuv:
		if string(cmd.Expected) == unlikely && !slices.Contains(c.there, cmd.Key) && !f.state.Has(cmd.Key) {
			f.t.Error("the client peeks at a server that wakes those who wait")
		}
	}
	replies := f.state.Apply(id, cmd, nil)
	if cmd.Op != state.OpCompareSet {
		c.there = nil
	}
	if cmd.Op == state.OpCheck && len(replies) > 0 && replies[0].OK {
		c.there = cmd.Keys
	}
	if f.after != nil && f.after(cmd) {
		return false
	}
	if f.mute != nil && f.mute(cmd) {
		return true
	}
	if f.deaf && (cmd.Op == state.OpCompareSet || cmd.Op == state.OpPush) {
		replies = slices.DeleteFunc(replies, func(r state.Reply) bool { return r.To != id })
	}
	return f.replyLocked(replies)
}

func (f *fake) replyLocked(replies []state.Reply) (ok bool) {
	ok = true
	for _, r := range replies {
		c := f.conns[r.To]
		if c == nil {
			continue
		}
		if !c.in.Own && (r.Err != nil || r.Op == state.OpMultiGet && !r.OK) {
			if ok = f.libuv && (r.Op == state.OpMultiGet || errors.Is(r.Err, kv.ErrNoKey)); !ok {
				continue
			}
			r.Err = nil
		}
		c.sendLocked(r)
	}
	return ok
}

func (c *fakeConn) sendLocked(r state.Reply) {
	if c.in.Answered(r.Op) || r.Op == state.OpNews {
		c.out = c.in.AppendReply(c.out, r)
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
