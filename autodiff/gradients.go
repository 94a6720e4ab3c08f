package autodiff

import (
	"fmt"

	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// Gradients are the results of a backward, by leaf. Those of [Backward] belong to the owner of the
// roots, or to nobody; who accumulates his own owns them until Settle or Free. Not safe for
// concurrent use.
//
// A sum that fails takes both its summands along: the table is spoiled then, and every later sum,
// Merge and Settle gives that error, until Free.
type Gradients struct {
	of  map[*Tensor]*Tensor
	err error // of a sum that failed
}

// Settle gives all gradients to an owner, or to nobody. When the owner is freed already, so are
// they.
func (g *Gradients) Settle(owner *Arena) error {
	if err := g.err; err != nil {
		g.Free()
		return err
	}
	for _, d := range g.of {
		if err := d.assignOwner(owner); err != nil {
			g.Free()
			return err
		}
	}
	return nil
}

// Of is the gradient of a leaf, nil where there is none.
func (g *Gradients) Of(leaf *Tensor) *Tensor { return g.of[leaf] }

// All is a copy of the table leaf → gradient.
func (g *Gradients) All() map[*Tensor]*Tensor {
	all := make(map[*Tensor]*Tensor, len(g.of))
	for k, v := range g.of {
		all[k] = v
	}
	return all
}

// Len is the number of leaves with a gradient.
func (g *Gradients) Len() int { return len(g.of) }

// Accumulate adds a gradient for a leaf, and runs the leaf's hooks before and after; it takes d
// over.
func (g *Gradients) Accumulate(leaf, d *Tensor) error { return g.AccumulateWith(leaf, d, Pull{}) }

// AccumulateWith is Accumulate with options: with Anomaly a sum that is not finite is an
// [AnomalyError].
func (g *Gradients) AccumulateWith(leaf, d *Tensor, how Pull) error {
	n := leaf.edge.Node
	if n != nil {
		ds := [1]*Tensor{d}
		if err := n.RunHooks(ds[:]); err != nil {
			ds[0].free()
			return err
		}
		d = ds[0]
	}
	if err := g.add(leaf, d); err != nil {
		return err
	}
	if how.Anomaly {
		if err := inspectLeaf(leaf, g.of[leaf]); err != nil {
			return err
		}
	}
	if n == nil {
		return nil
	}
	return n.accumulated(g, leaf)
}

func (g *Gradients) add(leaf, d *Tensor) error {
	if g.err != nil {
		d.free()
		return g.err
	}
	if g.of == nil {
		g.of = map[*Tensor]*Tensor{}
	}
	have := g.of[leaf]
	delete(g.of, leaf)
	sum, err := accumulate(have, d)
	if err != nil {
		g.err = err
		return err
	}
	g.of[leaf] = sum
	return nil
}

// Merge adds all gradients of another table, which is empty afterwards. No hooks run: they have.
// After an error the other table keeps what was not added yet.
func (g *Gradients) Merge(other *Gradients) error {
	if g.err == nil {
		g.err = other.err
	}
	for leaf, d := range other.of {
		if g.err != nil {
			break
		}
		delete(other.of, leaf)
		_ = g.add(leaf, d) // stays in g.err
	}
	return g.err
}

// Take takes a gradient out: it is the caller's.
func (g *Gradients) Take(leaf *Tensor) *Tensor {
	d := g.of[leaf]
	delete(g.of, leaf)
	return d
}

// Bytes is what the gradients hold: of sparse ones their rows.
func (g *Gradients) Bytes() (n int64) {
	for _, d := range g.of {
		n += int64(d.held())
	}
	return n
}

// Free drops all gradients.
func (g *Gradients) Free() {
	for _, d := range g.of {
		d.free()
	}
	g.of, g.err = nil, nil
}

// AddGradients is a + b for two gradients of one tensor, without a record on the tape: sparse where
// both are, otherwise dense. It belongs to the arena of either, or to nobody.
func AddGradients(a, b *Tensor) *Tensor {
	owner, err := ownerOf([]*Tensor{a, b})
	if err != nil {
		return failed(opError("AddGradients", err))
	}
	sum, err := sumOf(a, b)
	if err != nil {
		return failed(opError("AddGradients", err))
	}
	return sum.owned("AddGradients", owner)
}

// sumOf is a + b as a transient; both stay the caller's.
func sumOf(a, b *Tensor) (*Tensor, error) {
	if err := a.Err(); err != nil {
		return nil, err
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	if !a.typ.Equal(*b.typ) || a.dev != b.dev {
		return nil, fmt.Errorf("%w: %v on %v and %v on %v are not of one tensor", ErrGradient, *a.typ, a.dev.ID(), *b.typ, b.dev.ID())
	}
	if a.sparse && !b.sparse {
		a, b = b, a
	}
	if !b.sparse {
		return sumDense(a, b)
	}
	s, err := b.acquireRows()
	if err != nil {
		return nil, err
	}
	defer s.Release()
	if a.sparse {
		r, err := a.acquireRows()
		if err != nil {
			return nil, err
		}
		defer r.Release()
		sum, err := r.Join(s, *a.typ)
		if err != nil {
			return nil, err
		}
		return sparse(*a.typ, sum), nil
	}
	x, err := a.acquire()
	if err != nil {
		return nil, err
	}
	defer x.Release() //nolint:errcheck // ours
	add, types := s.Adding(*a.typ)
	out, err := backend.Run(a.dev, add, types, x, s.Values, s.IDs)
	if err != nil {
		return nil, err
	}
	return manual(*a.typ, out), nil
}

func sumDense(a, b *Tensor) (*Tensor, error) {
	add, err := addition(a)
	if err != nil {
		return nil, err
	}
	x, err := a.acquire()
	if err != nil {
		return nil, err
	}
	defer x.Release() //nolint:errcheck // ours
	y, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer y.Release() //nolint:errcheck // ours
	sum, err := a.dev.Alloc(a.typ.Bytes())
	if err != nil {
		return nil, err
	}
	if err := add.Sole.Run([]*device.Buffer{sum}, []*device.Buffer{x, y}); err != nil {
		_ = sum.Release() // ours alone
		return nil, err
	}
	return manual(*a.typ, sum), nil
}

// addition is what adds two values like t.
func addition(t *Tensor) (*compile.Function, error) {
	if t.requiresGrad {
		t = &Tensor{typ: t.typ, dev: t.dev}
	}
	return binaries[kernels.Add].programs(t.dev, []*Tensor{t, t}, true)
}

// addInPlace adds g to a transient that nobody else sees, where that can be done without another
// buffer.
func addInPlace(sum, g *Tensor) (done bool, err error) {
	if sum.sparse || sum.err != nil || sum.dev != g.dev || !sum.typ.Equal(*g.typ) || sum.buf == nil || !sum.buf.Exclusive() {
		return false, nil
	}
	if g.sparse {
		r, err := g.acquireRows()
		if err != nil {
			return false, err
		}
		defer r.Release()
		add, types := r.Adding(*sum.typ)
		return true, backend.RunInto(sum.buf, add, types, sum.buf, r.Values, r.IDs)
	}
	add, err := addition(sum)
	if err != nil {
		return false, err
	}
	b, err := g.acquire()
	if err != nil {
		return false, err
	}
	defer b.Release() //nolint:errcheck // ours
	if add.Host != nil && sum.dev == onHost {
		return true, onMemory(add.Host, []*device.Buffer{sum.buf, b}, []*device.Buffer{sum.buf})
	}
	return true, add.Sole.Run([]*device.Buffer{sum.buf}, []*device.Buffer{sum.buf, b})
}
