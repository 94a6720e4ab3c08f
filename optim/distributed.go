package optim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
)

// Param is a reference to a parameter on any worker.
type Param = rpc.RRef[*autodiff.Tensor]

// Distributed steps parameters on the workers that own them, with one optimizer per owner. Safe for
// concurrent use. Learning rates and the schedule are kept here and travel with each step, so that
// a step is made at one rate on all owners.
type Distributed struct {
	rates
	groups  []kernels.Update
	members []member // by number; their types only the owners know
	parts   []part
}

// part is the optimizer on one owner.
type part struct {
	rpc.RRef[*Local]
	owner  string
	params []int // the numbers of its parameters, counted over all groups as they were given
}

// making is a request for an optimizer: rules with all defaults filled in, and the parameters of
// each that are the owner's, with their names.
type making struct {
	Rules  []kernels.Update
	Params [][]Param
	Names  [][]string
}

var newLocal = rpc.Define("weft.optim.new", func(c context.Context, in making) (*Local, error) {
	local, err := build(c, in)
	for _, ps := range in.Params {
		for _, p := range ps {
			p.Release() // what arrives is the callee's to release
		}
	}
	return local, err
})

// build makes an owner's optimizer. The request may come from anybody: all of it is checked.
func build(c context.Context, in making) (*Local, error) {
	if len(in.Rules) != len(in.Params) || len(in.Names) != len(in.Params) {
		return nil, fmt.Errorf("%w: %d rules and %d lists of names for %d groups", ErrRule, len(in.Rules), len(in.Names), len(in.Params))
	}
	groups, called := make([][]*autodiff.Tensor, len(in.Params)), make([]Group[Param], len(in.Params))
	for g, ps := range in.Params {
		called[g] = Group[Param]{Params: ps, Names: in.Names[g]}
	}
	if err := checkNames(called); err != nil {
		return nil, err
	}
	for g, ps := range in.Params {
		if _, err := checked(in.Rules[g]); err != nil {
			return nil, err
		}
		for i, p := range ps {
			t, err := p.LocalValue(c)
			if err != nil {
				return nil, fmt.Errorf("%w: parameter %d of group %d: %w", ErrParameters, i, g, err)
			}
			groups[g] = append(groups[g], t)
		}
	}
	return newOptimizer(in.Rules, groups, in.Names)
}

// NewDistributed makes an optimizer on every owner of a parameter. c must carry this worker. The
// parameters' references stay the caller's. The error joins what failed on any owner.
func NewDistributed(c context.Context, rule Rule, params ...Param) (*Distributed, error) {
	return NewDistributedGroups(c, Group[Param]{Rule: rule, Params: params})
}

// NewDistributedGroups is NewDistributed for groups of parameters, each with a rule of its own.
func NewDistributedGroups(c context.Context, groups ...Group[Param]) (*Distributed, error) {
	d, err := newDistributed(c, groups)
	return d, located(err)
}

func newDistributed(c context.Context, groups []Group[Param]) (*Distributed, error) {
	rules, err := rulesOf(groups)
	if err != nil {
		return nil, err
	}
	d := &Distributed{groups: rules}
	d.reset(rules)
	requests, err := d.divide(c, groups)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(d.parts))
	for i := range d.parts { // all begin before the first is waited for
		d.parts[i].RRef, errs[i] = makePart(ctx.NoGrad(c), d.parts[i].owner, requests[i])
	}
	for i, p := range d.parts {
		if errs[i] == nil {
			errs[i] = p.Ready(c)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("error creating optimizer on %s: %w", p.owner, errs[i])
		}
	}
	if err := errors.Join(errs...); err != nil {
		d.Release()
		return nil, err
	}
	return d, nil
}

// divide makes a part, and a request for it, for every owner.
func (d *Distributed) divide(c context.Context, groups []Group[Param]) (requests []making, err error) {
	at := map[string]int{}
	for g, group := range groups {
		for k, p := range group.Params {
			m := member{called: called{number: len(d.members)}, group: g}
			if len(group.Names) > 0 {
				m.name = group.Names[k]
			}
			if err := p.Ready(c); err != nil {
				return nil, fmt.Errorf("%w: %v: %w", ErrParameters, m, err)
			}
			i, known := at[p.Owner()]
			if !known {
				i = len(d.parts)
				at[p.Owner()], d.parts = i, append(d.parts, part{owner: p.Owner()})
				requests = append(requests, making{d.groups, make([][]Param, len(groups)), make([][]string, len(groups))})
			}
			d.parts[i].params = append(d.parts[i].params, m.number)
			d.members = append(d.members, m)
			requests[i].Params[g] = append(requests[i].Params[g], p)
			if m.name != "" {
				requests[i].Names[g] = append(requests[i].Names[g], m.name)
			}
		}
	}
	return requests, nil
}

// makePart makes one owner's optimizer, without a call where the owner is this worker.
func makePart(c context.Context, owner string, request making) (ref rpc.RRef[*Local], err error) {
	if w, ok := rpc.FromContext(c); !ok || w.Name() != owner {
		return newLocal.Remote(c, owner, request), nil
	}
	local, err := build(c, request)
	if err != nil {
		return ref, err
	}
	return rpc.NewRRef(c, local)
}

// Step steps the parameters on all owners at once, by the gradients of the pass that c carries. A
// parameter without one stays as it is, and so does its state, as in PyTorch: the pass may not have
// used it, nor any other of its owner. Step returns when all are done; the error joins what failed
// anywhere. A pass in which there was no backward is an error. So is a backward that has failed on
// an owner after it went well here (a [ctx.Failure]), and, on an owner, the gradient of a leaf that
// no optimizer steps: see [Local.Step].
func (d *Distributed) Step(c context.Context) error { return d.StepScaled(c, 1) }

// StepScaled is Step with every gradient multiplied by a factor, which must be positive. The
// gradients themselves stay as they are.
func (d *Distributed) StepScaled(c context.Context, factor float64) error {
	return located(d.step(c, pace{d.LR(), factor}))
}

func (d *Distributed) step(c context.Context, how pace) error {
	grads, err := onAll(c, d, true, ErrStep, stepLocal, func(int) pace { return how })
	if err != nil || slices.Max(grads) > 0 {
		return err
	}
	if p, _ := ctx.From(c); !p.HadBackward() {
		return fmt.Errorf("%w: the pass has no gradients; call ctx.Backward before", ErrStep)
	}
	return nil
}

// GradNorm is the Euclidean norm of the gradients of all the optimizer's parameters on all owners
// together, in the pass that c carries. Each owner adds up its own, all at once.
func (d *Distributed) GradNorm(c context.Context) (float64, error) {
	norm, err := d.gradNorm(c)
	return norm, located(err)
}

func (d *Distributed) gradNorm(c context.Context) (float64, error) {
	sums, err := onAll(c, d, true, errNorm, sumLocal, func(int) struct{} { return struct{}{} })
	total := 0.0
	for _, s := range sums {
		total += s
	}
	return math.Sqrt(total), err
}

var errNorm = errors.New("error adding up gradients")

// StepClipped is Step with the gradients clipped so that their norm over all owners is at most max;
// see [ClipFactor]. It gives the norm that they had. It costs one more round to the owners than
// Step. The gradients themselves stay as they are.
func (d *Distributed) StepClipped(c context.Context, max float64) (norm float64, err error) {
	rate := d.LR()
	if norm, err = d.GradNorm(c); err != nil {
		return norm, err
	}
	factor, err := ClipFactor(norm, max)
	if err != nil {
		return norm, located(err)
	}
	return norm, located(d.step(c, pace{rate, factor}))
}

// Release drops the optimizers on all owners.
func (d *Distributed) Release() {
	for _, p := range d.parts {
		p.Release()
	}
}

// Functions are what a worker must serve for its parameters to be stepped by other workers: list
// them in its rpc.Config.
func Functions() []rpc.Function {
	return []rpc.Function{newLocal, stepLocal.method, sumLocal.method, keepLocal.method, typesOfLocal.method, restoreLocal.method}
}

// action is something that an owner's optimizer does.
type action[In, Out any] struct {
	do     func(context.Context, *Local, In) (Out, error)
	method *rpc.Method[*Local, In, Out]
}

func define[In, Out any](name string, do func(context.Context, *Local, In) (Out, error)) action[In, Out] {
	return action[In, Out]{do, rpc.DefineMethod(name, do)}
}

// stepLocal gives how many gradients the pass has on the owner.
var stepLocal = define("weft.optim.step", func(c context.Context, o *Local, how pace) (int, error) {
	grads, err := ctx.Gradients(c)
	if err != nil {
		return 0, err
	}
	return len(grads), o.step(grads, how)
})

var sumLocal = define("weft.optim.norm", func(c context.Context, o *Local, _ struct{}) (float64, error) {
	grads, err := ctx.Gradients(c)
	if err != nil {
		return 0, err
	}
	return o.sumSquares(grads)
})

// onAll does something on all owners at once, in a pass or outside of any; errors are named by what
// failed and where.
func onAll[In, Out any](c context.Context, d *Distributed, inPass bool, what error, a action[In, Out], in func(part int) In) ([]Out, error) {
	switch _, err := ctx.Gradients(c); {
	case inPass && err != nil: // there is no pass, or no owner should step by what is left of a backward
		return nil, fmt.Errorf("%w: %w", what, err)
	case !inPass && !errors.Is(err, ctx.ErrNoPass):
		return nil, fmt.Errorf("%w: the state of an optimizer outlives passes; use a context without one", what)
	}
	c = ctx.NoGrad(c)
	outs, errs := make([]Out, len(d.parts)), make([]error, len(d.parts))
	var wg sync.WaitGroup
	for i, p := range d.parts {
		wg.Go(func() {
			var err error
			if outs[i], err = a.on(c, p, in(i)); err != nil {
				errs[i] = fmt.Errorf("%w on %s: %w", what, p.owner, err)
			}
		})
	}
	wg.Wait()
	return outs, errors.Join(errs...)
}

// on does it on one owner, without a call where that is this worker.
func (a action[In, Out]) on(c context.Context, p part, in In) (out Out, err error) {
	if w, ok := rpc.FromContext(c); !ok || w.Name() != p.owner {
		return a.method.Call(c, p.RRef, in)
	}
	local, err := p.LocalValue(c)
	if err != nil {
		return out, err
	}
	return a.do(c, local, in)
}
