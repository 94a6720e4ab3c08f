package nccl

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// Comm is one rank of a communicator.
type Comm struct {
	lib        *Library
	handle     uintptr
	rank, size int

	mu     sync.Mutex
	ended  error         // ErrAborted or ErrClosed
	inside int           // calls under way
	alone  chan struct{} // of an Abort: inside has become 0
}

// Init joins a communicator of so many ranks, on a GPU that no other rank has, and waits for all to
// join. When c ends before, it gives up.
func (l *Library) Init(c context.Context, gpu Binder, size int, id ID, rank int, cfg Config) (*Comm, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	packed, err := cfg.packed(l.version, &pin)
	if err != nil {
		return nil, err
	}
	m := &Comm{lib: l, rank: rank, size: size}
	err = gpu.Within(func() error {
		return l.failure(functions[commInitRankConfig].name, join(l.at[commInitRankConfig], &m.handle, size, &id, rank, packed), m.handle)
	})
	return m.made(c, err)
}

// made waits until a communicator is there.
func (m *Comm) made(c context.Context, err error) (*Comm, error) {
	if err == nil {
		err = m.settle(c)
	}
	if err != nil {
		m.lib.keep(m)
		if m.handle != 0 {
			_ = m.Abort()
		}
		return nil, err
	}
	return m, nil
}

// settle waits until what was begun is no longer in progress, or the communicator is aborted.
func (m *Comm) settle(c context.Context) error {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		busy, err := m.Async()
		if err != nil || !busy {
			return err
		}
		select {
		case <-c.Done():
			return context.Cause(c)
		case <-time.After(pause):
		}
	}
}

// Rank is this one's, from 0.
func (m *Comm) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *Comm) Size() int { return m.size }

// goIn begins a call, which goOut ends.
func (m *Comm) goIn(f function) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil {
		return &Error{Op: f.String(), Err: m.ended}
	}
	m.inside++
	return nil
}

func (m *Comm) goOut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inside--; m.inside == 0 && m.alone != nil {
		close(m.alone)
		m.alone = nil
	}
}

// invoke calls a function of the communicator, unless it has ended.
//
//go:uintptrescapes
func (m *Comm) invoke(f function, args ...uintptr) error {
	if err := m.goIn(f); err != nil {
		return err
	}
	defer m.goOut()
	return m.lib.invoke(f, m.handle, args...)
}

// Async says whether something is still in progress, and what has failed since.
func (m *Comm) Async() (busy bool, err error) {
	if err := m.goIn(commGetAsyncError); err != nil {
		return false, err
	}
	defer m.goOut()
	var code int32
	if err := m.lib.invoke(commGetAsyncError, m.handle, m.handle, uintptr(unsafe.Pointer(&code))); err != nil {
		return false, err
	}
	return code == inProgress, m.lib.failure(functions[commGetAsyncError].name, int(code), m.handle)
}

// Run submits calls to a stream: several at once, as one group, so that sends and receives do not
// wait for one another. It returns when NCCL has taken them.
func (m *Comm) Run(stream uintptr, calls ...Call) error {
	for _, call := range calls {
		if err := call.Check(m.size); err != nil {
			return err
		}
	}
	if err := m.submit(stream, calls); err != nil {
		return err
	}
	return m.settle(context.Background())
}

func (m *Comm) submit(stream uintptr, calls []Call) error {
	if len(calls) == 1 {
		return m.one(stream, calls[0])
	}
	runtime.LockOSThread() // a group is a thread's
	defer runtime.UnlockOSThread()
	if err := m.invoke(groupStart); err != nil {
		return err
	}
	var err error
	for _, call := range calls {
		if err = m.one(stream, call); err != nil {
			break
		}
	}
	if end := m.invoke(groupEnd); err == nil {
		err = end
	}
	return err
}

func (m *Comm) one(stream uintptr, c Call) error {
	n, t, op := uintptr(c.Count), uintptr(c.Type), uintptr(c.Op)
	switch c.Kind {
	case AllReduce:
		return m.invoke(allReduce, c.Send, c.Recv, n, t, op, m.handle, stream)
	case Reduce:
		return m.invoke(reduce, c.Send, c.Recv, n, t, op, uintptr(c.Root), m.handle, stream)
	case Broadcast:
		return m.invoke(broadcast, c.Send, c.Recv, n, t, uintptr(c.Root), m.handle, stream)
	case AllGather:
		return m.invoke(allGather, c.Send, c.Recv, n, t, m.handle, stream)
	case ReduceScatter:
		return m.invoke(reduceScatter, c.Send, c.Recv, n, t, op, m.handle, stream)
	case Send:
		return m.invoke(send, c.Send, n, t, uintptr(c.Peer), m.handle, stream)
	}
	return m.invoke(recv, c.Recv, n, t, uintptr(c.Peer), m.handle, stream)
}

// shut has all calls that come fail with an error, and waits for those under way, until it is
// late. It says whether it was this call that shut it.
func (m *Comm) shut(why error, late <-chan time.Time) bool {
	m.mu.Lock()
	if m.ended != nil {
		m.mu.Unlock()
		return false
	}
	m.ended = why
	alone := make(chan struct{})
	if m.inside > 0 {
		m.alone = alone
	} else {
		close(alone)
	}
	m.mu.Unlock()
	select {
	case <-alone:
	case <-late:
	}
	return true
}

// grace is for how long Abort lets calls under way return that do not hang. It frees the
// communicator then.
const grace = 200 * time.Millisecond

// Abort ends the communicator and all that is under way in it, also a call that hangs, where NCCL
// can. What it was writing to is then garbage. It may hang itself: its caller need not wait.
func (m *Comm) Abort() error {
	late := time.NewTimer(grace)
	defer late.Stop()
	if !m.shut(ErrAborted, late.C) {
		return nil
	}
	return m.lib.invoke(commAbort, 0, m.handle)
}

// Revoke stops all that is under way, and lets the communicator be, for Shrink or Close. NCCL
// 2.28.9 and later have it.
func (m *Comm) Revoke() error { return m.invoke(commRevoke, m.handle, 0) }

// Close waits until all ranks have called it, and what was submitted is done; then it frees the
// communicator. When c ends before, the communicator is aborted.
func (m *Comm) Close(c context.Context) error {
	err := m.invoke(commFinalize, m.handle)
	if err == nil {
		err = m.settle(c)
	}
	if errors.Is(err, ErrAborted) || errors.Is(err, ErrClosed) {
		return nil
	}
	if err != nil {
		_ = m.Abort()
		return err
	}
	if !m.shut(ErrClosed, nil) {
		return nil
	}
	return m.lib.invoke(commDestroy, 0, m.handle)
}
