package autodiff

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Apply replaces values: result j of the instruction becomes the value of operands[targets[j]], as in an optimizer's step.
// Whoever holds the old value — a forward under way, the tape — keeps it: the bytes are overwritten only where nobody else
// can see them. Concurrent calls on one target follow one another. On an error no target has changed.
func Apply(i kernels.Instr, operands []*Tensor, targets ...int) error {
	if i == nil {
		return opError("Apply", fmt.Errorf("%w: the instruction is nil", ErrFunction))
	}
	k, err := prepareUpdate(i, operands, targets)
	if err == nil {
		err = replace(k, operands, targets)
	}
	if err != nil {
		return opError(i.String(), err)
	}
	return nil
}

// prepareUpdate checks the operands and that every result has its target's type.
func prepareUpdate(i kernels.Instr, operands []*Tensor, targets []int) (kernels.Kernel, error) {
	for _, t := range operands {
		if err := t.Err(); err != nil {
			return nil, err
		}
	}
	dev, _, err := common(operands)
	if err != nil {
		return nil, err
	}
	backend, err := kernels.For(dev)
	if err != nil {
		return nil, err
	}
	types := make([]kernels.Type, len(operands))
	for j, t := range operands {
		types[j] = *t.typ
	}
	outs, err := i.Infer(types)
	if err != nil {
		return nil, err
	}
	if len(outs) != len(targets) {
		return nil, fmt.Errorf("%w: it has %d results for %d targets", ErrFunction, len(outs), len(targets))
	}
	for j, at := range targets {
		if at < 0 || at >= len(operands) {
			return nil, fmt.Errorf("%w: target %d of %d operands", ErrFunction, at, len(operands))
		}
		if operands[at].sparse {
			return nil, fmt.Errorf("%w: target %d (%v) is a sparse gradient", ErrFunction, at, operands[at])
		}
		if !outs[j].Equal(types[at]) {
			return nil, fmt.Errorf("%w: result %v for a target %v", ErrDtype, outs[j], types[at])
		}
	}
	order := byAddress(operands, targets)
	for j, at := range order[min(1, len(order)):] {
		if operands[at] == operands[order[j]] {
			return nil, fmt.Errorf("%w: a target is given twice", ErrFunction)
		}
	}
	return backend.Prepare(i, types)
}

// byAddress orders targets so that all who lock them take them in one order.
func byAddress(operands []*Tensor, targets []int) []int {
	order := slices.Clone(targets)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(uintptr(unsafe.Pointer(operands[a])), uintptr(unsafe.Pointer(operands[b])))
	})
	return order
}

// replace runs k under the targets' locks, taken in the order of their addresses.
func replace(k kernels.Kernel, operands []*Tensor, targets []int) error {
	ins, outs := make([]*device.Buffer, len(operands)), make([]*device.Buffer, len(targets))
	var held []*device.Buffer
	defer func() { releaseAll(held) }()
	replaced := make([]bool, len(operands))
	for _, at := range targets {
		replaced[at] = true
	}
	for j, t := range operands {
		if replaced[j] {
			continue
		}
		b, err := t.acquire()
		if err != nil {
			return err
		}
		ins[j], held = b, append(held, b)
	}
	for _, at := range byAddress(operands, targets) {
		operands[at].mu.Lock()
		defer operands[at].mu.Unlock()
	}
	for j, at := range targets {
		t := operands[at]
		if t.buf == nil {
			return ErrFreed
		}
		ins[at], outs[j] = t.buf, t.buf
		if t.buf.Claim() { // who wants to read it now waits for the lock
			defer t.buf.Unclaim()
			continue
		}
		fresh, err := t.dev.Alloc(t.buf.Len())
		if err != nil {
			return err
		}
		outs[j] = fresh
		defer func() {
			if t.buf != fresh {
				_ = fresh.Release() // it did not become the value
			}
		}()
	}
	if err := k.Run(outs, ins); err != nil {
		return err
	}
	for j, at := range targets {
		t := operands[at]
		if outs[j] == t.buf {
			continue
		}
		old := t.buf
		t.put(outs[j])
		_ = old.Release() // the tensor's own reference to the old value
		if t.owner == nil {
			t.buf.Disown()
		}
	}
	return nil
}
