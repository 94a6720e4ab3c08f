package kernels

import (
	"slices"

	"github.com/weft-project/weft/device"
)

// indexReader gives the function that reads ids of a dtype and checks them all against [0, n).
func indexReader(d device.Dtype) func(i Instr, ids []byte, n int) ([]int, error) {
	if d == device.Int32 {
		return readIndex[int32]
	}
	return readIndex[int64]
}

func readIndex[I int32 | int64](i Instr, raw []byte, n int) ([]int, error) {
	ids := device.As[I](raw)
	out := make([]int, len(ids))
	for k, id := range ids {
		if id < 0 || int64(id) >= int64(n) {
			return nil, &IndexError{Instr: i.String(), ID: int64(id), At: k, N: n}
		}
		out[k] = int(id)
	}
	return out, nil
}

func gatherBody[T device.Float](i Gather, in []Type) body {
	n, row := in[0].Shape[0], in[0].Shape[1:].Elems()
	index := indexReader(in[1].Dtype)
	return func(outs, ins [][]byte) error {
		o, table := device.As[T](outs[0]), device.As[T](ins[0])
		ids, err := index(i, ins[1], n)
		if err != nil {
			return err
		}
		for k, id := range ids {
			copy(o[k*row:(k+1)*row], table[id*row:])
		}
		return nil
	}
}

// scatterAddBody sums in float64, one result row at a time, so that frequent ids lose nothing.
func scatterAddBody[T device.Float](i ScatterAdd, in []Type) body {
	row := in[1].Shape[len(in[0].Shape):].Elems()
	index := indexReader(in[0].Dtype)
	return func(outs, ins [][]byte) error {
		o, gy := device.As[T](outs[0]), device.As[T](ins[1])
		ids, err := index(i, ins[0], i.Rows)
		if err != nil {
			return err
		}
		clear(o)
		order := make([]int, len(ids))
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int { return ids[a] - ids[b] })
		acc := make([]float64, row)
		for len(order) > 0 {
			id := ids[order[0]]
			clear(acc)
			for ; len(order) > 0 && ids[order[0]] == id; order = order[1:] {
				for k, v := range gy[order[0]*row : (order[0]+1)*row] {
					acc[k] += float64(v)
				}
			}
			for k, v := range acc {
				o[id*row+k] = T(v)
			}
		}
		return nil
	}
}
