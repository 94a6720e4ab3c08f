package rpc

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/refs"
)

// RRef is a reference to a value that stays at its owner. It may be passed to and returned from any
// function. Copies of an RRef share one count; release the last with Release, or leave it to the
// garbage collector. The zero RRef refers to nothing.
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

// forms makes the codecs of values.
var forms = codec.Types{
	IsRef: func(t reflect.Type) bool { // an RRef itself, and not a struct that embeds one
		return t.Kind() == reflect.Struct && t.Implements(refType) && reflect.Zero(t).Interface().(anyRef).self() == t
	},
	RefOf: func(v reflect.Value) codec.Ref {
		if r := v.Interface().(anyRef).core(); r != nil {
			return (*pinnable)(r)
		}
		return nil
	},
	SetRef:   func(v reflect.Value, r codec.Ref) { v.Addr().Interface().(settableRef).setCore((*ref)(r.(*pinnable))) },
	IsFuture: func(t reflect.Type) bool { return t.Implements(futureType) },
}

var (
	refType    = reflect.TypeFor[anyRef]()
	futureType = reflect.TypeFor[pending]()
)

// pinnable is a ref as the codec sees it: an RRef does not have these methods.
type pinnable ref

func (r *pinnable) Pin() error { return (*ref)(r).pin() }
func (r *pinnable) Unpin()     { (*ref)(r).unpin() }
func (r *pinnable) Release()   { (*ref)(r).Release() }

// ref is one holder's share in a value.
type ref struct {
	w     *Worker
	id    refs.ID
	hold  refs.Hold
	ready chan struct{} // closed when the owner has the value and counts this share, or failed
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
		r.w.refs.release(r.hold)
	}
}

func failedRef(err error) *ref {
	r := &ref{ready: make(chan struct{}), state: &refState{err: err}}
	close(r.ready)
	return r
}

// newRef makes a holder's share; settle must follow where it is not confirmed yet.
func (rs *references) newRef(h refs.Hold, id refs.ID, confirmed bool) *ref {
	r := &ref{w: rs.w, id: id, hold: h, ready: make(chan struct{}), state: &refState{}}
	if confirmed {
		close(r.ready)
	}
	state := r.state
	runtime.AddCleanup(r, func(h refs.Hold) { rs.drop(h, state) }, h)
	return r
}

// drop gives a share back, once: now, or when the last call that carries it ends.
func (rs *references) drop(h refs.Hold, state *refState) {
	if state.release() {
		rs.release(h)
	}
}

// resolve ends the wait for the value.
func (r *ref) resolve(err error) {
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

// use waits until the owner has the value and pins the share; the caller must unpin it where use
// succeeds.
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

// Owner is the name of the worker that has the value; empty for a reference that failed or refers
// to nothing.
func (r *ref) Owner() string {
	if r == nil || r.w == nil {
		return ""
	}
	return r.w.members.NameOf(r.id.Owner.Rank)
}

// Confirmed says whether the owner has the value and counts this reference. It is true of every
// reference that arrives in a call, and of one that Remote gives when Ready returns without an
// error.
func (r *ref) Confirmed() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.ready:
		return r.state.err == nil
	default:
		return false
	}
}

// Ready waits until the owner has the value; it fails as the call that makes the value did.
func (r *ref) Ready(c context.Context) error {
	if err := r.use(c); err != nil {
		return err
	}
	r.unpin()
	return nil
}

// String prints the owner, and the creator's rank and number.
func (r *ref) String() string {
	if r == nil || r.w == nil {
		return "RRef(none)"
	}
	return r.w.refs.refName(r.id)
}

// Release gives the share back. The value is dropped when all shares are. Calls under way keep it
// for as long as they need it. Uses after it fail with ErrReleased; a second Release does nothing.
func (r *ref) Release() {
	if r != nil && r.w != nil {
		r.w.refs.drop(r.hold, r.state)
	}
}

// ToHere copies the value from its owner. In a pass, tensors in it are recorded as a call's result
// would be.
func (r RRef[T]) ToHere(c context.Context) (v T, err error) {
	if err := r.use(c); err != nil {
		return v, err
	}
	defer r.unpin()
	cd, err := forms.For(reflect.TypeFor[T]())
	if err != nil {
		return v, r.w.wrap(r.Owner(), "fetch", err)
	}
	err = r.w.fetch(c, r.ref, cd, &v)
	return v, err
}

// LocalValue is the value itself, on its owner; elsewhere it fails with ErrNotOwner.
func (r RRef[T]) LocalValue(c context.Context) (v T, err error) {
	if err := r.use(c); err != nil {
		return v, err
	}
	defer r.unpin()
	if r.id.Owner != r.w.refs.me {
		return v, r.w.wrap(r.Owner(), "local value", fmt.Errorf("%w: the value is on %s", ErrNotOwner, r.Owner()))
	}
	got, err := r.w.refs.value(c, r.id)
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
	h, id := w.refs.own(reflect.ValueOf(&v).Elem())
	return RRef[T]{w.refs.newRef(h, id, true)}, nil
}

// rootOf is a request for a backward from a value where it lies.
type rootOf struct {
	Root    RRef[*autodiff.Tensor]
	Mode    ctx.Mode
	Retain  bool
	Anomaly bool
	Grads   []*autodiff.Tensor // of the root; none or one
}

// backwardAt is served by every worker.
var backwardAt = Define("weft.backward", func(c context.Context, in rootOf) (struct{}, error) {
	defer in.Root.Release()
	root, err := in.Root.LocalValue(c)
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, ctx.BackwardWith(c, ctx.Options{Mode: in.Mode, RetainGraph: in.Retain, Anomaly: in.Anomaly, Grads: in.Grads}, root)
})

// Backward begins a backward of the pass that c carries at the reference's value, on its owner: as
// [ctx.Backward] there. The value must be a tensor that was made in the pass.
func (r RRef[T]) Backward(c context.Context) error { return r.BackwardWith(c, ctx.Options{}) }

// BackwardWith is Backward with options. A gradient among them must lie, or be mapped to, where the
// value lies.
func (r RRef[T]) BackwardWith(c context.Context, o ctx.Options) error {
	root, ok := any(r).(RRef[*autodiff.Tensor])
	if r.ref == nil || r.w == nil {
		_, err := r.LocalValue(c) // says what is wrong
		return err
	}
	if !ok {
		return r.w.wrap(r.Owner(), "backward", fmt.Errorf("%w: a backward begins at a tensor, not at a %v", ErrArguments, reflect.TypeFor[T]()))
	}
	if _, ok := ctx.From(c); !ok {
		return r.w.wrap(r.Owner(), "backward", ctx.ErrNoPass)
	}
	_, err := backwardAt.Call(ctx.NoGrad(c), r.Owner(), rootOf{root, o.Mode, o.RetainGraph, o.Anomaly, o.Grads})
	return err
}
