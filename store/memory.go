package store

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// Memory is a store in this process, for tests and for jobs of one process. Its zero value is ready
// for use; it must not be copied. The exported fields may be set before the first call.
type Memory struct {
	Timeout time.Duration // of operations without a deadline; 0 means DefaultTimeout
	Limits  Limits

	mu      sync.Mutex
	state   *state
	waiting map[clientID]chan<- reply // calls that have no answer yet; capacity 1
	watches map[clientID]memoryWatch
	last    clientID // every call is a client of the state
	closed  bool
	done    chan struct{}
}

type memoryWatch struct {
	send func(Change)
	end  func(error)
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return new(Memory) }

// begin starts an operation and returns with m.mu held if there is no error.
func (m *Memory) begin(c context.Context, name string, cmd command) (*Operation, error) {
	s := NewSettings("", m.Timeout, m.Limits)
	o, err := s.Begin(c, name, cmd.names()...)
	if err != nil {
		return nil, err
	}
	if err = cmd.checkValues(s); err == nil {
		m.mu.Lock()
		m.initLocked()
		if !m.closed {
			return o, nil
		}
		m.mu.Unlock()
		err = ErrClosed
	}
	o.End()
	return nil, o.Fail(err)
}

func (m *Memory) initLocked() {
	if m.state == nil {
		m.state = newState(m.Limits.withDefaults())
		m.waiting = map[clientID]chan<- reply{}
		m.watches = map[clientID]memoryWatch{}
		m.done = make(chan struct{})
	}
}

// applyLocked runs a command as a client of its own and hands out the replies. Those to others who
// wait, or watch, never block.
func (m *Memory) applyLocked(cmd command) (id clientID, own reply, answered bool) {
	m.last++
	for _, r := range m.state.apply(m.last, cmd, nil) {
		if r.to == m.last {
			own, answered = r, true
		} else if ch := m.waiting[r.to]; ch != nil {
			ch <- r
			delete(m.waiting, r.to)
		} else if w, there := m.watches[r.to]; there {
			w.send(Change{Kind: r.event, Key: r.key, Old: bytes.Clone(r.old), New: bytes.Clone(r.value)})
		}
	}
	return m.last, own, answered
}

// do runs a command and waits for its answer, whose slices are still the state's.
func (m *Memory) do(c context.Context, name string, cmd command) (reply, error) {
	o, err := m.begin(c, name, cmd)
	if err != nil {
		return reply{}, err
	}
	defer o.End()
	id, r, answered := m.applyLocked(cmd)
	if answered {
		m.mu.Unlock()
		return r, o.Fail(r.err)
	}
	ch := make(chan reply, 1)
	m.waiting[id] = ch
	m.mu.Unlock()
	select {
	case r = <-ch:
		return r, o.Fail(r.err)
	case <-m.done:
		err = ErrClosed
	case <-o.Context.Done():
		err = o.Over()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case r = <-ch: // it came in the last moment, and may be a value taken from a queue
		return r, o.Fail(r.err)
	default:
	}
	m.state.drop(id)
	delete(m.waiting, id)
	return reply{}, o.Fail(err)
}

// Set implements Store.
func (m *Memory) Set(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "set", command{op: opSet, key: key, value: copied(value)})
	return err
}

// Get implements Store.
func (m *Memory) Get(c context.Context, key string) ([]byte, error) {
	r, err := m.do(c, "get", command{op: opFetch, keys: []string{key}})
	if err != nil {
		return nil, err
	}
	return copied(r.values[0]), nil
}

// Add implements Store.
func (m *Memory) Add(c context.Context, key string, delta int64) (int64, error) {
	r, err := m.do(c, "add", command{op: opAdd, key: key, delta: delta})
	return r.n, err
}

// CompareSet implements Store.
func (m *Memory) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := m.do(c, "compare_set", command{op: opCompareSet, key: key, expected: expected, value: copied(desired)})
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
	_, err := m.do(c, "wait", command{op: opWait, keys: slices.Clone(keys)})
	return err
}

// NumKeys implements Store.
func (m *Memory) NumKeys(c context.Context) (int64, error) {
	r, err := m.do(c, "num_keys", command{op: opNumKeys})
	return r.n, err
}

// ListKeys implements Store.
func (m *Memory) ListKeys(c context.Context) ([]string, error) {
	r, err := m.do(c, "list_keys", command{op: opList})
	slices.Sort(r.keys)
	return r.keys, err
}

// Append implements Store.
func (m *Memory) Append(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "append", command{op: opAppend, key: key, value: value})
	return err
}

// MultiGet implements Store.
func (m *Memory) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	r, err := m.do(c, "multi_get", command{op: opFetch, keys: slices.Clone(keys)})
	for i, v := range r.values {
		r.values[i] = copied(v)
	}
	return r.values, err
}

// MultiSet implements Store.
func (m *Memory) MultiSet(c context.Context, pairs ...Pair) error {
	pairs = slices.Clone(pairs)
	for i := range pairs {
		pairs[i].Value = copied(pairs[i].Value)
	}
	_, err := m.do(c, "multi_set", command{op: opMultiSet, pairs: pairs})
	return err
}

// Push implements Store.
func (m *Memory) Push(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "push", command{op: opPush, key: key, value: copied(value)})
	return err
}

// Pop implements Store.
func (m *Memory) Pop(c context.Context, key string) ([]byte, error) {
	r, err := m.do(c, "pop", command{op: opTake, key: key})
	return r.value, err // it has left the state
}

// TryPop implements Store.
func (m *Memory) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	r, err := m.do(c, "pop", command{op: opPop, key: key})
	return r.value, r.n > 0, err
}

// Len implements Store.
func (m *Memory) Len(c context.Context, key string) (int64, error) {
	r, err := m.do(c, "len", command{op: opLen, key: key})
	return r.n, err
}

// Barrier implements Store.
func (m *Memory) Barrier(c context.Context, key string, world int) error {
	_, err := m.do(c, "barrier", command{op: opBarrier, key: key, delta: int64(world)})
	return err
}

// Watch implements Store.
func (m *Memory) Watch(c context.Context, key string) (*Watch, error) {
	cmd := command{op: opWatch, key: key}
	o, err := m.begin(c, "watch", cmd)
	if err != nil {
		return nil, err
	}
	defer o.End()
	defer m.mu.Unlock()
	id, r, _ := m.applyLocked(cmd)
	if r.err != nil {
		return nil, o.Fail(r.err)
	}
	w, send, end := NewWatch(c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.state.drop(id)
		delete(m.watches, id)
	})
	m.watches[id] = memoryWatch{send, func(err error) { end(o.Fail(err)) }}
	return w, nil
}

// Close implements Store. As there is only this one client, the values are gone with it.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.initLocked()
	if m.closed {
		return nil
	}
	m.closed = true
	close(m.done)
	for _, w := range m.watches {
		w.end(ErrClosed)
	}
	m.state.clear()
	return nil
}
