package store

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Memory is a store in this process, for tests and for jobs of one process. Its zero value is ready
// for use; it must not be copied. The exported fields may be set before the first call.
type Memory struct {
	Timeout time.Duration // of operations without a deadline; 0 means DefaultTimeout
	Limits  Limits

	mu      sync.Mutex
	state   *state.State
	waiting map[state.ClientID]chan<- state.Reply // calls that have no answer yet; capacity 1
	watches map[state.ClientID]memoryWatch
	last    state.ClientID // every call is a client of the state
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
func (m *Memory) begin(c context.Context, name string, cmd state.Command) (*kv.Operation, error) {
	s := kv.NewSettings("", m.Timeout, m.Limits)
	o, err := s.Begin(c, name, cmd.Names()...)
	if err != nil {
		return nil, err
	}
	if err = cmd.CheckValues(s); err == nil {
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
		m.state = state.New(kv.Defaulted(m.Limits))
		m.waiting = map[state.ClientID]chan<- state.Reply{}
		m.watches = map[state.ClientID]memoryWatch{}
		m.done = make(chan struct{})
	}
}

// applyLocked runs a command as a client of its own and hands out the replies. Those to others who
// wait, or watch, never block.
func (m *Memory) applyLocked(cmd state.Command) (id state.ClientID, own state.Reply, answered bool) {
	m.last++
	for _, r := range m.state.Apply(m.last, cmd, nil) {
		if r.To == m.last {
			own, answered = r, true
		} else if ch := m.waiting[r.To]; ch != nil {
			ch <- r
			delete(m.waiting, r.To)
		} else if w, there := m.watches[r.To]; there {
			w.send(Change{Kind: r.Event, Key: r.Key, Old: bytes.Clone(r.Old), New: bytes.Clone(r.Value)})
		}
	}
	return m.last, own, answered
}

// do runs a command and waits for its answer, whose slices are still the state's.
func (m *Memory) do(c context.Context, name string, cmd state.Command) (state.Reply, error) {
	o, err := m.begin(c, name, cmd)
	if err != nil {
		return state.Reply{}, err
	}
	defer o.End()
	id, r, answered := m.applyLocked(cmd)
	if answered {
		m.mu.Unlock()
		return r, o.Fail(r.Err)
	}
	ch := make(chan state.Reply, 1)
	m.waiting[id] = ch
	m.mu.Unlock()
	select {
	case r = <-ch:
		return r, o.Fail(r.Err)
	case <-m.done:
		err = ErrClosed
	case <-o.Context.Done():
		err = o.Over()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case r = <-ch: // it came in the last moment, and may be a value taken from a queue
		return r, o.Fail(r.Err)
	default:
	}
	m.state.Drop(id)
	delete(m.waiting, id)
	return state.Reply{}, o.Fail(err)
}

// Set implements Store.
func (m *Memory) Set(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "set", state.Command{Op: state.OpSet, Key: key, Value: kv.Copied(value)})
	return err
}

// Get implements Store.
func (m *Memory) Get(c context.Context, key string) ([]byte, error) {
	r, err := m.do(c, "get", state.Command{Op: state.OpFetch, Keys: []string{key}})
	if err != nil {
		return nil, err
	}
	return kv.Copied(r.Values[0]), nil
}

// Add implements Store.
func (m *Memory) Add(c context.Context, key string, delta int64) (int64, error) {
	r, err := m.do(c, "add", state.Command{Op: state.OpAdd, Key: key, Delta: delta})
	return r.N, err
}

// CompareSet implements Store.
func (m *Memory) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := m.do(c, "compare_set", state.Command{Op: state.OpCompareSet, Key: key, Expected: expected, Value: kv.Copied(desired)})
	if err != nil {
		return nil, err
	}
	return kv.Copied(r.Value), nil
}

// Delete implements Store.
func (m *Memory) Delete(c context.Context, key string) (bool, error) {
	r, err := m.do(c, "delete", state.Command{Op: state.OpDelete, Key: key})
	return r.N == 1, err
}

// Check implements Store.
func (m *Memory) Check(c context.Context, keys ...string) (bool, error) {
	r, err := m.do(c, "check", state.Command{Op: state.OpCheck, Keys: keys})
	return r.OK, err
}

// Wait implements Store.
func (m *Memory) Wait(c context.Context, keys ...string) error {
	_, err := m.do(c, "wait", state.Command{Op: state.OpWait, Keys: slices.Clone(keys)})
	return err
}

// NumKeys implements Store.
func (m *Memory) NumKeys(c context.Context) (int64, error) {
	r, err := m.do(c, "num_keys", state.Command{Op: state.OpNumKeys})
	return r.N, err
}

// ListKeys implements Store.
func (m *Memory) ListKeys(c context.Context) ([]string, error) {
	r, err := m.do(c, "list_keys", state.Command{Op: state.OpList})
	slices.Sort(r.Keys)
	return r.Keys, err
}

// Append implements Store.
func (m *Memory) Append(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "append", state.Command{Op: state.OpAppend, Key: key, Value: value})
	return err
}

// MultiGet implements Store.
func (m *Memory) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	r, err := m.do(c, "multi_get", state.Command{Op: state.OpFetch, Keys: slices.Clone(keys)})
	for i, v := range r.Values {
		r.Values[i] = kv.Copied(v)
	}
	return r.Values, err
}

// MultiSet implements Store.
func (m *Memory) MultiSet(c context.Context, pairs ...Pair) error {
	pairs = slices.Clone(pairs)
	for i := range pairs {
		pairs[i].Value = kv.Copied(pairs[i].Value)
	}
	_, err := m.do(c, "multi_set", state.Command{Op: state.OpMultiSet, Pairs: pairs})
	return err
}

// Push implements Store.
func (m *Memory) Push(c context.Context, key string, value []byte) error {
	_, err := m.do(c, "push", state.Command{Op: state.OpPush, Key: key, Value: kv.Copied(value)})
	return err
}

// Pop implements Store.
func (m *Memory) Pop(c context.Context, key string) ([]byte, error) {
	r, err := m.do(c, "pop", state.Command{Op: state.OpTake, Key: key})
	return r.Value, err // it has left the state
}

// TryPop implements Store.
func (m *Memory) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	r, err := m.do(c, "pop", state.Command{Op: state.OpPop, Key: key})
	return r.Value, r.N > 0, err
}

// Len implements Store.
func (m *Memory) Len(c context.Context, key string) (int64, error) {
	r, err := m.do(c, "len", state.Command{Op: state.OpLen, Key: key})
	return r.N, err
}

// Barrier implements Store.
func (m *Memory) Barrier(c context.Context, key string, world int) error {
	_, err := m.do(c, "barrier", state.Command{Op: state.OpBarrier, Key: key, Delta: int64(world)})
	return err
}

// Watch implements Store.
func (m *Memory) Watch(c context.Context, key string) (*Watch, error) {
	cmd := state.Command{Op: state.OpWatch, Key: key}
	o, err := m.begin(c, "watch", cmd)
	if err != nil {
		return nil, err
	}
	defer o.End()
	defer m.mu.Unlock()
	id, r, _ := m.applyLocked(cmd)
	if r.Err != nil {
		return nil, o.Fail(r.Err)
	}
	w, send, end := NewWatch(c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.state.Drop(id)
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
	m.state.Clear()
	return nil
}
