package optim

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
)

// Param is a reference to a parameter on any worker.
type Param = rpc.RRef[*autodiff.Tensor]

// Distributed steps parameters on the workers that own them, with one optimizer per owner.
type Distributed struct {
	parts []rpc.RRef[*Local]
}

// Functions are what a worker must serve for its parameters to be stepped by other workers: list them in its rpc.Config.
func Functions() []rpc.Function { return []rpc.Function{newLocal, stepLocal} }

// making is a request for an optimizer. Exactly one rule is set.
type making struct {
	SGD    *SGD
	Adam   *Adam
	AdamW  *AdamW
	Params []Param
}

var newLocal = rpc.Define("weft.optim.new", func(c context.Context, in making) (*Local, error) {
	local, err := build(c, in)
	for _, p := range in.Params {
		p.Release() // what arrives is the callee's to release
	}
	return local, err
})

func build(c context.Context, in making) (*Local, error) {
	var rule Rule
	switch {
	case in.SGD != nil:
		rule = *in.SGD
	case in.Adam != nil:
		rule = *in.Adam
	case in.AdamW != nil:
		rule = *in.AdamW
	}
	params := make([]*autodiff.Tensor, len(in.Params))
	for i, p := range in.Params {
		t, err := p.LocalValue(c)
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i, err)
		}
		params[i] = t
	}
	return New(rule, params...)
}

var stepLocal = rpc.Define("weft.optim.step", func(c context.Context, in rpc.RRef[*Local]) (struct{}, error) {
	defer in.Release()
	local, err := in.LocalValue(c)
	if err != nil {
		return struct{}{}, err
	}
	grads, err := ctx.Gradients(c)
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, local.Step(grads)
})

// NewDistributed makes an optimizer on every owner of a parameter. c must carry this worker. The parameters' references stay the
// caller's. The error joins what failed on any owner.
func NewDistributed(c context.Context, rule Rule, params ...Param) (*Distributed, error) {
	if len(params) == 0 {
		return nil, fmt.Errorf("%w: optimizer got an empty parameter list", ErrParameters)
	}
	request, err := requestFor(rule)
	if err != nil {
		return nil, err
	}
	byOwner, owners := map[string][]Param{}, []string{}
	for i, p := range params {
		if err := p.Ready(c); err != nil {
			return nil, fmt.Errorf("%w: parameter %d: %w", ErrParameters, i, err)
		}
		if byOwner[p.Owner()] == nil {
			owners = append(owners, p.Owner())
		}
		byOwner[p.Owner()] = append(byOwner[p.Owner()], p)
	}
	d := &Distributed{}
	var errs []error
	for _, owner := range owners {
		request.Params = byOwner[owner]
		part, err := makePart(ctx.NoGrad(c), owner, request)
		d.parts, errs = append(d.parts, part), append(errs, err)
	}
	for i, part := range d.parts {
		if err := part.Ready(c); errs[i] == nil && err != nil {
			errs = append(errs, fmt.Errorf("error creating optimizer on %s: %w", owners[i], err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		d.Release()
		return nil, err
	}
	return d, nil
}

// makePart makes one owner's optimizer, without a call where the owner is this worker.
func makePart(c context.Context, owner string, request making) (part rpc.RRef[*Local], err error) {
	if w, ok := rpc.FromContext(c); !ok || w.Name() != owner {
		return newLocal.Remote(c, owner, request), nil
	}
	local, err := build(c, request)
	if err != nil {
		return part, fmt.Errorf("error creating optimizer on %s: %w", owner, err)
	}
	return rpc.NewRRef(c, local)
}

func requestFor(rule Rule) (making, error) {
	switch r := rule.(type) {
	case SGD:
		return making{SGD: &r}, r.Check()
	case Adam:
		return making{Adam: &r}, r.Check()
	case AdamW:
		return making{AdamW: &r}, r.Check()
	}
	return making{}, fmt.Errorf("%w: %v has no distributed form; use SGD, Adam or AdamW", ErrRule, rule)
}

// Step steps the parameters on all owners at once, by the gradients of the pass that c carries. It returns when all are
// done; the error joins what failed anywhere.
func (d *Distributed) Step(c context.Context) error {
	if _, ok := ctx.From(c); !ok {
		return fmt.Errorf("%w: %w", ErrStep, ctx.ErrNoPass)
	}
	c = ctx.NoGrad(c)
	errs := make([]error, len(d.parts))
	var wg sync.WaitGroup
	for i, part := range d.parts {
		wg.Go(func() {
			if err := step(c, part); err != nil {
				errs[i] = fmt.Errorf("%w on %s: %w", ErrStep, part.Owner(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// step steps one owner's part, without a call where the owner is this worker.
func step(c context.Context, part rpc.RRef[*Local]) error {
	if w, ok := rpc.FromContext(c); ok && w.Name() == part.Owner() {
		local, err := part.LocalValue(c)
		if err != nil {
			return err
		}
		grads, err := ctx.Gradients(c)
		if err != nil {
			return err
		}
		return local.Step(grads)
	}
	_, err := stepLocal.Call(c, part.Owner(), part)
	return err
}

// Release drops the optimizers on all owners.
func (d *Distributed) Release() {
	for _, part := range d.parts {
		part.Release()
	}
}
