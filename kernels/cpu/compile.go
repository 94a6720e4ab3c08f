package cpu

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/elementwise"
	"github.com/weft-project/weft/kernels/cpu/internal/images"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// compile chooses the body of an instruction for operands that Infer has accepted.
func compile(i kernels.Instr, in, out []kernels.Type) (parallel.Body, error) {
	switch i := i.(type) {
	case kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
		return moveBody(i, in, out[0]), nil
	case kernels.Viewed:
		switch i.Of.(type) {
		case kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
			return moveBody(i, in, out[0]), nil
		}
	case kernels.Cast:
		return castBody(in[0].Dtype, i.To), nil
	case kernels.Fill:
		return fillBody(i), nil
	case kernels.SumSquares:
		return sumSquaresBody(in[0]), nil
	case kernels.NonFinite:
		return nonFiniteBody(in[0].Dtype), nil
	}
	if out[0].Dtype == device.Float32 {
		return compileFloat[float32](i, in, out)
	}
	return compileFloat[float64](i, in, out)
}

// compileFloat is compile for the instructions whose results are floats of type T. Each family
// knows its own.
func compileFloat[T vec.Float](i kernels.Instr, in, out []kernels.Type) (parallel.Body, error) {
	switch i := i.(type) {
	case kernels.Viewed:
		return compileViewed[T](i.Of, i.Seen(in), i.In, out)
	case kernels.MatMul, kernels.MatMulThen, kernels.Attention, kernels.AttentionGrad:
		return compileViewed[T](i, in, nil, out)
	case kernels.OnRows:
		return onRowsBody[T](i, in, out)
	}
	for _, family := range []func(i kernels.Instr, in, out []kernels.Type) parallel.Body{
		elementwise.Body[T], softmaxes[T], norms[T], gathers[T], updates[T], randoms[T],
	} {
		if body := family(i, in, out); body != nil {
			return body, nil
		}
	}
	body, err := images.Body[T](i, in, out)
	if body == nil && err == nil {
		err = fmt.Errorf("%w: the CPU does not know %v", kernels.ErrNoBackend, i)
	}
	return body, err
}

// compileViewed is compileFloat for what reads operands by views, nil for those that are
// contiguous. The types are those that it sees.
func compileViewed[T vec.Float](i kernels.Instr, in []kernels.Type, views []*kernels.View, out []kernels.Type) (parallel.Body, error) {
	if of, ok := i.(kernels.Map); ok {
		return elementwise.Map[T](of, in, views), nil
	}
	g, err := blas.Chosen()
	if err != nil {
		return nil, err
	}
	switch of := i.(type) {
	case kernels.MatMul:
		return matMulBody[T](of, in, views, out[0], g), nil
	case kernels.Attention:
		return attentionBody[T](of, in, views, g), nil
	case kernels.AttentionGrad:
		return attentionGradBody[T](of, in, views, g), nil
	}
	return matMulThenBody[T](i.(kernels.MatMulThen), in, views, g), nil
}
