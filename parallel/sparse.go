package parallel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// rowSet is some rows of a gradient, on the host: ids, of int64, ascend, each once. Both are nil
// where there are none.
type rowSet struct{ ids, values *device.Buffer }

// rowsOf copies the rows that a gradient has, which are all of a dense one.
func rowsOf(grad *autodiff.Tensor) (rowSet, error) {
	t := grad.Type()
	if !grad.IsSparse() {
		all := make([]int64, t.Shape[0])
		for i := range all {
			all[i] = int64(i)
		}
		b, err := grad.Acquire()
		if err != nil {
			return rowSet{}, err
		}
		defer b.Release() //nolint:errcheck // ours
		return copied(device.Bytes(all), b)
	}
	one := grad.Coalesce()
	if one != grad {
		defer autodiff.Release(one)
	}
	ids, values, _ := one.Rows()
	defer autodiff.Release(ids, values)
	if err := errors.Join(ids.Err(), values.Err()); err != nil {
		return rowSet{}, err
	}
	at, err := autodiff.Values[int64](ids)
	if err != nil {
		return rowSet{}, err
	}
	b, err := values.Acquire()
	if err != nil {
		return rowSet{}, err
	}
	defer b.Release() //nolint:errcheck // ours
	return copied(device.Bytes(at), b)
}

// copied is rows on the host.
func copied(ids []byte, values *device.Buffer) (s rowSet, err error) {
	if s, err = roomFor(len(ids), values.Len()); err != nil {
		return s, err
	}
	err = errors.Join(device.Host().Upload(s.ids, 0, ids), device.Copy(s.values, values))
	if err != nil {
		host.Release(s.ids, s.values)
		return rowSet{}, err
	}
	return s, nil
}

func roomFor(ids, values int) (s rowSet, err error) {
	if s.ids, err = device.Host().Alloc(ids); err != nil {
		return rowSet{}, err
	}
	if s.values, err = device.Host().Alloc(values); err != nil {
		host.Release(s.ids)
		return rowSet{}, err
	}
	return s, nil
}

// summed is the sum of all ranks' rows, in the order of ranks. All call it; whoever cannot says
// why, and it fails on all. A rank that has no rows brings none.
func (s rowSet) summed(c context.Context, g *collective.Group, d device.Dtype, why error) (rowSet, error) {
	if s.ids == nil && why == nil {
		if s, why = roomFor(0, 0); why == nil {
			defer host.Release(s.ids, s.values)
		}
	}
	if why != nil {
		g.Abandon(c, why)
		g.Abandon(c, why)
		return rowSet{}, why
	}
	ids, err := g.AllGathered(c, device.Int64, s.ids)
	defer func() { host.Release(ids...) }()
	if err != nil {
		g.Abandon(c, err)
		return rowSet{}, err
	}
	values, err := g.AllGathered(c, d, s.values)
	defer func() { host.Release(values...) }()
	if err != nil {
		return rowSet{}, err
	}
	if d == device.Float64 {
		return merged[float64](ids, values)
	}
	return merged[float32](ids, values)
}

// merged adds up rows, in their order. Each sum begins with zero, as that of whole arrays does.
func merged[E float32 | float64](ids, values []*device.Buffer) (sum rowSet, err error) {
	at, from := make([][]int64, len(ids)), make([][]E, len(ids))
	for r := range ids {
		if at[r], err = elements[int64](ids[r]); err != nil {
			return sum, err
		}
		if from[r], err = elements[E](values[r]); err != nil {
			return sum, err
		}
	}
	all, width, err := union(at, from)
	if err != nil {
		return sum, err
	}
	if sum, err = roomFor(8*len(all), device.DtypeOf[E]().Size()*width*len(all)); err != nil {
		return sum, err
	}
	to, err := elements[E](sum.values)
	if err == nil {
		err = device.Host().Upload(sum.ids, 0, device.Bytes(all))
	}
	if err != nil {
		host.Release(sum.ids, sum.values)
		return rowSet{}, err
	}
	clear(to)
	for r := range at {
		k := 0
		for n, id := range at[r] {
			for all[k] < id {
				k++
			}
			row := to[k*width:][:width]
			for j, v := range from[r][n*width:][:width] {
				row[j] += v
			}
		}
	}
	return sum, nil
}

// union is all ids, ascending, each once, and how many elements a row has.
func union[E any](at [][]int64, from [][]E) (all []int64, width int, err error) {
	for r, ids := range at {
		for k := 1; k < len(ids); k++ {
			if ids[k-1] >= ids[k] {
				return nil, 0, fmt.Errorf("%w: rows of rank %d do not ascend", collective.ErrMismatch, r)
			}
		}
		w := width
		if len(ids) > 0 {
			w = len(from[r]) / len(ids)
		}
		if w*len(ids) != len(from[r]) || width != 0 && w != width {
			return nil, 0, fmt.Errorf("%w: %d rows of rank %d have %d elements", collective.ErrMismatch, len(ids), r, len(from[r]))
		}
		all, width = append(all, ids...), w
	}
	slices.Sort(all)
	return slices.Compact(all), width, nil
}

// elements are those of a buffer of the host's.
func elements[E device.Number](b *device.Buffer) ([]E, error) {
	mem, err := b.Host()
	if err != nil {
		return nil, err
	}
	return device.As[E](mem), nil
}

// tensor is the rows as a gradient of p, times a factor. It takes over the rows.
func (s *rowSet) tensor(p *autodiff.Tensor, on device.Device, factor float64, owner *autodiff.Arena) *autodiff.Tensor {
	of := p.Type()
	extent, at := of.Shape[0], of
	of.Shape = slices.Clone(of.Shape)
	of.Shape[0] = s.ids.Len() / device.Int64.Size()
	at.Dtype, at.Shape = device.Int64, of.Shape[:1]
	ids, values := autodiff.Wrap(at, s.ids, owner), autodiff.Wrap(of, s.values, owner)
	*s = rowSet{}
	ids, values = autodiff.To(ids, on), autodiff.To(values, on)
	if factor != 1 {
		values = autodiff.Scale(values, factor)
	}
	return autodiff.Sparse(extent, ids, values)
}

// scaled is a gradient times a factor.
func scaled(grad *autodiff.Tensor, factor float64) *autodiff.Tensor {
	ids, values, sparse := grad.Rows()
	switch {
	case factor == 1:
		return grad
	case sparse:
		return autodiff.Sparse(grad.Type().Shape[0], ids, autodiff.Scale(values, factor))
	}
	return autodiff.Scale(grad, factor)
}
