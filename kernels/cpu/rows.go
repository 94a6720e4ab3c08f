package cpu

import (
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// rowMemory is the operands and results of an update of one row; no update has more.
type rowMemory struct{ outs, ins [6][]byte }

// onRowsBody runs the update's body once per id, in the memory of the results.
func onRowsBody[T vec.Float](i kernels.OnRows, in, out []kernels.Type) (parallel.Body, error) {
	last, tables := len(in)-1, i.Tables(in)
	n := len(tables) - 1 // of results; a count follows
	of, err := compileFloat[T](i.Of, append(kernels.RowTypes(tables), in[len(tables):last]...), append(kernels.RowTypes(out[:n]), out[n:]...))
	if err != nil {
		return nil, err
	}
	v, size := in[0].Shape[0], kernels.Type{Dtype: in[0].Dtype, Shape: in[0].Shape[1:]}.Bytes()
	ids := idReader(i, in[last].Dtype)
	var idle sync.Pool // of *rowMemory
	return func(outs, ins [][]byte) error {
		ids, err := ids(ins[last], v)
		if err != nil {
			return err
		}
		for k, o := range outs {
			if from := ins[kernels.Replaced(k)]; len(o) > 0 && &o[0] != &from[0] {
				copy(o, from)
			}
		}
		if size == 0 {
			return nil
		}
		mem, _ := idle.Get().(*rowMemory)
		if mem == nil {
			mem = new(rowMemory)
		}
		row, operands := mem.outs[:len(outs)], mem.ins[:last]
		defer func() {
			*mem = rowMemory{}
			idle.Put(mem)
		}()
		gradient := func(at int) []byte { return ins[1][at*size : (at+1)*size] }
		one := func(id int, g []byte) error {
			for k, o := range outs {
				if row[k] = o; k < n {
					row[k] = o[id*size : (id+1)*size]
				}
				operands[kernels.Replaced(k)] = row[k]
			}
			operands[1] = g
			return of(row, operands)
		}
		if i.Sum {
			return sumRows[T](ids, gradient, in[1].Shape[1:].Elems(), one)
		}
		for at := range ids.len() {
			if err := one(ids.at(at), gradient(at)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// sumRows calls step with each id that occurs and the sum of its rows of the gradient.
func sumRows[T vec.Float](ids idList, gradient func(at int) []byte, width int, step func(id int, g []byte) error) error {
	order := make([]int, ids.len())
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return ids.at(a) - ids.at(b) })
	sum, row := make([]float64, width), make([]T, width)
	for len(order) > 0 {
		id, n := ids.at(order[0]), 1
		for n < len(order) && ids.at(order[n]) == id {
			n++
		}
		g := gradient(order[0])
		if n > 1 {
			clear(sum)
			for _, at := range order[:n] {
				for c, v := range device.As[T](gradient(at)) {
					sum[c] += float64(v)
				}
			}
			for c, v := range sum {
				row[c] = T(v)
			}
			g = device.Bytes(row)
		}
		if err := step(id, g); err != nil {
			return err
		}
		order = order[n:]
	}
	return nil
}
