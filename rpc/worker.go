package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/nvtx"
	"github.com/weft-project/weft/rpc/internal/admission"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// Worker is one member of a job. Make it with Join and end it with Leave or Close.
type Worker struct {
	name    string
	rank    int
	world   int
	log     *slog.Logger
	groups  groups
	posts   posts
	shown   groupsShown
	devices *device.Set
	calls   calling
	serving *serving
	passes  *ctx.Container
	epoch   uint64 // of this life of the worker: its incarnation
	refs    *references
	members *membership.Members
	load    *admission.Tally // calls out and handlers in

	ownsStore func() error
	endTrace  func() error
	net       transport.Network

	life context.Context // ends with the worker
	end  context.CancelCauseFunc
	work sync.WaitGroup // goroutines of the worker, and calls
	over sync.Once      // guards Close

}

// WorkerInfo names a member of the job.
type WorkerInfo struct {
	Name        string
	Rank        int
	Incarnation uint64 // of its life: who comes back under the same name or rank has a higher one
}

type workerKey struct{}

// Context derives a context under which functions are called from this worker.
func (w *Worker) Context(c context.Context) context.Context {
	return context.WithValue(c, workerKey{}, w)
}

// FromContext is the worker that c carries: in a handler, the one that serves it.
func FromContext(c context.Context) (*Worker, bool) {
	w, ok := c.Value(workerKey{}).(*Worker)
	return w, ok
}

func from(c context.Context) (*Worker, error) {
	if f, ok := c.Value(checkpointKey{}).(string); ok {
		return nil, fmt.Errorf("%w: %s", ErrCheckpoint, f)
	}
	if w, ok := FromContext(c); ok {
		return w, nil
	}
	return nil, ErrNoWorker
}

// Pass runs fn inside a new pass and leaves the pass afterwards, whatever happens: everything made
// in it is freed, here and on the workers that it reached.
func (w *Worker) Pass(c context.Context, fn func(c context.Context) error) error {
	in, p, err := w.passes.Open(w.Context(c))
	if err != nil {
		return err
	}
	defer p.Leave()
	if nvtx.On() {
		defer nvtx.Begin(fmt.Sprint("pass ", p.ID())).End()
	}
	return fn(in)
}

// Name of this worker.
func (w *Worker) Name() string { return w.name }

// Rank of this worker, from 0.
func (w *Worker) Rank() int { return w.rank }

// WorldSize is the number of workers in the job; in a dynamic world 0.
func (w *Worker) WorldSize() int { return w.world }

// Devices are the devices that this worker can use.
func (w *Worker) Devices() *device.Set { return w.devices }

// Passes lists the passes that are alive on this worker.
func (w *Worker) Passes() []ctx.PassInfo { return w.passes.Passes() }

// Workers lists the members by rank, this worker included. In a dynamic world these are the ones
// that this worker knows to be there; in a static one all, also who has left or is lost.
func (w *Worker) Workers() []WorkerInfo {
	var infos []WorkerInfo
	for _, p := range w.members.All() {
		if w.world > 0 || p.Gone == nil {
			infos = append(infos, infoOf(p.Peer))
		}
	}
	return infos
}

// Find is the worker of that name, or of that [Rank]. In a dynamic world it may have joined just
// now. It fails with ErrUnknownWorker, and as calls to it do where it is gone.
func (w *Worker) Find(c context.Context, name string) (WorkerInfo, error) {
	p, err := w.members.Lookup(c, name)
	if err == nil {
		err = p.Lost()
	}
	if err != nil {
		return WorkerInfo{}, w.wrap("", "find", err)
	}
	return infoOf(p), nil
}

// Rank names a worker by its rank, wherever calls take a name.
func Rank(n int) string { return membership.NameOfRank(n) }

// wrap dresses an error with this worker, the peer and what was attempted.
func (w *Worker) wrap(peer, function string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{w.name, peer, function, err}
}

// countWork counts a call or a handler as outstanding work; it fails when the worker is gone.
func (w *Worker) countWork() error {
	if !w.load.Begin() {
		return ErrLeft
	}
	return nil
}

// beginFor is begin for a request of a peer: who leaves finishes what it has begun, and begins no
// calls.
func (sv *serving) beginFor(kind uint8) error {
	w := sv.w
	if kind == wire.KindCall && w.load.Leaving() {
		return fmt.Errorf("%w: %s is about to", ErrPeerLeft, w.name)
	}
	return w.countWork()
}

// Settle waits until every clean-up of a left pass that this worker began was answered.
func (w *Worker) Settle(c context.Context) error { return w.passes.Settle(c) }

// Leave ends this worker in good order: it waits until its calls, its handlers and its clean-ups
// are finished. In a static world it then waits until every other worker has come to leave too (or
// is lost), and serves them meanwhile; in a dynamic one the others go on, and calls of theirs that
// come now fail with ErrPeerLeft. Then it gives back the references that it still holds, waits
// until the others have done so, and closes as Close does. In a static world it fails with
// ErrPeerLost where a worker was lost before it came to leave. When c ends first, Leave closes at
// once and says what was outstanding, references by ErrLeaked.
func (w *Worker) Leave(c context.Context) error {
	err := w.settleAll(c)
	return errors.Join(w.wrap("", "leave", err), w.Close())
}

func (w *Worker) settleAll(c context.Context) error {
	err := w.load.Idle(c, w.world == 0)
	if err != nil {
		return fmt.Errorf("calls are outstanding (%s): %w", w.outstanding(), ctx.AsTimeout(err))
	}
	if err := w.Settle(c); err != nil {
		return err
	}
	if w.world > 0 {
		w.members.Registry.Unclaim() // before the others hear of it, so that whoever has left can join again with the same store
	}
	w.members.Event((*roster.Roster).Leave)
	staying, err := w.members.AwaitLeaving(c)
	if err == nil {
		err = ctx.AsTimeout(w.load.Idle(c, false))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("these workers have not come to leave, or are still served: %v: %w", staying, err), w.refs.leaks())
	}
	if err := errors.Join(w.losses(), w.refs.drain(c)); err != nil {
		return err
	}
	return w.members.AwaitTold(c)
}

// outstanding says which calls are under way, by function.
func (w *Worker) outstanding() string {
	var parts []string
	for _, way := range []struct {
		name string
		of   *counts.FunctionStats
	}{{"to others", &w.calls.out}, {"from others", &w.serving.stats}} {
		for label, s := range way.of.List() {
			if n := s.InFlight.Load(); n > 0 && label == s.Label {
				parts = append(parts, fmt.Sprintf("%s: %d %s", label, n, way.name))
			}
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// losses says which workers were lost, and not left.
func (w *Worker) losses() error {
	if w.world == 0 {
		return nil // the others go on, and so does this worker's leaving
	}
	var errs []error
	for _, p := range w.members.All() {
		if errors.Is(p.Gone, ErrPeerLost) {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, p.Gone))
		}
	}
	return errors.Join(errs...)
}

// Close ends this worker at once: calls fail with ErrLeft, peers see it leave. It is idempotent and
// returns when all its goroutines have ended; a handler that ignores its context holds it up.
func (w *Worker) Close() (err error) {
	w.over.Do(func() { err = w.shutDown() })
	return err
}

func (w *Worker) shutDown() error {
	w.load.Close()
	w.members.Close()
	w.end(ErrLeft)
	if w.passes != nil {
		w.passes.Close()
		w.refs.close()
	}
	errs := []error{w.members.CloseLinks()}
	w.members.Registry.Unclaim()
	w.calls.pool.Close()
	w.work.Wait()
	if w.endTrace != nil {
		errs = append(errs, w.endTrace())
	}
	if w.ownsStore != nil {
		errs = append(errs, w.ownsStore())
	}
	return errors.Join(errs...)
}
