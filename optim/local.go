package optim

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// What can go wrong with optimizers.
var (
	ErrParameters = errors.New("bad parameters")
	ErrStep       = errors.New("error running optimizer")
)

// Local steps this worker's tensors. Safe for concurrent use: steps on one parameter follow one another.
type Local struct {
	rates
	groups []kernels.Update
	params []*parameter
}

// Group is some parameters with a rule of their own; P is *autodiff.Tensor or [Param].
type Group[P any] struct {
	Rule   Rule
	Params []P
}

// parameter is a tensor with the rule's state.
type parameter struct {
	of    *autodiff.Tensor
	group int

	mu sync.Mutex
	kept
}

// kept is what an optimizer keeps of a parameter between steps; it travels.
type kept struct {
	Steps int
	Slots []*autodiff.Tensor // of the rule's slots; none before the first step
}

// New makes an optimizer for leaves that require gradients.
func New(rule Rule, params ...*autodiff.Tensor) (*Local, error) {
	return NewGroups(Group[*autodiff.Tensor]{rule, params})
}

// NewGroups makes an optimizer for groups of leaves that require gradients, each with a rule of its own.
func NewGroups(groups ...Group[*autodiff.Tensor]) (*Local, error) {
	rules, err := rulesOf(groups)
	if err != nil {
		return nil, err
	}
	params := make([][]*autodiff.Tensor, len(groups))
	for i, g := range groups {
		params[i] = g.Params
	}
	return newOptimizer(rules, params)
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
	return rules, errors.Join(errs...)
}

// newOptimizer makes an optimizer of rules that were checked.
func newOptimizer(rules []kernels.Update, params [][]*autodiff.Tensor) (*Local, error) {
	o := &Local{groups: rules}
	o.begin(rules)
	seen := map[*autodiff.Tensor]bool{}
	for g, ts := range params {
		for _, t := range ts {
			i := len(o.params)
			switch {
			case t.Err() != nil:
				return nil, fmt.Errorf("%w: parameter %d: %w", ErrParameters, i, t.Err())
			case !t.RequiresGrad() || !t.IsLeaf():
				return nil, fmt.Errorf("%w: parameter %d (%v) must be a leaf that requires a gradient", ErrParameters, i, t)
			case seen[t]:
				return nil, fmt.Errorf("%w: parameter %d (%v) is given twice", ErrParameters, i, t)
			}
			seen[t] = true
			o.params = append(o.params, &parameter{of: t, group: g})
		}
	}
	return o, nil
}

// Step steps every parameter that grads holds a gradient for. All parameters are tried, and the error joins what failed; but where there is not the memory for
// all (the state of a first step, copies of values that somebody still reads) none is stepped.
func (o *Local) Step(grads map[*autodiff.Tensor]*autodiff.Tensor) error {
	return o.StepScaled(grads, 1)
}

// StepScaled is Step with every gradient multiplied by a factor, which must be positive. The gradients themselves stay as they are.
func (o *Local) StepScaled(grads map[*autodiff.Tensor]*autodiff.Tensor, factor float64) error {
	return o.step(grads, pace{o.LR(), factor})
}

// pace is how a step is made; it travels.
type pace struct {
	LR     []float64 // per group
	Factor float64   // of gradients
}

func (o *Local) step(grads map[*autodiff.Tensor]*autodiff.Tensor, how pace) error {
	if len(how.LR) != len(o.groups) {
		return fmt.Errorf("%w: %d learning rates for %d groups", ErrStep, len(how.LR), len(o.groups))
	}
	if !(how.Factor > 0) {
		return fmt.Errorf("%w: gradients cannot be multiplied by %g", ErrStep, how.Factor)
	}
	var b batch
	for i, p := range o.params {
		g := grads[p.of]
		if g == nil {
			continue
		}
		u := o.groups[p.group]
		u.LR = how.LR[p.group]
		u.Scale *= how.Factor
		b.add(turn{i, p, u, g})
	}
	return b.finish()
}
