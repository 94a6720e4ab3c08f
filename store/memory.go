package store

import (
	"context"
	"sync"
	"time"
)

// Memory is a store in this process, for tests and for jobs of one process. Its zero value is ready for use; it must
// not be copied. The exported fields may be set before the first call.
type Memory struct {
	Timeout time.Duration // of operations without a deadline; 0 means DefaultTimeout
	Limits  Limits

	mu     sync.Mutex
	state  *state
	wake   map[clientID]chan struct{} // by waiting call; closed when its keys are there
	last   clientID
	closed bool
	done   chan struct{}
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return new(Memory) }

// begin starts an operation and returns with m.mu held if there is no error.
func (m *Memory) begin(c context.Context, name string, keys ...string) (*Operation, error) {
	s := NewSettings("", m.Timeout, m.Limits)
	o, err := s.Begin(c, name, keys...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.initLocked()
	if m.closed {
		m.mu.Unlock()
		o.End()
		return nil, o.Fail(ErrClosed)
	}
	return o, nil
}

func (m *Memory) initLocked() {
	if m.state == nil {
		m.state = newState(m.Limits.withDefaults())
		m.wake = map[clientID]chan struct{}{}
		m.done = make(chan struct{})
	}
}

// applyLocked runs a command as client id, which for calls that cannot wait is 0, and returns its own reply.
func (m *Memory) applyLocked(id clientID, cmd command) (own reply, answered bool) {
	for _, r := range m.state.apply(id, cmd, nil) {
		if r.to == id {
			own, answered = r, true
		} else if ch := m.wake[r.to]; ch != nil {
			close(ch)
			delete(m.wake, r.to)
		}
	}
	return own, answered
}

// do runs a command that is answered at once.
func (m *Memory) do(c context.Context, name string, cmd command, values ...[]byte) (reply, error) {
	keys := cmd.keys
	if cmd.key != "" || cmd.op != opCheck && cmd.op != opNumKeys {
		keys = []string{cmd.key}
	}
	o, err := m.begin(c, name, keys...)
	if err != nil {
		return reply{}, err
	}
	defer o.End()
	defer m.mu.Unlock()
	for _, v := range values {
		if err := m.state.limits.checkValue(v); err != nil {
			return reply{}, o.Fail(err)
		}
	}
	r, _ := m.applyLocked(0, cmd)
	return r, o.Fail(r.err)
}

// Set implements Store.
func (m *Memory) Set(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "set", command{op: opSet, key: key, value: copied(value)}, value)
	return err
}

// Get implements Store.
func (m *Memory) Get(c context.Context, key string) ([]byte, error) {
	o, err := m.begin(c, "get", key)
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		r, _ := m.applyLocked(0, command{op: opGet, key: key})
		if r.err == nil {
			m.mu.Unlock()
			return copied(r.value), nil
		}
		if err := m.awaitLocked(o); err != nil {
			return nil, err
		}
		m.mu.Lock() // and look again: the key may be gone by now
	}
}

// Add implements Store.
func (m *Memory) Add(c context.Context, key string, delta int64) (int64, error) {
	r, err := m.do(c, "add", command{op: opAdd, key: key, delta: delta})
	if err != nil {
		return 0, err
	}
	return r.n, nil
}

// CompareSet implements Store.
func (m *Memory) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	cmd := command{op: opCompareSet, key: key, expected: expected, value: copied(desired)}
	r, err := m.do(c, "compare_set", cmd, expected, desired)
	if err != nil {
		return nil, err
	}
	return copied(r.value), nil
}

// Delete implements Store.
func (m *Memory) Delete(c context.Context, key string) (bool, error) {
	r, err := m.do(c, "delete", command{op: opDelete, key: key})
	return r.n == 1, err
}

// Check implements Store.
func (m *Memory) Check(c context.Context, keys ...string) (bool, error) {
	r, err := m.do(c, "check", command{op: opCheck, keys: keys})
	return r.ok, err
}

// Wait implements Store.
func (m *Memory) Wait(c context.Context, keys ...string) error {
	o, err := m.begin(c, "wait", keys...)
	if err != nil {
		return err
	}
	defer o.End()
	return m.awaitLocked(o)
}

// awaitLocked waits for the operation's keys. It is called with m.mu held and returns without it.
func (m *Memory) awaitLocked(o *Operation) error {
	m.last++
	id, ch := m.last, make(chan struct{})
	if _, answered := m.applyLocked(id, command{op: opWait, keys: o.keys}); answered {
		m.mu.Unlock()
		return nil
	}
	m.wake[id] = ch
	m.mu.Unlock()
	var err error
	select {
	case <-ch:
		return nil
	case <-m.done:
		err = ErrClosed
	case <-o.Context.Done():
		err = o.Over()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.drop(id)
	delete(m.wake, id)
	return o.Fail(err)
}

// NumKeys implements Store.
func (m *Memory) NumKeys(c context.Context) (int64, error) {
	r, err := m.do(c, "num_keys", command{op: opNumKeys})
	return r.n, err
}

// Close implements Store. As there is only this one client, the values are gone with it.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.initLocked()
	if !m.closed {
		m.closed = true
		close(m.done)
		m.state.data = map[string][]byte{}
	}
	return nil
}

// copied is a copy of b that is not nil.
func copied(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }
