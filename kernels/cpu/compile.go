package cpu

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/elementwise"
	"github.com/weft-project/weft/kernels/cpu/internal/images"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/vec"
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

// compileFloat is compile for the instructions whose results are floats of type T.
func compileFloat[T vec.Float](i kernels.Instr, in, out []kernels.Type) (parallel.Body, error) {
	switch i := i.(type) {
	case kernels.Unary:
		return elementwise.Unary[T](i, in), nil
	case kernels.Binary:
		return elementwise.Binary[T](i, in, out[0]), nil
	case kernels.Map:
		return elementwise.Map[T](i, in, nil), nil
	case kernels.Viewed:
		return compileViewed[T](i.Of, i.Seen(in), i.In, out)
	case kernels.MatMul, kernels.MatMulThen, kernels.Attention, kernels.AttentionGrad:
		return compileViewed[T](i, in, nil, out)
	case kernels.Reduce:
		return elementwise.Reduce[T](i, in[0]), nil
	case kernels.MaxGrad:
		return elementwise.MaxGrad[T](i, in[0]), nil
	case kernels.Gather:
		return gatherBody[T](i, in), nil
	case kernels.ScatterAdd:
		return scatterAddBody[T](i, in), nil
	case kernels.Softmax:
		return softmaxBody[T](i, in[0]), nil
	case kernels.SoftmaxGrad:
		return softmaxGradBody[T](i, in[0]), nil
	case kernels.CrossEntropy:
		return crossEntropyBody[T](i, in), nil
	case kernels.CrossEntropyGrad:
		return crossEntropyGradBody[T](i, in), nil
	case kernels.Normalize:
		return normalizeBody[T](i, in[0]), nil
	case kernels.NormalizeGrad:
		return normalizeGradBody[T](i, in[0]), nil
	case kernels.LayerNorm:
		return layerNormBody[T](i, in[0]), nil
	case kernels.LayerNormGrad:
		return layerNormGradBody[T](i, in[0]), nil
	case kernels.Update:
		return updateBody[T](i), nil
	case kernels.UpdateMany:
		return updateManyBody[T](i), nil
	case kernels.OnRows:
		return onRowsBody[T](i, in, out)
	}
	return compileImages[T](i, in, out)
}

// compileImages is compile for the instructions of convolutional nets, and random ones.
func compileImages[T vec.Float](i kernels.Instr, in, out []kernels.Type) (parallel.Body, error) {
	switch i := i.(type) {
	case kernels.Conv2d, kernels.Conv2dGradX, kernels.Conv2dGradW:
		g, err := blas.Chosen()
		if err != nil {
			return nil, err
		}
		return images.Conv[T](i, in, out[0], g), nil
	case kernels.Im2col:
		return images.Im2col[T](i, in[0]), nil
	case kernels.Col2im:
		return images.Col2im[T](i, out[0]), nil
	case kernels.MaxPool2d:
		return images.MaxPool[T](i, in[0], out[0]), nil
	case kernels.MaxPool2dGrad:
		return images.MaxPoolGrad[T](i, in), nil
	case kernels.AvgPool2d:
		return images.AvgPool[T](i, in[0], out[0]), nil
	case kernels.AvgPool2dGrad:
		return images.AvgPoolGrad[T](i, in[0], out[0]), nil
	case kernels.Random:
		return randomBody[T](i), nil
	case kernels.Dropout:
		return dropoutBody[T](i), nil
	}
	return nil, fmt.Errorf("%w: the CPU does not know %v", kernels.ErrNoBackend, i)
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
