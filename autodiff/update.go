package autodiff

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Apply replaces the values of targets by the results of an instruction whose first operands are the targets and whose
// further operands are extra: an optimizer's step. Result i becomes the value of targets[i]. Whoever holds the old value —
// a forward under way, the tape — keeps it: the bytes are overwritten only where nobody else can see them. Concurrent calls
// on one target follow one another. On an error no target has changed.
func Apply(i kernels.Instr, targets, extra []*Tensor) error {
	all := append(slices.Clone(targets), extra...)
	for _, t := range all {
		if err := t.Err(); err != nil {
			return opError(i.String(), err)
		}
	}
	dev, _, err := common(all)
	if err != nil {
		return opError(i.String(), err)
	}
	backend, err := kernels.For(dev)
	if err != nil {
		return opError(i.String(), err)
	}
	types := make([]kernels.Type, len(all))
	for j, t := range all {
		types[j] = t.typ
	}
	outs, err := i.Infer(types)
	if err == nil && len(outs) != len(targets) {
		err = fmt.Errorf("%w: it has %d results for %d targets", ErrFunction, len(outs), len(targets))
	}
	for j := 0; err == nil && j < len(outs); j++ {
		if !outs[j].Equal(types[j]) {
			err = fmt.Errorf("%w: result %v for a target %v", ErrDtype, outs[j], types[j])
		}
	}
	if err != nil {
		return opError(i.String(), err)
	}
	k, err := backend.Prepare(i, types)
	if err == nil {
		err = replace(k, targets, extra)
	}
	if err != nil {
		return opError(i.String(), err)
	}
	return nil
}

// replace runs k under the targets' locks, taken in the order of their addresses.
func replace(k kernels.Kernel, targets, extra []*Tensor) error {
	ins := make([]*device.Buffer, len(targets), len(targets)+len(extra))
	var held []*device.Buffer
	defer func() { releaseAll(held) }()
	for _, t := range extra {
		b, err := t.acquire()
		if err != nil {
			return err
		}
		held = append(held, b)
	}
	order := slices.Clone(targets)
	slices.SortFunc(order, func(a, b *Tensor) int {
		return cmp.Compare(uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
	})
	for j, t := range order {
		if j > 0 && order[j-1] == t {
			return fmt.Errorf("%w: a target is given twice", ErrFunction)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	outs := make([]*device.Buffer, len(targets))
	for j, t := range targets {
		if t.buf == nil {
			return ErrFreed
		}
		ins[j], outs[j] = t.buf, t.buf
		if t.buf.Exclusive() {
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
	if err := k.Run(outs, append(ins, held...)); err != nil {
		return err
	}
	for j, t := range targets {
		if outs[j] == t.buf {
			continue
		}
		_ = t.buf.Release() // the tensor's own reference to the old value
		t.buf = outs[j]
		if t.owner == nil {
			t.buf.Disown()
		}
	}
	return nil
}
