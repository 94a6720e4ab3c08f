package cpu

import (
	"sync"

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
		for at := range ids.len() {
			id := ids.at(at)
			for k, o := range outs {
				if row[k] = o; k < n {
					row[k] = o[id*size : (id+1)*size]
				}
				operands[kernels.Replaced(k)] = row[k]
			}
			operands[1] = ins[1][at*size : (at+1)*size]
			if err := of(row, operands); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
