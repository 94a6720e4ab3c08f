package ctx

import (
	"context"
	"fmt"
	"maps"

	"github.com/weft-project/weft/autodiff"
)

// ended is a backward that is over. Its gradients are added to the pass's when those are read, or
// when a few more backwards have ended: until then a failure elsewhere takes them back, so that a
// backward which is tried again does not count twice.
type ended struct {
	id      BackwardID
	failure *Failure            // nil: it went well here
	grads   *autodiff.Gradients // nil: none
}

// maxEnded is how many finished backwards a pass remembers; maxPending how many of them could still
// take their gradients back.
const (
	maxEnded   = 64
	maxPending = 4
)

func (e *ended) free() {
	if e.grads != nil {
		e.grads.Free()
	}
	e.grads = nil
}

func (p *Pass) endedAs(id BackwardID) *ended {
	for i := range p.ended {
		if p.ended[i].id == id {
			return &p.ended[i]
		}
	}
	return nil
}

// noteLocked remembers a backward that is over. The caller holds p.mu.
func (p *Pass) noteLocked(e ended) error {
	p.ended = append(p.ended, e)
	if len(p.ended) > maxEnded {
		p.ended = p.ended[1:]
	}
	return p.mergeLocked(maxPending)
}

// conclude keeps what a backward found. Send functions whose graph is used up are forgotten: no
// later backward can use them.
func (p *Pass) conclude(b *backward) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return ErrLeft
	}
	b.mu.Lock()
	b.over = b.eng.err == nil
	failed := b.eng.err
	b.mu.Unlock()
	if failed != nil {
		return failed
	}
	delete(p.backwards, b.id)
	if !b.retain {
		b.joint.spendLocked(p)
		for _, id := range b.sends {
			p.shown.spend(p.sends[id])
			delete(p.sends, id)
		}
	}
	return p.noteLocked(ended{id: b.id, grads: &b.grads})
}

// forget takes out a backward that failed.
func (p *Pass) forget(b *backward, f *Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.backwards, b.id)
	if e := p.endedAs(b.id); e != nil { // it went well, but for the sum of its gradients
		e.failure = f
		e.free()
		return
	}
	_ = p.noteLocked(ended{id: b.id, failure: f}) // it brings nothing that could fail
}

// revoke takes back what a backward found here, or keeps it from beginning. It gives the backward
// if it is under way.
func (p *Pass) revoke(id BackwardID, f *Failure) *backward {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.backwards[id]; b != nil {
		return b
	}
	e := p.endedAs(id)
	if e == nil {
		_ = p.noteLocked(ended{id: id, failure: f}) // as in forget
		return nil
	}
	p.takeBackLocked(e, f)
	return nil
}

// takeBackLocked frees what a backward found that ended well here. Who reads gradients is told,
// until another backward begins. The caller holds p.mu.
func (p *Pass) takeBackLocked(e *ended, f *Failure) {
	if e.grads != nil && p.revoked == nil {
		p.revoked = f
	}
	e.failure = f
	e.free()
}

// mergeLocked adds up the gradients of ended backwards, except those of the last few.
func (p *Pass) mergeLocked(except int) error {
	if p.broken != nil {
		return p.broken
	}
	for i := range max(0, len(p.ended)-except) {
		if e := &p.ended[i]; e.grads != nil {
			p.broken = p.sum.Merge(e.grads)
			e.free()
			if p.broken != nil {
				return p.broken
			}
		}
	}
	return nil
}

// Gradients is a copy of the table leaf → gradient of the pass that c carries, on this worker. The
// gradients belong to the pass. The leaves are the very tensors that the forward used here; one
// without a gradient is not in the table. If a backward failed elsewhere after it had gone well
// here, what it found is gone, and the error is its [Failure], until another backward begins.
func Gradients(c context.Context) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	p, ok := From(c)
	if !ok {
		return nil, ErrNoPass
	}
	return p.Gradients()
}

// Gradients is a copy of the pass's table leaf → gradient on this worker. What it has given cannot
// be taken back by a failure of a backward that has ended on this worker and not yet on others.
// What a reader was given stays until the pass is left, also when later backwards add to it: read
// when all are done.
func (p *Pass) Gradients() (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return nil, p.err("gradients", fmt.Errorf("%w: %w", ErrUnknownPass, ErrLeft))
	}
	if p.revoked != nil {
		p.told = true
		return nil, p.err("gradients", p.revoked)
	}
	if err := p.readLocked(); err != nil {
		return nil, p.err("gradients", err)
	}
	return maps.Clone(p.grads), nil
}

// HadBackward says whether a backward of the pass has ended on this worker, well or not.
func (p *Pass) HadBackward() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ended) > 0
}

// readLocked makes the sum of all backwards the pass's table. The caller holds p.mu.
func (p *Pass) readLocked() error {
	if err := p.mergeLocked(0); err != nil {
		return err
	}
	for leaf := range p.sum.All() {
		d := p.sum.Take(leaf)
		if have := p.grads[leaf]; have != nil {
			sum := autodiff.AddGradients(have, d) // the old one may be in a user's hands
			autodiff.Release(d)
			if p.broken = sum.Err(); p.broken != nil {
				return p.broken
			}
			put(&p.grads, leaf, sum)
			continue
		}
		if err := p.arena.Adopt(d); err != nil {
			autodiff.Release(d)
			return err
		}
		put(&p.grads, leaf, d)
	}
	p.sum.Free()
	return nil
}
