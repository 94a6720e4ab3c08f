package autodiff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// Change is an instruction whose result j becomes the value of Operands[Targets[j]], as in an
// optimizer's step.
type Change struct {
	Instr    kernels.Instr
	Operands []*Tensor
	Targets  []int
}

// Apply replaces values: result j of the instruction becomes the value of operands[targets[j]], as
// in an optimizer's step. Whoever holds the old value — a forward under way, the tape — keeps it:
// the bytes are overwritten only where nobody else can see them. Concurrent calls on one target
// follow one another. On an error no target has changed.
func Apply(i kernels.Instr, operands []*Tensor, targets ...int) error {
	errs, err := ApplyAll([]Change{{i, operands, targets}})
	if err != nil {
		return err
	}
	return errs[0]
}

// ApplyAll is Apply of several changes, each of which sees the values that were there before all;
// no two have a target in common. Those that can be made are; errs has the error, or nil, of each.
// The memory for their results is there before the first is begun: where there is not enough none
// is made, and err says so; nor is any where an accelerator is known to have found something wrong
// with what one of them reads.
func ApplyAll(changes []Change) (errs []error, err error) {
	errs = make([]error, len(changes))
	all := make([]replacing, 0, len(changes))
	defer func() {
		for k := range all {
			all[k].release()
		}
	}()
	seen := map[*Tensor]bool{} // targets
	for n, c := range changes {
		r := replacing{n: n, Change: c}
		if errs[n] = r.prepare(seen); errs[n] == nil {
			all = append(all, r)
		}
	}
	for _, t := range byAddress(all) {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	defer func() { // before the locks are given back
		for k := range all {
			all[k].undo()
		}
	}()
	for k := range all {
		r := &all[k]
		if errs[r.n] = r.claim(); errors.Is(errs[r.n], device.ErrMemory) {
			return errs, opError(r.Instr.String(), errs[r.n])
		}
	}
	for k := range all {
		if r := &all[k]; errs[r.n] == nil {
			if bad := r.known(); err == nil && bad != nil {
				err = opError(r.Instr.String(), bad)
			}
		}
	}
	if err != nil {
		return errs, err
	}
	for k := range all {
		r := &all[k]
		if errs[r.n] == nil {
			errs[r.n] = r.replace()
		}
	}
	for n, c := range changes {
		if errs[n] != nil {
			name := "Apply"
			if c.Instr != nil {
				name = c.Instr.String()
			}
			errs[n] = opError(name, errs[n])
		}
	}
	return errs, nil
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
	b, err := backend.For(dev)
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
	return b.Prepare(i, types)
}

// replacing is a change under way.
type replacing struct {
	Change
	n         int // of the changes
	k         kernels.Kernel
	ins, outs []*device.Buffer
	held      []*device.Buffer // operands that are no targets
	claimed   []*device.Buffer // values that are overwritten
	fresh     []*device.Buffer // results that have become no values
}

// known is what an accelerator is known to have found wrong with the operands.
func (r *replacing) known() error {
	if d, ok := r.ins[0].Device().(*device.Accelerator); ok {
		return d.Known(r.ins...)
	}
	return nil
}

// prepare checks the change, and takes hold of what it only reads. seen has the targets of those
// before, and of this one when all is well.
func (r *replacing) prepare(seen map[*Tensor]bool) (err error) {
	if r.Instr == nil {
		return fmt.Errorf("%w: the instruction is nil", ErrFunction)
	}
	if r.k, err = prepareUpdate(r.Instr, r.Operands, r.Targets); err != nil {
		return err
	}
	isTarget := make([]bool, len(r.Operands))
	for j, at := range r.Targets {
		t := r.Operands[at]
		if seen[t] {
			r.unsee(seen, j)
			return fmt.Errorf("%w: a target is given twice", ErrFunction)
		}
		seen[t], isTarget[at] = true, true
	}
	r.ins, r.outs = make([]*device.Buffer, len(r.Operands)), make([]*device.Buffer, len(r.Targets))
	for j, t := range r.Operands {
		if isTarget[j] {
			continue
		}
		b, err := t.acquire()
		if err != nil {
			r.release()
			r.unsee(seen, len(r.Targets))
			return err
		}
		r.ins[j], r.held = b, append(r.held, b)
	}
	return nil
}

// unsee forgets the first n targets.
func (r *replacing) unsee(seen map[*Tensor]bool, n int) {
	for _, at := range r.Targets[:n] {
		delete(seen, r.Operands[at])
	}
}

// byAddress is the targets, in an order in which all who lock them take them.
func byAddress(all []replacing) (ts []*Tensor) {
	for k := range all {
		for _, at := range all[k].Targets {
			ts = append(ts, all[k].Operands[at])
		}
	}
	slices.SortFunc(ts, func(a, b *Tensor) int {
		return cmp.Compare(uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
	})
	return ts
}

// claim finds a place for each result. The caller holds the targets' locks.
func (r *replacing) claim() error {
	for j, at := range r.Targets {
		t := r.Operands[at]
		if t.buf == nil {
			return t.errFreed()
		}
		r.ins[at], r.outs[j] = t.buf, t.buf
		if t.buf.Claim() { // who wants to read it now waits for the lock
			r.claimed = append(r.claimed, t.buf)
			continue
		}
		b, err := t.dev.Alloc(t.buf.Len())
		if err != nil {
			return err
		}
		r.outs[j], r.fresh = b, append(r.fresh, b)
	}
	return nil
}

// replace runs the instruction, and gives the targets their new values.
func (r *replacing) replace() error {
	for _, at := range r.Targets {
		r.Operands[at].forgetRounded()
	}
	if err := r.k.Run(r.outs, r.ins); err != nil {
		return err
	}
	r.fresh = nil
	for j, at := range r.Targets {
		t := r.Operands[at]
		if r.outs[j] == t.buf {
			continue
		}
		old := t.buf
		t.setBuffer(r.outs[j])
		_ = old.Release() // the tensor's own reference to the old value
		if t.owner == nil {
			t.buf.Disown()
		}
	}
	return nil
}

// undo undoes claim, but for what has become a value.
func (r *replacing) undo() {
	for _, b := range r.claimed {
		b.Unclaim()
	}
	releaseAll(r.fresh)
}

// release undoes prepare.
func (r *replacing) release() {
	releaseAll(r.held)
	r.held = nil
}
