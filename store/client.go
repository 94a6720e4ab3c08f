package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// initKey counts the clients that have joined, in PyTorch's stores and here. It is the one key without a slash.
const initKey = "init/"

// ClientConfig says which server to use and how.
type ClientConfig struct {
	Addr string // host:port of the server; required

	// WorldSize is how many clients the store will have; more than 0 makes Dial announce this one to the others, as
	// every client of PyTorch does. It costs one key, which NumKeys counts. 0: unknown.
	WorldSize int
	// WaitForWorkers makes Dial return only when all WorldSize clients have announced themselves. PyTorch does it
	// where the server is, and nowhere else.
	WaitForWorkers bool

	Timeout time.Duration // of operations and of Dial, where the context has no deadline; 0 means DefaultTimeout
	Limits  Limits        // of what is sent and of what is accepted; should be the server's
	MaxIdle int           // connections kept for reuse; 0 means 4

	dial func(c context.Context, addr string) (net.Conn, error) // tests replace TCP
}

func (cfg ClientConfig) validate() error {
	errs := []error{cfg.Limits.validate()}
	if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
		errs = append(errs, fmt.Errorf("bad address: %w", err))
	}
	if cfg.WorldSize < 0 {
		errs = append(errs, fmt.Errorf("WorldSize must not be negative, but is %d", cfg.WorldSize))
	}
	if cfg.WaitForWorkers && cfg.WorldSize == 0 {
		errs = append(errs, errors.New("WaitForWorkers needs a WorldSize"))
	}
	if cfg.MaxIdle < 0 || cfg.Timeout < 0 {
		errs = append(errs, errors.New("MaxIdle and Timeout must not be negative"))
	}
	return errors.Join(errs...)
}

// Client is a store that lives in a server, a Weft [Server] or PyTorch 1.13's. Each operation has a connection to
// itself while it runs, taken from a small pool, so one that waits holds up no other; one that fails or is cancelled
// closes its connection, so no late answer can be taken for that of a later question.
//
// The protocol answers no SET, so Set adds a question that is always answered, and returns with that answer: it is in
// the store then, for every client.
type Client struct {
	base Settings
	cfg  ClientConfig

	mu     sync.Mutex
	idle   []*link
	live   map[*link]struct{} // idle ones too
	closed bool
}

var _ Store = (*Client)(nil)

// Dial connects to a server, trying again until the deadline of c while there is none.
func Dial(c context.Context, cfg ClientConfig) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, &Error{Op: "dial", Addr: cfg.Addr, Err: err}
	}
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = 4
	}
	if cfg.dial == nil {
		cfg.dial = func(c context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(c, "tcp", addr)
		}
	}
	cl := &Client{base: NewSettings(cfg.Addr, cfg.Timeout, cfg.Limits), cfg: cfg, live: map[*link]struct{}{}}
	o, err := cl.base.Begin(c, "dial")
	if err != nil {
		return nil, err
	}
	defer o.End()
	if err := cl.join(o); err != nil {
		cl.Close()
		return nil, o.Fail(err)
	}
	return cl, nil
}

// join makes the first connection and tells the others about it.
func (cl *Client) join(o *Operation) error {
	l, err := cl.connectUntil(o)
	if err != nil {
		return err
	}
	cl.put(l)
	if cl.cfg.WorldSize == 0 {
		return nil
	}
	joined, err := cl.ask(o, command{op: opAdd, key: initKey, delta: 1})
	if err != nil {
		return err
	}
	for n := joined.n; cl.cfg.WaitForWorkers && n < int64(cl.cfg.WorldSize); {
		err := pause(o, pollEvery)
		var r reply
		if err == nil {
			r, err = cl.ask(o, command{op: opGet, key: initKey})
		}
		if errors.Is(err, ErrTimeout) {
			return fmt.Errorf("timed out after %v waiting for clients. %d/%d clients joined. %w",
				o.limit(), n, cl.cfg.WorldSize, err)
		}
		if err == nil {
			n, err = parseDecimal(r.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask sends one command and reads its reply. Commands without a reply are confirmed by the reply to an empty CHECK.
func (cl *Client) ask(o *Operation, cmd command) (reply, error) {
	var r reply
	err := cl.with(o, func(l *link) (err error) {
		r, err = l.ask(cmd)
		return err
	})
	return r, err
}

// Set implements Store.
func (cl *Client) Set(c context.Context, key string, value []byte) error {
	_, err := cl.do(c, "set", command{op: opSet, value: value}, key)
	return err
}

// Get implements Store. Like PyTorch's it waits for the key and then asks for it. A server closes the connection if
// the key was deleted in between; then it starts again.
func (cl *Client) Get(c context.Context, key string) ([]byte, error) {
	o, err := cl.base.Begin(c, "get", key)
	if err != nil {
		return nil, err
	}
	defer o.End()
	var r reply
	const tries = 8 // a server that is gone for good refuses a connection before
	for range tries {
		asked := false
		err = cl.with(o, func(l *link) (err error) {
			if _, err = l.ask(command{op: opWait, keys: wireKeys(key)}); err != nil {
				return err
			}
			asked = true
			r, err = l.ask(command{op: opGet, key: "/" + key})
			return err
		})
		if err == nil || !asked || !errors.Is(err, errHungUp) {
			break
		}
	}
	return r.value, o.Fail(err)
}

// Add implements Store.
func (cl *Client) Add(c context.Context, key string, delta int64) (int64, error) {
	o, err := cl.base.Begin(c, "add", key)
	if err != nil {
		return 0, err
	}
	defer o.End()
	r, err := cl.ask(o, command{op: opAdd, key: "/" + key, delta: delta})
	if errors.Is(err, errHungUp) {
		err = cl.whyNoSum(o, key, err)
	}
	return r.n, o.Fail(err)
}

// whyNoSum finds out whether the server hung up because the value is no number.
func (cl *Client) whyNoSum(o *Operation, key string, hungUp error) error {
	var r reply
	err := cl.with(o, func(l *link) (err error) {
		if r, err = l.ask(command{op: opCheck, keys: wireKeys(key)}); err == nil && r.ok {
			r, err = l.ask(command{op: opGet, key: "/" + key})
		}
		return err
	})
	if err == nil && r.op == opGet {
		if _, err = parseDecimal(r.value); err != nil {
			return err
		}
	}
	return hungUp
}

// CompareSet implements Store.
func (cl *Client) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := cl.do(c, "compare_set", command{op: opCompareSet, expected: expected, value: desired}, key)
	return r.value, err
}

// Delete implements Store.
func (cl *Client) Delete(c context.Context, key string) (bool, error) {
	r, err := cl.do(c, "delete", command{op: opDelete}, key)
	return r.n == 1, err
}

// Check implements Store.
func (cl *Client) Check(c context.Context, keys ...string) (bool, error) {
	r, err := cl.do(c, "check", command{op: opCheck}, keys...)
	return r.ok, err
}

// Wait implements Store.
func (cl *Client) Wait(c context.Context, keys ...string) error {
	_, err := cl.do(c, "wait", command{op: opWait}, keys...)
	return err
}

// NumKeys implements Store. The key by which clients announce themselves counts.
func (cl *Client) NumKeys(c context.Context) (int64, error) {
	r, err := cl.do(c, "num_keys", command{op: opNumKeys})
	return r.n, err
}

// do is one operation of one command.
func (cl *Client) do(c context.Context, name string, cmd command, keys ...string) (reply, error) {
	o, err := cl.base.Begin(c, name, keys...)
	if err != nil {
		return reply{}, err
	}
	defer o.End()
	if cmd.keys = wireKeys(keys...); len(keys) == 1 {
		cmd.key = cmd.keys[0]
	}
	for _, v := range [][]byte{cmd.expected, cmd.value} {
		if err := cl.base.limits.checkValue(v); err != nil {
			return reply{}, o.Fail(err)
		}
	}
	r, err := cl.ask(o, cmd)
	if err != nil {
		return reply{}, o.Fail(err)
	}
	return r, nil
}

func wireKeys(keys ...string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = "/" + k
	}
	return out
}

// errHungUp is ErrUnreachable after an established connection ended while an answer was due.
var errHungUp = fmt.Errorf("%w: the connection was closed", ErrUnreachable)

// Close implements Store.
func (cl *Client) Close() error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.closed = true
	for l := range cl.live {
		l.nc.Close()
	}
	return nil
}

// hungUp says whether err is what an ended connection looks like from this end.
func hungUp(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.As(err, &op)
}
