package optim

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/nvtx"
	"github.com/weft-project/weft/kernels"
)

// What can go wrong with optimizers.
var (
	ErrParameters = errors.New("bad parameters")
	ErrStep       = errors.New("error running optimizer")
)

// Local steps this worker's tensors. Safe for concurrent use: steps on one parameter follow one
// another.
type Local struct {
	rates
	groups []kernels.Update
	params []*parameter
	of     map[*autodiff.Tensor]bool // those of params
}

// parameter is a tensor with the rule's state.
type parameter struct {
	of *autodiff.Tensor
	called
	group int

	mu sync.Mutex
	kept
	missed *autodiff.Tensor // on an accelerator: how many of its steps were not made, which nobody waits for
}

// kept is what an optimizer keeps of a parameter between steps; it travels.
type kept struct {
	Steps int
	Slots []*autodiff.Tensor // of the rule's slots; none before the first step
}

// New makes an optimizer for leaves that require gradients. They have no names, so there is no
// [State] to be had of it: see [Named].
func New(rule Rule, params ...*autodiff.Tensor) (*Local, error) {
	return NewGroups(Group[*autodiff.Tensor]{Rule: rule, Params: params})
}

// NewGroups makes an optimizer for groups of leaves that require gradients, each with a rule of its
// own.
func NewGroups(groups ...Group[*autodiff.Tensor]) (*Local, error) {
	rules, err := rulesOf(groups)
	if err != nil {
		return nil, located(err)
	}
	params, names := make([][]*autodiff.Tensor, len(groups)), make([][]string, len(groups))
	for i, g := range groups {
		params[i], names[i] = g.Params, g.Names
	}
	o, err := newOptimizer(rules, params, names)
	return o, located(err)
}

// rulesOf checks all groups.
func rulesOf[P any](groups []Group[P]) ([]kernels.Update, error) {
	rules, errs, n := make([]kernels.Update, len(groups)), make([]error, len(groups)), 0
	for i, g := range groups {
		n += len(g.Params)
		if g.Rule == nil {
			errs[i] = fmt.Errorf("%w: no rule is given", ErrRule)
			continue
		}
		rules[i], errs[i] = checked(g.Rule.Update())
	}
	if n == 0 {
		errs = append(errs, fmt.Errorf("%w: optimizer got an empty parameter list", ErrParameters))
	}
	errs = append(errs, checkNames(groups))
	return rules, errors.Join(errs...)
}

// newOptimizer makes an optimizer of rules and names that were checked.
func newOptimizer(rules []kernels.Update, params [][]*autodiff.Tensor, names [][]string) (*Local, error) {
	o := &Local{groups: rules, of: map[*autodiff.Tensor]bool{}}
	o.reset(rules)
	for g, ts := range params {
		for k, t := range ts {
			p := &parameter{of: t, group: g, called: called{number: len(o.params)}}
			if len(names[g]) > 0 {
				p.name = names[g][k]
			}
			switch {
			case t.Err() != nil:
				return nil, fmt.Errorf("%w: %v: %w", ErrParameters, p, t.Err())
			case !t.RequiresGrad() || !t.IsLeaf():
				return nil, fmt.Errorf("%w: %v (%v) must be a leaf that requires a gradient", ErrParameters, p, t)
			case o.of[t]:
				return nil, fmt.Errorf("%w: %v (%v) is given twice", ErrParameters, p, t)
			}
			o.of[t] = true
			o.params = append(o.params, p)
		}
	}
	for _, p := range o.params {
		p.of.MarkStepped()
	}
	return o, nil
}

// Step steps every parameter that grads holds a gradient for. All parameters are tried, and the
// error joins what failed; but where there is not the memory for all (the state of a first step,
// copies of values that somebody still reads) none is stepped.
//
// None is stepped either where a gradient would be lost unsaid: where grads is empty, holds nil for
// a parameter, or has the gradient of a leaf that no optimizer steps. Leaves that other optimizers
// step are left to those; leaves of a pass or an arena are no parameters, and their gradients the
// caller's to read.
func (o *Local) Step(grads map[*autodiff.Tensor]*autodiff.Tensor) error {
	return o.StepScaled(grads, 1)
}

// StepScaled is Step with every gradient multiplied by a factor, which must be positive. The
// gradients themselves stay as they are.
func (o *Local) StepScaled(grads map[*autodiff.Tensor]*autodiff.Tensor, factor float64) error {
	return located(o.stepAll(grads, pace{o.LR(), factor}))
}

// stepAll is step for gradients that the caller has chosen: there are some.
func (o *Local) stepAll(grads map[*autodiff.Tensor]*autodiff.Tensor, how pace) error {
	if len(grads) == 0 {
		return fmt.Errorf("%w: there are no gradients; Backward gives them", ErrStep)
	}
	return o.step(grads, how)
}

// pace is how a step is made; it travels.
type pace struct {
	LR     []float64 // per group
	Factor float64   // of gradients
}

func (o *Local) step(grads map[*autodiff.Tensor]*autodiff.Tensor, how pace) error {
	defer nvtx.Begin("optimizer step").End()
	if len(how.LR) != len(o.groups) {
		return fmt.Errorf("%w: %d learning rates for %d groups", ErrStep, len(how.LR), len(o.groups))
	}
	if !(how.Factor > 0) {
		return fmt.Errorf("%w: gradients cannot be multiplied by %g", ErrStep, how.Factor)
	}
	if err := o.serves(grads); err != nil {
		return err
	}
	var b batch
	for _, p := range o.params {
		g := grads[p.of]
		if g == nil {
			continue
		}
		u := o.groups[p.group]
		u.LR = how.LR[p.group]
		u.Scale *= how.Factor
		b.lockState(turn{p, u, g})
	}
	return b.finish()
}
