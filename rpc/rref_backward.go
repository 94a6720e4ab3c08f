package rpc

import (
	"context"
	"fmt"
	"reflect"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
)

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
