package collective

import (
	"context"
	"fmt"
	"strings"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/narrow"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
)

// Narrow reduces arrays of float32 that travel in fewer bits, for networks that are slow: as
// bfloat16, with half the bytes, or with a quarter or an eighth of them. Elements are rounded to
// the nearest, summed in float32, and the sums are rounded once more; all members get the same
// bits.
//
// What rounding takes away is not lost. A Narrow keeps it, and adds it to what it reduces next. So
// there is one for each array that is reduced again and again, as a parameter's gradient. One
// goroutine uses it at a time. The zero value works.
type Narrow struct {
	// Int8 sends 8 bits of each element, and one scale for 256 of them: each is exact to 1/254 of
	// the largest of its 256. Elements that are not finite become NaN.
	Int8 bool
	// Int4 is the same with 4 bits: exact to 1/14 of the largest. It is for what is summed often,
	// as outer gradients are, where what is late today comes tomorrow. At most one of the two is set.
	Int4 bool

	lost late // of this member's elements
	owed late // of the sums that this member makes
}

// late is what rounding has taken, and room for what it will have taken when an operation succeeds.
type late struct{ now, next []float32 }

// following gives a copy for an operation on n elements. It holds nothing where what was taken
// belongs to an array of another length.
func (l *late) following(n int) []float32 {
	if len(l.now) != n {
		*l = late{make([]float32, n), make([]float32, n)}
	}
	copy(l.next, l.now)
	return l.next
}

func (l *late) commit() { l.now, l.next = l.next, l.now }

// Reset forgets what rounding has taken, as after a restart.
func (n *Narrow) Reset() { n.lost, n.owed = late{}, late{} }

func (n *Narrow) form() narrow.Form {
	switch {
	case n.Int8:
		return narrow.Int8
	case n.Int4:
		return narrow.Int4
	}
	return narrow.BFloat16
}

// Bytes is what an array of so many elements takes as it travels.
func (n *Narrow) Bytes(elements int) int { return n.form().Bytes(elements) }

// AllReduce replaces x by what op makes of all members' elements: Sum, Mean or Scaled. All members
// give arrays of one length, and the same Int8 and Int4. An array of another length than the one
// before it begins anew. Where it fails x is as it was.
func (n *Narrow) AllReduce(c context.Context, g *Group, x []float32, op Op) error {
	if err := there(g); err != nil {
		return fmt.Errorf("collective: AllReduce: %w", err)
	}
	if _, ok := op.Weight(g.Size()); !ok {
		return g.refuse(c, plan.AllReduce, fmt.Errorf("%w: %v in fewer bits; expected Sum, Mean or Scaled", ErrOp, op))
	}
	if err := g.whole(c); err != nil {
		return fmt.Errorf("collective: AllReduce in group %q: %w", g.name, err)
	}
	if n.Int8 && n.Int4 {
		return g.refuse(c, plan.AllReduce, fmt.Errorf("%w: Int8 and Int4; expected one of them at most", ErrArguments))
	}
	form := n.form()
	mine, err := device.Host().Alloc(padTo(form.Bytes(len(x)), alignment))
	if err != nil {
		return g.refuse(c, plan.AllReduce, err)
	}
	defer drop(part{buf: mine})
	mem, err := mine.Host()
	if err != nil {
		return g.refuse(c, plan.AllReduce, err)
	}
	mem = mem[:form.Bytes(len(x))]
	owed := n.owed.following(len(x))
	form.Write(mem, x, n.lost.following(len(x)))
	at := placeIn(c)
	at.what = strings.TrimSpace(at.what + " travel as " + form.String())
	r := g.narrowRun(form, op, len(x), part{mem: mem, buf: mine}, owed)
	err = g.do(context.WithValue(c, placeKey{}, at), r, func(parts []part) error {
		for i, p := range parts {
			lo, hi := blocks(len(x), g.Size(), i)
			form.Read(x[lo:hi], p.mem)
		}
		return nil
	})
	if err == nil {
		n.lost.commit()
		n.owed.commit()
	}
	return err
}

// narrowRun is an operation in which each member sums its piece, and keeps in owed what rounding
// takes from the sum; nil: nowhere. Nobody else may sum it: that would be taken twice.
func (g *Group) narrowRun(form narrow.Form, op Op, n int, whole part, owed []float32) *run {
	call := desk.Call{Kind: plan.AllReduce, Algorithm: g.large(plan.AllReduce), Op: op.of, Dtype: device.Float32, Count: n}
	r := g.cutRun(call, whole, func(i int) (int, int) {
		lo, hi := blocks(n, g.Size(), i)
		return form.Bytes(lo), form.Bytes(hi)
	})
	r.fold = func(dst []byte, piece int, from ...[]byte) {
		lo, hi := blocks(n, g.Size(), piece)
		own := owed
		if own != nil {
			own = owed[lo:hi]
		}
		form.Fold(dst, hi-lo, own, func(out []float32, rows ...[]float32) {
			raw := make([][]byte, len(rows))
			for i, row := range rows {
				raw[i] = device.Bytes(row)
			}
			fold.Into(device.Bytes(out), op.of, device.Float32, raw...)
		}, from...)
	}
	return r
}

// blocks is where a member's piece begins and ends, in elements: at blocks.
func blocks(n, size, piece int) (lo, hi int) {
	each := padTo((n+size-1)/size, narrow.Block)
	return min(piece*each, n), min((piece+1)*each, n)
}
