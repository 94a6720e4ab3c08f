package optim

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// turn is a step of one parameter. Its parameter is locked from [batch.add] until the step is done.
type turn struct {
	number int
	p      *parameter
	u      kernels.Update
	g      *autodiff.Tensor
}

// mostTogether bounds a batch, as what is checked of a run grows with the square of its operands.
const mostTogether = 16

// batch steps parameters in the order of their numbers, and those together that follow one another and have the same rule, step and device. So
// locks are always taken in one order.
type batch struct {
	turns []turn
	errs  []error
}

// add locks the parameter and makes what state it lacks.
func (b *batch) add(t turn) {
	t.p.mu.Lock()
	if t.p.Steps == 0 {
		t.p.Slots = nil // an earlier first step may have failed at another rate
		for _, slot := range t.u.Slots() {
			t.p.Slots = append(t.p.Slots, autodiff.FullLike(t.p.of, slot.Init))
		}
	}
	t.u.Step = t.p.Steps + 1
	if len(b.turns) == mostTogether || len(b.turns) > 0 && !b.turns[0].with(t) {
		b.run()
	}
	b.turns = append(b.turns, t)
}

func (t turn) with(o turn) bool {
	return t.u == o.u && !t.g.IsSparse() && !o.g.IsSparse() && t.p.of.Device() == o.p.of.Device() && t.p.of.Dtype() == o.p.of.Dtype()
}

// finish gives what failed of all turns.
func (b *batch) finish() error {
	b.run()
	return errors.Join(b.errs...)
}

// run makes the steps together, or one by one where they cannot be: each parameter that can be stepped is.
func (b *batch) run() {
	if len(b.turns) < 2 || b.apply() != nil {
		for _, t := range b.turns {
			if err := t.apply(); err != nil {
				b.errs = append(b.errs, fmt.Errorf("%w: parameter %d: %w", ErrStep, t.number, err))
			}
		}
	}
	for _, t := range b.turns {
		t.p.mu.Unlock()
	}
	b.turns = b.turns[:0]
}

func (b *batch) apply() error {
	var operands []*autodiff.Tensor
	var targets []int
	for _, t := range b.turns {
		operands, targets = t.operands(operands, targets)
	}
	err := autodiff.Apply(kernels.UpdateMany{Of: b.turns[0].u}, operands, targets...)
	for _, t := range b.turns {
		if err == nil {
			t.p.Steps++
		}
	}
	return err
}

// operands appends the parameter, its gradient and its state, and which of them the step replaces.
func (t turn) operands(operands []*autodiff.Tensor, targets []int) ([]*autodiff.Tensor, []int) {
	targets, operands = append(targets, len(operands)), append(operands, t.p.of, t.g)
	for _, s := range t.p.Slots {
		targets, operands = append(targets, len(operands)), append(operands, s)
	}
	return operands, targets
}

func (t turn) apply() error {
	operands, targets := t.operands(make([]*autodiff.Tensor, 0, 5), make([]int, 0, 4))
	var instr kernels.Instr = t.u
	if t.g.IsSparse() {
		var err error
		if instr, operands, err = sparsely(t.u, operands); err != nil {
			return err
		}
	}
	if err := autodiff.Apply(instr, operands, targets...); err != nil {
		return err
	}
	t.p.Steps++
	return nil
}
