package gpus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/internal/turns"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/site"
	"github.com/weft-project/weft/rpc"
)

// Comm is this member's part of a communicator. It is safe for concurrent use; calls are made one
// after another, on all members in the same order.
type Comm struct {
	g    *collective.Group
	d    *Device
	cfg  Config
	name string
	comm *nccl.Comm // not changed once Open has returned
	deaf func()
	life context.Context // ends with what the communicator ended with
	end  context.CancelCauseFunc
	runs sync.WaitGroup

	calling chan struct{} // of capacity 1: who holds it calls
	n       uint64        // the number of the next Run, for who calls

	mu      sync.Mutex
	aborted chan struct{} // where it failed: closed when NCCL has let go
}

func newComm(g *collective.Group, d *Device, cfg Config, name string) *Comm {
	m := &Comm{g: g, d: d, cfg: cfg, name: name, calling: make(chan struct{}, 1)}
	m.life, m.end = context.WithCancelCause(context.Background())
	return m
}

// Rank is this member's, from 0.
func (m *Comm) Rank() int { return m.g.Rank() }

// Size is the number of members.
func (m *Comm) Size() int { return m.g.Size() }

// NCCL is what the communicator stands on, for what one member does alone: Scaled, Register.
func (m *Comm) NCCL() *nccl.Comm { return m.comm }

// Err is what the communicator ended with: a [FailedError], what ended its group, or
// nccl.ErrClosed; nil while it lives.
func (m *Comm) Err() error { return context.Cause(m.life) }

// Done is closed when the communicator has ended: Err says with what.
func (m *Comm) Done() <-chan struct{} { return m.life.Done() }

// Run submits operations to a stream of this member's GPU, several as one group. All members call
// it, with operations that go together; it returns when NCCL has taken them, and then the stream's
// order says when they are done. Where members call different things it fails on all with a
// [MismatchError]. Where c ends before all members have called it, the communicator ends.
func (m *Comm) Run(c context.Context, stream uintptr, calls ...nccl.Call) error {
	return m.named(m.attempt(c, stream, calls, false))
}

// Capture is Run for a stream that this member captures into a graph, between the beginning and the
// end of the capture: the operations are recorded, and done whenever the graph is launched. All
// members capture them, and agree on them once, now; who runs them instead fails it on all with a
// [MismatchError]. Of launches the members say nothing to one another: all of them launch the graph
// as often as the others, and launches, Runs and launches of other graphs on one GPU are in one
// order on all members. Else GPUs wait for one another for ever, until the communicator is aborted.
// The addresses stay valid, and the communicator open, as long as the graph is launched.
func (m *Comm) Capture(c context.Context, stream uintptr, calls ...nccl.Call) error {
	return m.named(m.attempt(c, stream, calls, true))
}

func (m *Comm) attempt(c context.Context, stream uintptr, calls []nccl.Call, captures bool) error {
	for _, call := range calls {
		if err := call.Check(m.Size()); err != nil {
			return err
		}
	}
	mine := saying(calls, line(), captures)
	if len(calls) == 0 {
		return fmt.Errorf("%w: no operation", collective.ErrArguments)
	}
	if err := m.hold(c); err != nil {
		return err
	}
	defer m.letNext()
	c, cancel := m.within(c)
	defer cancel()
	all, err := collective.Agree(collective.Scope(c, "nccl/"+m.name+"/calls"), m.g, mine)
	if err != nil {
		return m.disagreed(err)
	}
	if err := together(all); err != nil {
		return err
	}
	k := turns.Key{Group: m.name, N: m.n}
	m.n++
	return m.submit(m.life, collective.Scope(m.life, "nccl/"+m.name+"/turns"), k, stream, calls)
}

// submit has NCCL take calls when their turn comes. All members have come so far; their times are
// told under the context agree. When c ends before NCCL has taken them, so does the communicator.
func (m *Comm) submit(c, agree context.Context, k turns.Key, stream uintptr, calls []nccl.Call) error {
	times, err := collective.Agree(agree, m.g, m.d.lineUp(k))
	if err != nil {
		m.d.stepOut(k)
		return m.disagreed(err)
	}
	j := &job{of: m, done: make(chan struct{}), do: func() error {
		return m.d.gpu.Within(func() error { return m.comm.Run(stream, calls...) })
	}}
	m.d.settle(k, times, j)
	select {
	case <-j.done:
	case <-m.life.Done():
		return m.Err()
	case <-c.Done():
		return m.broken(ended(c))
	}
	if j.err != nil {
		return m.broken(j.err)
	}
	return nil
}

// hold lets one at a time call.
func (m *Comm) hold(c context.Context) error {
	select {
	case m.calling <- struct{}{}:
	default:
		select {
		case m.calling <- struct{}{}:
		case <-m.life.Done():
		case <-c.Done(): // the others wait for this call
			return m.broken(ended(c))
		}
	}
	if err := m.Err(); err != nil {
		m.letNext()
		return err
	}
	return nil
}

// ended says why a context has ended.
func ended(c context.Context) error {
	if errors.Is(c.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: the deadline passed", rpc.ErrTimeout)
	}
	return context.Cause(c)
}

func (m *Comm) letNext() {
	select {
	case <-m.calling:
	default: // it has ended, and nobody waits
	}
}

// within is a context that ends with the communicator, too.
func (m *Comm) within(c context.Context) (context.Context, func()) {
	c, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(m.life, func() { cancel(m.Err()) })
	return c, func() { stop(); cancel(nil) }
}

// line is the user's that calls.
func line() string {
	var stack [32]uintptr
	file, n := site.Outside(stack[:runtime.Callers(2, stack[:])])
	return fmt.Sprintf("%s:%d", filepath.Base(file), n)
}

// named has an error name the group, and one of ranks workers.
func (m *Comm) named(err error) error {
	if err == nil {
		return nil
	}
	var e *MismatchError
	if errors.As(err, &e) {
		for i, r := range e.Ranks {
			e.Workers[i] = m.g.Members()[r].Worker
		}
	}
	return fmt.Errorf("gpus: NCCL in group %q: %w", m.g.Name(), err)
}

// Await waits for something that waits for the GPU, as a stream's Sync, on a goroutine of its own:
// where the communicator ends, it returns at once, whatever becomes of wait.
func (m *Comm) Await(c context.Context, wait func() error) error {
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		return err
	case <-m.life.Done():
		return m.Err()
	case <-c.Done():
		return ended(c)
	}
}

// watch asks NCCL for errors, and the group whether it lives.
func (m *Comm) watch() {
	tick := time.NewTicker(m.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-m.life.Done():
			return
		case <-tick.C:
		}
		err := m.g.Err()
		if err == nil {
			_, err = m.comm.Async()
		}
		if errors.Is(err, nccl.ErrClosed) { // by Close, here
			return
		}
		if err != nil {
			_ = m.broken(err)
			return
		}
	}
}

// broken ends the communicator because of what happened here, tells the others, and gives what it
// ended with.
func (m *Comm) broken(err error) error {
	if m.Err() != nil {
		return m.Err()
	}
	var lost *collective.LostError
	var failed *FailedError
	var own *nccl.Error
	ours := errors.As(err, &own)
	if ours {
		err = &FailedError{Rank: m.g.Rank(), Worker: m.g.Worker().Name(), Cause: err}
	}
	if m.fail(err) && !errors.As(err, &lost) && (ours || !errors.As(err, &failed)) {
		m.tell(alarmOf(err))
	}
	return m.Err()
}

// disagreed is broken where the members could not agree. Where one of them has given up, it or who
// made it do so tells why.
func (m *Comm) disagreed(err error) error {
	if errors.Is(err, collective.ErrAborted) {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-m.life.Done():
		case <-late.C:
		}
	}
	return m.broken(err)
}

// tell sends an alarm to all other members, and does not wait. Who cannot be reached finds out
// itself.
func (m *Comm) tell(a alarm) {
	for _, member := range m.g.Members() {
		if member.Rank != m.g.Rank() {
			m.runs.Go(func() {
				c, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_ = rpc.Post(c, m.g.Worker(), member.Worker, "nccl/"+m.name, a.encode())
			})
		}
	}
}

// fail ends the communicator. It says whether it was this call that ended it. NCCL's abort may
// hang: nobody waits for it but Close.
func (m *Comm) fail(err error) bool {
	m.mu.Lock()
	if m.Err() != nil {
		m.mu.Unlock()
		return false
	}
	aborted := make(chan struct{})
	m.aborted = aborted
	comm := m.comm
	m.end(err)
	m.mu.Unlock()
	m.d.abandon(m)
	go func() {
		defer close(aborted)
		if comm != nil {
			_ = comm.Abort()
		}
	}()
	return true
}

// Abort ends the communicator on all members, from whatever goroutine: what is under way fails with
// the cause, and leaves garbage.
func (m *Comm) Abort(cause error) { _ = m.broken(fmt.Errorf("%w: %w", nccl.ErrAborted, cause)) }

// Close ends the communicator in good order: all members call it, when what was submitted is done
// or will be without this member. It waits for the others until c ends, and then aborts. One that
// has failed is only let go: by then NCCL has aborted, or c ends before.
func (m *Comm) Close(c context.Context) error {
	defer m.stop()
	if m.Err() != nil || m.hold(c) != nil {
		return m.letGo(c)
	}
	defer m.letNext()
	done := make(chan error, 1)
	go func() { done <- m.d.gpu.Within(func() error { return m.comm.Close(c) }) }()
	select {
	case err := <-done:
		if err != nil {
			return m.broken(err)
		}
		m.end(nccl.ErrClosed)
		return nil
	case <-m.life.Done():
		return m.Err()
	case <-c.Done():
		return m.broken(ended(c))
	}
}

// letGo waits until NCCL has aborted.
func (m *Comm) letGo(c context.Context) error {
	m.mu.Lock()
	aborted := m.aborted
	m.mu.Unlock()
	if aborted == nil { // it was closed
		return nil
	}
	select {
	case <-aborted:
		return nil
	case <-c.Done():
		return fmt.Errorf("gpus: NCCL does not let go of a communicator that has ended: %w (%w)", m.Err(), context.Cause(c))
	}
}

// stop ends what the communicator has going on.
func (m *Comm) stop() {
	m.end(nccl.ErrClosed)
	if m.deaf != nil {
		m.deaf()
	}
	m.runs.Wait()
}
