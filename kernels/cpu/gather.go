package cpu

import (
	"cmp"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// idList reads ids of either dtype, without a copy.
type idList struct {
	narrow []int32
	wide   []int64
}

func (l idList) len() int { return len(l.narrow) + len(l.wide) }

func (l idList) at(k int) int {
	if l.wide != nil {
		return int(l.wide[k])
	}
	return int(l.narrow[k])
}

// idReader gives the function that reads an instruction's ids, of dtype d, and checks them all
// against [0, n).
func idReader(i kernels.Instr, d device.Dtype) func(raw []byte, n int) (idList, error) {
	return func(raw []byte, n int) (idList, error) {
		if d == device.Int32 {
			ids := device.As[int32](raw)
			return idList{narrow: ids}, checkIDs(i, ids, n)
		}
		ids := device.As[int64](raw)
		return idList{wide: ids}, checkIDs(i, ids, n)
	}
}

func checkIDs[I int32 | int64](i kernels.Instr, ids []I, n int) error {
	for k, id := range ids {
		if id < 0 || int64(id) >= int64(n) {
			return &kernels.IndexError{Instr: i.String(), ID: int64(id), At: k, N: n}
		}
	}
	return nil
}

// gathers are the bodies of what reads and adds rows by their numbers.
func gathers[T vec.Float](i kernels.Instr, in, _ []kernels.Type) parallel.Body {
	switch i := i.(type) {
	case kernels.Gather:
		return gatherBody[T](i, in)
	case kernels.ScatterAdd:
		return scatterAddBody[T](i, in)
	}
	return nil
}

func gatherBody[T device.Float](i kernels.Gather, in []kernels.Type) parallel.Body {
	n, row := in[0].Shape[0], in[0].Shape[1:].Elems()
	ids := idReader(i, in[1].Dtype)
	return func(outs, ins [][]byte) error {
		o, table := device.As[T](outs[0]), device.As[T](ins[0])
		ids, err := ids(ins[1], n)
		if err != nil {
			return err
		}
		for k := range ids.len() {
			copy(o[k*row:(k+1)*row], table[ids.at(k)*row:])
		}
		return nil
	}
}

// scatterAddBody sums in float64, one result row at a time, so that frequent ids lose nothing.
func scatterAddBody[T vec.Float](i kernels.ScatterAdd, in []kernels.Type) parallel.Body {
	row := in[1].Shape[len(in[0].Shape):].Elems()
	ids := idReader(i, in[0].Dtype)
	v := vec.Best[T]()
	return func(outs, ins [][]byte) error {
		o, gy := device.As[T](outs[0]), device.As[T](ins[1])
		ids, err := ids(ins[0], i.Rows)
		if err != nil {
			return err
		}
		clear(o)
		s := scratch.Take(8 * (ids.len() + row))
		defer s.Free()
		order, acc := scratch.Elems[int64](s)[:ids.len()], scratch.Elems[float64](s)[ids.len():][:row]
		for k := range order {
			order[k] = int64(k)
		}
		slices.SortFunc(order, func(a, b int64) int { return cmp.Or(ids.at(int(a))-ids.at(int(b)), int(a-b)) })
		for len(order) > 0 {
			id, n := ids.at(int(order[0])), 0
			clear(acc)
			for ; n < len(order) && ids.at(int(order[n])) == id; n++ {
				from := int(order[n]) * row
				v.Accumulate(acc, gy[from:from+row])
			}
			narrow(o[id*row:], acc)
			order = order[n:]
		}
		return nil
	}
}
