package autodiff

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

// nd is a dumb array: everything is a float64. With kerneltest's oracle it is the oracle of the
// forward and, by finite differences, of every gradient.
type nd struct {
	shape device.Shape
	v     []float64
}

func newND(shape device.Shape) nd { return nd{shape, make([]float64, shape.Elems())} }

// evaluate computes one op by its definition, in float64 also where its dtype is float32.
func evaluate(op *Op, in []nd) nd {
	wide := func(t kernels.Type) kernels.Type {
		if t.Dtype.IsFloat() {
			t.Dtype = device.Float64
		}
		return t
	}
	ins, types := make([]kerneltest.Tensor, len(in)), make([]kernels.Type, len(in))
	for k, x := range in {
		types[k] = wide(op.In[k])
		ins[k] = kerneltest.Tensor{Type: types[k], V: x.v}
	}
	made, err := op.Instr.Infer(types)
	if err != nil {
		panic(fmt.Sprint(op, ": ", err))
	}
	out, err := kerneltest.Oracle(op.Instr, ins, made)
	if err != nil {
		panic(fmt.Sprint("oracle of ", op, ": ", err))
	}
	return nd{out[op.Result].Shape, out[op.Result].V}
}
