package tensors

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
)

// AllGather joins the x of all members along an axis, in the order of ranks. Their sizes along it
// may differ. A negative axis counts from the last one.
func AllGather(c context.Context, g *collective.Group, x *autodiff.Tensor, dim int) *autodiff.Tensor {
	name := fmt.Sprintf("AllGather along axis %d", dim)
	o, err := begin(c, g, name, x, alongIn(&dim, true))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		return o.traded(o.everyone(x), func(got []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Concat(dim, got...) })
	}
	parts, err := o.allGather(o.c, g, o.mem)
	if err != nil {
		return o.refuse(err)
	}
	l := o.along(dim)
	rows, err := o.rows(l, dim, parts)
	if err != nil {
		return o.refuse(err)
	}
	all, d := o.arrays, o.typ.Dtype
	return o.one(with(o.typ.Shape, dim, total(rows)), func(mem []byte) error {
		l.merge(mem, parts, rows)
		return nil
	}, func(c context.Context, gys [][]byte) ([]byte, error) {
		got, err := all.allToAll(c, g, l.split(gys[0], rows))
		if err != nil {
			return nil, err
		}
		gx := make([]byte, len(got[0]))
		collective.Sum.Fold(d, gx, got...)
		return gx, nil
	})
}

// Gather is that on the root alone; on the others it is nil.
func Gather(c context.Context, g *collective.Group, x *autodiff.Tensor, dim, root int) *autodiff.Tensor {
	name := fmt.Sprintf("Gather along axis %d to rank %d", dim, root)
	o, err := begin(c, g, name, x, rooted(g, root, alongIn(&dim, true)))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		return o.traded(o.only(root, x), func(got []*autodiff.Tensor) *autodiff.Tensor {
			if g.Rank() != root {
				return nil
			}
			return autodiff.Concat(dim, got...)
		})
	}
	parts, err := o.gather(o.c, g, o.mem, root)
	if err != nil {
		return o.refuse(err)
	}
	l, all := o.along(dim), o.arrays
	var rows []int
	if l.row*l.outer == 0 || g.Rank() == root {
		if rows, err = o.rows(l, dim, parts); err != nil {
			return o.refuse(err)
		}
	}
	do := func(c context.Context, gys [][]byte) ([]byte, error) {
		give := make([][]byte, g.Size())
		if g.Rank() == root {
			give = l.split(gys[0], rows)
		}
		got, err := all.allToAll(c, g, give)
		if err != nil {
			return nil, err
		}
		return got[root], nil
	}
	if g.Rank() != root {
		return o.none(func([]byte) error { return nil }, do)
	}
	return o.one(with(o.typ.Shape, dim, total(rows)), func(mem []byte) error {
		l.merge(mem, parts, rows)
		return nil
	}, do)
}

// ReduceScatter gives each member its share, along an axis, of what op makes of the x of all, which
// have one shape. [collective.Share] says which.
func ReduceScatter(c context.Context, g *collective.Group, x *autodiff.Tensor, dim int, op collective.Op) *autodiff.Tensor {
	name := fmt.Sprintf("ReduceScatter %v along axis %d", op, dim)
	o, err := begin(c, g, name, x, checked(x, op, alongIn(&dim, false)))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	l, rows := o.along(dim), even(o.typ.Shape[dim], g.Size())
	if o.called {
		return o.traded(o.cut(x, dim, rows), func(got []*autodiff.Tensor) *autodiff.Tensor { return folded(op, got) })
	}
	got, err := o.allToAll(o.c, g, l.split(o.mem, rows))
	if err != nil {
		return o.refuse(err)
	}
	mine := with(o.typ.Shape, dim, rows[g.Rank()])
	all, d, n := o.arrays, o.typ.Dtype, len(o.mem)
	if composed(c, x, op) {
		return o.each(got, mine, op, func(c context.Context, gys [][]byte) ([]byte, error) {
			back, err := all.allToAll(c, g, gys)
			if err != nil {
				return nil, err
			}
			gx := make([]byte, n)
			l.merge(gx, back, rows)
			return gx, nil
		})
	}
	return o.one(mine, func(mem []byte) error {
		op.Fold(d, mem, got...)
		return nil
	}, func(c context.Context, gys [][]byte) ([]byte, error) {
		back, err := all.allGather(c, g, gys[0])
		if err != nil {
			return nil, err
		}
		gx := make([]byte, n)
		l.merge(gx, back, rows)
		weigh(d, gx, op, g.Size())
		return gx, nil
	})
}

// each makes a tensor of this member's share of each x, and folds them by operations that have
// gradients of their own.
func (o *operation) each(got [][]byte, s device.Shape, op collective.Op, do pull) *autodiff.Tensor {
	parts := make([]*autodiff.Tensor, len(got))
	for r, mem := range got {
		var err error
		if parts[r], err = o.result(s, func(to []byte) error { copy(to, mem); return nil }); err != nil {
			return o.refuse(err)
		}
	}
	if err := o.record(do, parts...); err != nil {
		return o.refuse(err)
	}
	return folded(op, parts)
}

// AllToAll gives each member rows of x, the first ones to rank 0, and joins what it gets from all,
// along axis 0. rows are how many each member gets, which may differ; without them the shares are
// even.
func AllToAll(c context.Context, g *collective.Group, x *autodiff.Tensor, rows ...int) *autodiff.Tensor {
	const name = "AllToAll"
	dim := 0
	o, err := begin(c, g, name, x, func(s device.Shape) (device.Shape, error) {
		described, err := alongIn(&dim, true)(s)
		if err == nil && len(rows) == 0 {
			rows = even(s[0], g.Size())
		}
		if err == nil && (len(rows) != g.Size() || total(rows) != s[0] || lowest(rows) < 0) {
			err = fmt.Errorf("%w: rows %v of %v for %d members; expected one number for each, which add up to %d", collective.ErrArguments, rows, s, g.Size(), s[0])
		}
		return described, err
	})
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		return o.traded(o.cut(x, 0, rows), func(got []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Concat(0, got...) })
	}
	l, all, n := o.along(0), o.arrays, len(o.mem)
	got, err := o.allToAll(o.c, g, l.split(o.mem, rows))
	if err != nil {
		return o.refuse(err)
	}
	var theirs []int
	if l.row > 0 {
		theirs = lengths(l, got)
	} else if theirs, err = o.column(rows); err != nil {
		return o.refuse(err)
	}
	return o.one(with(o.typ.Shape, 0, total(theirs)), func(mem []byte) error {
		l.merge(mem, got, theirs)
		return nil
	}, func(c context.Context, gys [][]byte) ([]byte, error) {
		back, err := all.allToAll(c, g, l.split(gys[0], theirs))
		if err != nil {
			return nil, err
		}
		gx := make([]byte, n)
		l.merge(gx, back, rows)
		return gx, nil
	})
}

// Scatter gives each member its share, along an axis, of the root's x. [collective.Share] says
// which. The others' x says of which type and where it is to be; its value does not count.
func Scatter(c context.Context, g *collective.Group, x *autodiff.Tensor, dim, root int) *autodiff.Tensor {
	name := fmt.Sprintf("Scatter along axis %d from rank %d", dim, root)
	o, err := begin(c, g, name, x, rooted(g, root, alongIn(&dim, false)))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	l, rows, all, n := o.along(dim), even(o.typ.Shape[dim], g.Size()), o.arrays, len(o.mem)
	if o.called {
		parts := make([]*autodiff.Tensor, g.Size())
		if g.Rank() == root {
			parts = o.cut(x, dim, rows)
		}
		return o.traded(parts, func(got []*autodiff.Tensor) *autodiff.Tensor { return got[root] })
	}
	give := make([][]byte, g.Size())
	if g.Rank() == root {
		give = l.split(o.mem, rows)
	}
	got, err := o.allToAll(o.c, g, give)
	if err != nil {
		return o.refuse(err)
	}
	return o.one(with(o.typ.Shape, dim, rows[g.Rank()]), func(mem []byte) error {
		copy(mem, got[root])
		return nil
	}, func(c context.Context, gys [][]byte) ([]byte, error) {
		back, err := all.gather(c, g, gys[0], root)
		if err != nil || g.Rank() != root {
			return nil, err
		}
		gx := make([]byte, n)
		l.merge(gx, back, rows)
		return gx, nil
	})
}

// along is how x is cut along an axis.
func (o *operation) along(dim int) layout { return layoutOf(o.typ.Shape, dim, o.typ.Dtype.Size()) }

// with is a shape with another size along an axis.
func with(s device.Shape, dim, n int) device.Shape {
	s = s.Clone()
	s[dim] = n
	return s
}

// rows are the sizes of all members along an axis, of what was gathered. Where that is empty
// whatever they are, the members tell.
func (o *operation) rows(l layout, dim int, parts [][]byte) ([]int, error) {
	if l.row*l.outer > 0 {
		return lengths(l, parts), nil
	}
	return collective.Agree(o.c, o.g, o.typ.Shape[dim])
}

// column is how many rows each member has for this one, of rows without elements.
func (o *operation) column(rows []int) ([]int, error) {
	all, err := collective.Agree(o.c, o.g, rows)
	mine := make([]int, len(all))
	for r := range all {
		if err == nil && len(all[r]) == len(all) {
			mine[r] = all[r][o.g.Rank()]
		}
	}
	return mine, err
}

func lengths(l layout, parts [][]byte) []int {
	rows := make([]int, len(parts))
	for r, p := range parts {
		rows[r] = len(p) / (l.row * l.outer)
	}
	return rows
}

func lowest(rows []int) int {
	low := 0
	for _, n := range rows {
		low = min(low, n)
	}
	return low
}

// records says whether an operation on x is recorded, or would be if x were a tensor.
func records(c context.Context, x *autodiff.Tensor) bool {
	return (x.Err() != nil || x.Dtype().IsFloat()) && ctx.Recording(c)
}
