package rpc

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/weft-project/weft/ctx"
)

// RRef is a reference to a value that stays at its owner. It may be passed to and returned from any function. Copies of an RRef
// share one count; release the last with Release, or leave it to the garbage collector. The zero RRef refers to nothing.
type RRef[T any] struct{ *ref }

// anyRef is an RRef of any type.
type anyRef interface {
	core() *ref
	self() reflect.Type // a struct that embeds an RRef has the RRef's, not its own
}

type settableRef interface{ setCore(*ref) }

func (r RRef[T]) core() *ref         { return r.ref }
func (r RRef[T]) self() reflect.Type { return reflect.TypeFor[RRef[T]]() }
func (r *RRef[T]) setCore(c *ref)    { r.ref = c }

// ref is one holder's share in a value.
type ref struct {
	w     *Worker
	id    refID
	ready chan struct{} // closed when the owner has the value, or failed
	state *refState
}

// refState outlives ref where the collector finds that it was not released.
type refState struct {
	err error // why there is no value; set before ready is closed

	mu       sync.Mutex
	users    int // calls that carry the reference, or make its value
	released bool
}

// release notes that the share is not wanted any more; it says whether to give it back now.
func (s *refState) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.released
	s.released = true
	return first && s.users == 0
}

// pin keeps the share, also when it is released meanwhile, until unpin.
func (r *ref) pin() error {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if r.state.released {
		return fmt.Errorf("%w: %v", ErrReleased, r)
	}
	r.state.users++
	return nil
}

func (r *ref) unpin() {
	r.state.mu.Lock()
	r.state.users--
	last := r.state.released && r.state.users == 0
	r.state.mu.Unlock()
	if last && r.w != nil {
		r.w.giveBack(r.id, r.state)
	}
}

func failedRef(err error) *ref {
	r := &ref{ready: make(chan struct{}), state: &refState{err: err}}
	close(r.ready)
	return r
}

// newRef makes a holder's share, which counts at the owner already (or will, when pending is true).
func (w *Worker) newRef(id refID, pending bool) *ref {
	r := &ref{w: w, id: id, ready: make(chan struct{}), state: &refState{}}
	if !pending {
		close(r.ready)
	}
	state := r.state
	runtime.AddCleanup(r, func(id refID) { w.drop(id, state) }, id)
	return r
}

// settle ends the wait for the value.
func (r *ref) settle(err error) {
	r.state.err = err
	close(r.ready)
}

// settled waits until the owner has the value.
func (r *ref) settled(c context.Context) error {
	select {
	case <-r.ready:
		return r.state.err
	default:
	}
	select {
	case <-r.ready:
		return r.state.err
	case <-c.Done():
		return ctx.AsTimeout(context.Cause(c))
	}
}

// use waits until the owner has the value and pins the share; the caller must unpin it where use succeeds.
func (r *ref) use(c context.Context) error {
	if r == nil {
		return fmt.Errorf("%w: the reference refers to nothing", ErrReleased)
	}
	if err := r.pin(); err != nil {
		return err
	}
	if err := r.settled(c); err != nil {
		r.unpin()
		return err
	}
	return nil
}

// Owner is the name of the worker that has the value; empty for a reference that failed or refers to nothing.
func (r *ref) Owner() string {
	if r == nil || r.w == nil {
		return ""
	}
	return r.w.nameOf(r.id.Owner)
}

// Ready waits until the owner has the value; it fails as the call that makes the value did.
func (r *ref) Ready(c context.Context) error {
	if err := r.use(c); err != nil {
		return err
	}
	r.unpin()
	return nil
}

// String prints the owner and the number.
func (r *ref) String() string {
	if r == nil || r.w == nil {
		return "RRef(none)"
	}
	return fmt.Sprintf("RRef(%s, %d.%d)", r.Owner(), r.id.ID>>48, r.id.ID&(1<<48-1))
}

// Release gives the share back. The value is dropped when all shares are. Calls under way keep it for as long as they need
// it. Uses after it fail with ErrReleased; a second Release does nothing.
func (r *ref) Release() {
	if r != nil && r.w != nil {
		r.w.drop(r.id, r.state)
	}
}

// ToHere copies the value from its owner. In a pass, tensors in it are recorded as a call's result would be.
func (r RRef[T]) ToHere(c context.Context) (v T, err error) {
	if err := r.use(c); err != nil {
		return v, err
	}
	defer r.unpin()
	cd, err := codecFor(reflect.TypeFor[T]())
	if err != nil {
		return v, r.w.wrap(r.Owner(), "fetch", err)
	}
	err = r.w.fetch(c, r.ref, cd, reflect.ValueOf(&v).Elem())
	return v, err
}

// LocalValue is the value itself, on its owner; elsewhere it fails with ErrNotOwner.
func (r RRef[T]) LocalValue(c context.Context) (v T, err error) {
	if err := r.use(c); err != nil {
		return v, err
	}
	defer r.unpin()
	if r.id.Owner != r.w.rank {
		return v, r.w.wrap(r.Owner(), "local value", fmt.Errorf("%w: %s is", ErrNotOwner, r.Owner()))
	}
	got, err := r.w.owned.value(c, r.id.ID)
	if err != nil {
		return v, r.w.wrap("", "local value", err)
	}
	v, ok := got.Interface().(T)
	if !ok {
		return v, r.w.wrap("", "local value", fmt.Errorf("%w: the value is a %v, not a %v", ErrArguments, got.Type(), reflect.TypeFor[T]()))
	}
	return v, nil
}

// NewRRef makes this worker the owner of a value.
func NewRRef[T any](c context.Context, v T) (RRef[T], error) {
	w, err := from(c)
	if err != nil {
		return RRef[T]{}, err
	}
	id := refID{Owner: w.rank, ID: w.nextID(), Fork: w.nextID()}
	if err := w.owned.add(id, w.rank); err != nil {
		return RRef[T]{}, err
	}
	w.owned.fill(id.ID, reflect.ValueOf(&v).Elem(), nil)
	return RRef[T]{w.newRef(id, false)}, nil
}

// owners is what this worker owns for its references: values and who holds shares in them.
type owners struct {
	mu sync.Mutex
	of map[uint64]*owned
}

type owned struct {
	forks map[uint64]int // fork → rank of its holder
	ready chan struct{}
	value reflect.Value
	err   error
}

// add makes room for a value that its creator holds the first share in.
func (o *owners) add(id refID, holder int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[uint64]*owned{}
	}
	if o.of[id.ID] != nil || int(id.ID>>48) != holder {
		return fmt.Errorf("%w: value %x of worker %d is here already, or not its to name", ErrProtocol, id.ID, holder)
	}
	o.of[id.ID] = &owned{forks: map[uint64]int{id.Fork: holder}, ready: make(chan struct{})}
	return nil
}

// fork counts a further share in a value that is here.
func (o *owners) fork(id refID, holder int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.of[id.ID]
	if v == nil {
		return fmt.Errorf("%w: the value is gone", ErrReleased)
	}
	if _, counted := v.forks[id.Fork]; counted {
		return fmt.Errorf("%w: share %x is counted already", ErrProtocol, id.Fork)
	}
	v.forks[id.Fork] = holder
	return nil
}

// fill gives the value, or why there is none.
func (o *owners) fill(id uint64, value reflect.Value, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.of[id]; v != nil {
		v.value, v.err = value, err
		close(v.ready)
	}
}

// value waits for a value.
func (o *owners) value(c context.Context, id uint64) (reflect.Value, error) {
	o.mu.Lock()
	v := o.of[id]
	o.mu.Unlock()
	if v == nil {
		return reflect.Value{}, fmt.Errorf("%w: the value is gone", ErrReleased)
	}
	select {
	case <-v.ready:
		return v.value, v.err
	case <-c.Done():
		return reflect.Value{}, ctx.AsTimeout(context.Cause(c))
	}
}

// drop takes a share back from its holder; the value goes with the last. Unknown shares are no error: deletions may repeat.
func (o *owners) drop(id refID, holder int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.of[id.ID]
	if v == nil {
		return
	}
	if who, counted := v.forks[id.Fork]; !counted || who != holder {
		return
	}
	delete(v.forks, id.Fork)
	if len(v.forks) == 0 {
		delete(o.of, id.ID)
	}
}

// lost drops the shares of a worker that is gone.
func (o *owners) lost(rank int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, v := range o.of {
		for f, holder := range v.forks {
			if holder == rank {
				delete(v.forks, f)
			}
		}
		if len(v.forks) == 0 {
			delete(o.of, id)
		}
	}
}

// count is the number of values.
func (o *owners) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.of)
}
