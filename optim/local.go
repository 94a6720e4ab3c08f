package optim

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/autodiff"
)

// What can go wrong with optimizers.
var (
	ErrParameters = errors.New("bad parameters")
	ErrStep       = errors.New("error running optimizer")
)

// Local steps this worker's tensors. Safe for concurrent use: steps on one parameter follow one another.
type Local struct {
	rule   Rule
	params []*parameter
}

// parameter is a tensor with the rule's state.
type parameter struct {
	of *autodiff.Tensor

	mu    sync.Mutex
	steps int
	state []*autodiff.Tensor
}

// New makes an optimizer for leaves that require gradients.
func New(rule Rule, params ...*autodiff.Tensor) (*Local, error) {
	if rule == nil {
		return nil, fmt.Errorf("%w: no rule is given; use SGD, Adam or AdamW", ErrRule)
	}
	if err := rule.Check(); err != nil {
		return nil, err
	}
	if len(params) == 0 {
		return nil, fmt.Errorf("%w: optimizer got an empty parameter list", ErrParameters)
	}
	o := &Local{rule: rule}
	seen := map[*autodiff.Tensor]bool{}
	for i, t := range params {
		switch {
		case t.Err() != nil:
			return nil, fmt.Errorf("%w: parameter %d: %w", ErrParameters, i, t.Err())
		case !t.RequiresGrad() || !t.IsLeaf():
			return nil, fmt.Errorf("%w: parameter %d (%v) must be a leaf that requires a gradient", ErrParameters, i, t)
		case seen[t]:
			return nil, fmt.Errorf("%w: parameter %d (%v) is given twice", ErrParameters, i, t)
		}
		seen[t] = true
		o.params = append(o.params, &parameter{of: t})
	}
	return o, nil
}

// Rule is the rule that the optimizer was made with.
func (o *Local) Rule() Rule { return o.rule }

// Step steps every parameter that grads holds a gradient for. All parameters are tried; the error joins what failed.
func (o *Local) Step(grads map[*autodiff.Tensor]*autodiff.Tensor) error {
	var errs []error
	for i, p := range o.params {
		if g := grads[p.of]; g != nil {
			if err := p.step(o.rule, g); err != nil {
				errs = append(errs, fmt.Errorf("%w %v: parameter %d: %w", ErrStep, o.rule, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// step runs the rule's instruction on the parameter and its state.
func (p *parameter) step(rule Rule, g *autodiff.Tensor) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		for range rule.states() {
			p.state = append(p.state, autodiff.ZerosLike(p.of))
		}
	}
	operands, targets := []*autodiff.Tensor{p.of, g}, []int{0}
	for i, s := range p.state {
		operands, targets = append(operands, s), append(targets, 2+i)
	}
	if err := autodiff.Apply(rule.instr(p.steps+1), operands, targets...); err != nil {
		return err
	}
	p.steps++
	return nil
}
