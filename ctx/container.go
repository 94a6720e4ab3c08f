package ctx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/device"
)

// Links carries messages between the containers of a job; package rpc implements it. The calls
// return when the peer has answered. They keep nothing that they are given.
type Links interface {
	// SendGradients gives a [Failure] that the peer answered with as one.
	SendGradients(c context.Context, to WorkerID, g *GradientMessage) error
	SendAbort(c context.Context, to WorkerID, f *Failure) error
	SendCleanup(c context.Context, to WorkerID, pass PassID) error
	// SendRenew asks the opener of passes which of them it has left.
	SendRenew(c context.Context, to WorkerID, passes []PassID) (left []PassID, err error)
	// AskGraph gets what [Container.GraphPart] gives there. The part need not be checked.
	AskGraph(c context.Context, to WorkerID, pass PassID) (passgraph.Worker, error)
	// Name is the worker's name, for errors.
	Name(w WorkerID) string
}

// GradientMessage brings the gradients of one send function.
type GradientMessage struct {
	Pass     PassID
	Message  MessageID
	Backward BackwardID
	Mode     Mode
	Plan     Plan // nil where the receiver has it, and in FAST mode
	Retain   bool
	Anomaly  bool
	Grads    []*autodiff.Tensor // one per tensor of the send function; nil for none
	Targets  []device.ID        // the device each is to land on: where the tensor came from
}

// Config of a container. Links is required.
type Config struct {
	Worker WorkerID
	Links  Links
	// Timeout is the deadline of a backward whose context has none; 0 for none.
	Timeout time.Duration
	// Lease is how long a part of a pass stays without word from the worker that opened it; 0 for
	// 30 seconds. It asks three times as often.
	Lease  time.Duration
	Logger *slog.Logger // nil: silent
	// Observer is told of backwards, nil for nobody. With one the functions of passes are timed,
	// for [Graph].
	Observer Observer
	// First is where the counter of ids begins: a worker that comes back must not draw those of its
	// life before.
	First uint64
}

// Container holds the passes of one worker.
type Container struct {
	me       WorkerID
	links    Links
	wait     time.Duration // of a backward without a deadline; 0: for ever
	lease    time.Duration
	log      *slog.Logger
	observer Observer // nil: nobody

	counter atomic.Uint64 // of passes, messages and backwards

	mu        sync.Mutex // may be held when Pass.mu is taken, never the other way round
	passes    map[PassID]*Pass
	gone      tombstones
	closed    bool
	telling   int           // messages to other workers under way that nobody waits for
	settled   chan struct{} // closed when none is; nil where nobody waits
	watching  bool          // a look at the leases is to come, or under way
	watch     *time.Timer
	cleanCtx  context.Context
	cleanStop context.CancelFunc
}

// NewContainer makes an empty container.
func NewContainer(cfg Config) *Container {
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c, stop := context.WithCancel(context.Background())
	ct := &Container{me: cfg.Worker, links: cfg.Links, wait: cfg.Timeout, lease: cmp.Or(cfg.Lease, defaultLease), log: log, observer: cfg.Observer, passes: map[PassID]*Pass{}, cleanCtx: c, cleanStop: stop}
	ct.counter.Store(cfg.First)
	return ct
}

// nextID draws from the worker's counter.
func (ct *Container) nextID() uint64 { return newID(ct.me, ct.counter.Add(1)) }

// Open begins a pass. The returned context carries it and ends when the pass is left.
func (ct *Container) Open(c context.Context) (context.Context, *Pass, error) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	if ct.closed {
		return nil, nil, &Error{ct.links.Name(ct.me), 0, "open", ErrLeft}
	}
	outer, _ := From(c)
	p := ct.addLocked(PassID(ct.nextID()), ct.me, outer)
	c, p.stop = p.context(c, false, nil)
	return c, p, nil
}

func (ct *Container) addLocked(id PassID, parent WorkerID, outer *Pass) *Pass {
	p := newPass(ct, id, outer)
	if ct.observer != nil {
		p.arena.Time()
	}
	p.parent = parent
	ct.passes[id] = p
	if id.Creator() != ct.me {
		p.heard = time.Now()
		ct.watchLocked()
	}
	return p
}

// Enter finds the pass of a call that arrived from a worker, or makes it, and gives the context for
// the work. The caller must call done when the work is finished. explain, where there is one, makes
// the cause of that context of an [EndError]. It fails with ErrUnknownPass when the pass was left
// already.
func (ct *Container) Enter(c context.Context, id PassID, from WorkerID, explain func(error) error) (in context.Context, p *Pass, done func(), err error) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	p = ct.passes[id]
	if p == nil {
		if ct.closed || ct.gone.has(id) || id.Creator() == ct.me {
			return nil, nil, nil, ct.unknown(id, "enter")
		}
		p = ct.addLocked(id, from, nil)
	}
	if from == id.Creator() {
		p.parent = from
	}
	p.meet(from)
	in, stop := p.context(c, true, explain)
	return in, p, func() { stop(nil) }, nil
}

func (ct *Container) find(id PassID, op string) (*Pass, error) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	if p := ct.passes[id]; p != nil {
		return p, nil
	}
	return nil, ct.unknown(id, op)
}

// unknown is the error for a pass that is not here, with why where that is known. The caller holds
// ct.mu.
func (ct *Container) unknown(id PassID, op string) error {
	err := ErrUnknownPass
	if why := ct.gone.set[id]; why != nil {
		err = fmt.Errorf("%w: %w", ErrUnknownPass, why)
	}
	return &Error{ct.links.Name(ct.me), id, op, err}
}

// remove takes a pass out because worker by says so; nil when it is not here, or by has no say. It
// stays away: a clean-up may overtake the call that would have made it. why is for who asks for it
// later, nil where there is nothing to explain.
func (ct *Container) remove(id PassID, by WorkerID, why error) *Pass {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	p := ct.passes[id]
	if by != ct.me && (id.Creator() == ct.me || p != nil && by != id.Creator() && by != p.parent) {
		return nil
	}
	delete(ct.passes, id)
	ct.gone.add(id, why)
	return p
}

// PassInfo describes a pass that is alive here.
type PassInfo struct {
	ID        PassID
	Sends     int   // send functions
	Recvs     int   // recv functions
	Backwards int   // under way
	Bytes     int64 // what its tensors and gradients hold
}

// Passes lists the passes that are alive on this worker.
func (ct *Container) Passes() []PassInfo {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	infos := make([]PassInfo, 0, len(ct.passes))
	for _, p := range ct.passes {
		infos = append(infos, p.info())
	}
	return infos
}

// HandleCleanup frees a pass because worker from left it, and tells the workers that this one
// called in it. Only who opened the pass or brought it here has a say. A pass that is not here is
// no error: clean-ups may cross, repeat and run in circles.
func (ct *Container) HandleCleanup(_ context.Context, id PassID, from WorkerID) {
	p := ct.remove(id, from, nil)
	if p == nil {
		return
	}
	p.release(from, fmt.Errorf("%w by %s", ErrLeft, ct.links.Name(from)))
	if !ct.begin() {
		return
	}
	defer ct.done()
	var wg sync.WaitGroup
	for _, w := range p.others(from) {
		wg.Go(func() { // also when from no longer waits for the answer: it will not be heard a second time
			ct.notify(ct.cleanCtx, id, "a pass was left", w, func(c context.Context, w WorkerID) error { return ct.links.SendCleanup(c, w, id) })
		})
	}
	wg.Wait()
}

// PeerLost ends what depends on a lost worker. Passes that it opened, or brought here on another's
// behalf, are freed, as nobody else will; the workers that this one called in them are told.
// Backwards of other passes that it took part in fail with ErrPeerLost.
func (ct *Container) PeerLost(w WorkerID, cause error) {
	err := cause
	if !errors.Is(err, ErrPeerLost) {
		err = fmt.Errorf("%w: %s: %w", ErrPeerLost, ct.links.Name(w), cause)
	}
	err = &EndError{ct.links.Name(w), err}
	ct.mu.Lock()
	var orphans, wounded []*Pass
	for id, p := range ct.passes {
		if id.Creator() == w || p.parent == w {
			orphans = append(orphans, p)
		} else {
			wounded = append(wounded, p)
		}
	}
	ct.mu.Unlock()
	for _, p := range orphans {
		if ct.remove(p.id, ct.me, err) != nil {
			p.release(w, err)
			ct.clean(p.id, p.others(w))
		}
	}
	for _, p := range wounded {
		p.lose(w, err)
	}
}

// Close frees every pass here and gives up on clean-ups. The container then opens no more passes.
func (ct *Container) Close() {
	ct.mu.Lock()
	ct.closed = true
	if ct.watch != nil {
		ct.watch.Stop()
	}
	all := ct.passes
	ct.passes = map[PassID]*Pass{}
	ct.mu.Unlock()
	ct.cleanStop()
	for _, p := range all {
		p.release(ct.me, ErrLeft)
	}
	_ = ct.Settle(context.Background()) // it ends: nothing more is begun, and what is under way ends with cleanCtx
}
