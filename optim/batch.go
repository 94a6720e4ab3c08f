package optim

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// turn is a step of one parameter. Its parameter is locked from [batch.lockState] until
// [batch.finish].
type turn struct {
	p *parameter
	u kernels.Update
	g *autodiff.Tensor
}

// batch steps parameters in the order of their numbers, so that locks are always taken in one
// order, and by one instruction those that follow one another and have the same rule, step and
// device.
type batch struct {
	turns []turn
	errs  []error
}

// lockState locks the parameter and makes what state it lacks.
func (b *batch) lockState(t turn) {
	t.p.mu.Lock()
	if t.p.Steps == 0 {
		t.p.Slots = nil // an earlier first step may have failed at another rate
		for _, slot := range t.u.Slots() {
			t.p.Slots = append(t.p.Slots, autodiff.FullLike(t.p.of, slot.Init))
		}
	}
	t.u.Missed = t.p.of.Device().Kind != device.KindCPU
	if t.u.Missed && (t.p.missed == nil || t.p.missed.Err() != nil) {
		t.p.missed = onto(autodiff.Scalar(int64(0)), t.p.of)
	}
	t.u.Step = t.p.Steps + 1
	b.turns = append(b.turns, t)
}

func (t turn) with(o turn) bool {
	return t.u == o.u && !t.g.IsSparse() && !o.g.IsSparse() && t.p.of.Device() == o.p.of.Device() && t.p.of.Dtype() == o.p.of.Dtype()
}

// together cuts the turns into those of one instruction each.
func (b *batch) together() (groups [][]turn) {
	for rest := b.turns; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[0].with(rest[n]) {
			n++
		}
		groups, rest = append(groups, rest[:n]), rest[n:]
	}
	return groups
}

// finish makes the steps: each parameter that can be stepped is, or, where there is not the memory
// for all, none. It gives what failed.
func (b *batch) finish() error {
	defer func() {
		for _, t := range b.turns {
			t.p.mu.Unlock()
		}
	}()
	for _, t := range b.turns {
		for _, s := range t.p.stepped(t.u) {
			if err := s.Err(); errors.Is(err, device.ErrMemory) {
				return b.full(err)
			}
		}
	}
	single, err := b.stepGroups(b.together())
	if err != nil {
		return b.full(err)
	}
	if _, err = b.stepGroups(single); err != nil {
		for _, g := range single {
			b.failed(g[0], err)
		}
	}
	return errors.Join(b.errs...)
}

// full is the error where memory runs out, and gives back what there is of state that has not
// begun.
func (b *batch) full(err error) error {
	for _, t := range b.turns {
		if t.p.Steps == 0 {
			t.p.Slots, t.p.missed = nil, nil
		}
	}
	return fmt.Errorf("%w: no parameter was stepped: %w", ErrStep, err)
}

// stepGroups steps groups of turns. It gives the turns, each alone, of those that cannot be stepped
// together. Where memory runs out it steps none, and gives err.
func (b *batch) stepGroups(groups [][]turn) (single [][]turn, err error) {
	changes, of := make([]autodiff.Change, 0, len(groups)), make([][]turn, 0, len(groups))
	for _, g := range groups {
		c, err := change(g)
		switch {
		case errors.Is(err, device.ErrMemory):
			return nil, err
		case err != nil:
			b.failed(g[0], err)
		default:
			changes, of = append(changes, c), append(of, g)
		}
	}
	errs, err := autodiff.ApplyAll(changes)
	if err != nil {
		return nil, err
	}
	for k, g := range of {
		switch {
		case errs[k] == nil:
			for _, t := range g {
				t.p.Steps++
			}
		case len(g) == 1, errors.Is(errs[k], kernels.ErrIndex): // an accelerator found something wrong, and may tell of it once
			b.failed(g[0], errs[k])
		default:
			for n := range g {
				single = append(single, g[n:n+1])
			}
		}
	}
	return single, nil
}

func (b *batch) failed(t turn, err error) {
	b.errs = append(b.errs, fmt.Errorf("%w: %v: %w", ErrStep, t.p, err))
}

// change is a step of some parameters.
func change(g []turn) (c autodiff.Change, err error) {
	for _, t := range g {
		c.Operands, c.Targets = t.operands(c.Operands, c.Targets)
	}
	switch {
	case len(g) > 1:
		c.Instr = kernels.UpdateMany{Of: g[0].u}
	case g[0].g.IsSparse():
		c.Instr, c.Operands, err = sparsely(g[0].u, c.Operands)
	default:
		c.Instr = g[0].u
	}
	return c, err
}

// stepped is what a step replaces beside the parameter.
func (p *parameter) stepped(u kernels.Update) []*autodiff.Tensor {
	if u.Missed {
		return append(p.Slots[:len(p.Slots):len(p.Slots)], p.missed)
	}
	return p.Slots
}

// operands appends the parameter, its gradient and its state, and which of them the step replaces.
func (t turn) operands(operands []*autodiff.Tensor, targets []int) ([]*autodiff.Tensor, []int) {
	targets, operands = append(targets, len(operands)), append(operands, t.p.of, t.g)
	for _, s := range t.p.stepped(t.u) {
		targets, operands = append(targets, len(operands)), append(operands, s)
	}
	return operands, targets
}
