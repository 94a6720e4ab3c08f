package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/vec"
)

// compile chooses the body of an instruction for operands that Infer has accepted.
func compile(i Instr, in, out []Type) (body, error) {
	switch i := i.(type) {
	case BroadcastTo, Reshape, Transpose, Slice, Pad, Concat:
		return moveBody(i, in, out[0]), nil
	case Viewed:
		switch i.Of.(type) {
		case BroadcastTo, Reshape, Transpose, Slice, Pad, Concat:
			return moveBody(i, in, out[0]), nil
		}
	case Cast:
		return castBody(in[0].Dtype, i.To), nil
	case Fill:
		return fillBody(i), nil
	case SumSquares:
		return sumSquaresBody(in[0]), nil
	case NonFinite:
		return nonFiniteBody(in[0].Dtype), nil
	}
	if out[0].Dtype == device.Float32 {
		return compileFloat[float32](i, in, out)
	}
	return compileFloat[float64](i, in, out)
}

// compileFloat is compile for the instructions whose results are floats of type T.
func compileFloat[T vec.Float](i Instr, in, out []Type) (body, error) {
	switch i := i.(type) {
	case Unary:
		return unaryBody[T](i, in), nil
	case Binary:
		return binaryBody[T](i, in, out[0]), nil
	case Map:
		return mapBody[T](i, in, nil), nil
	case Viewed:
		return compileViewed[T](i.Of, i.Seen(in), i.In, out)
	case MatMul, MatMulThen, Attention, AttentionGrad:
		return compileViewed[T](i, in, nil, out)
	case Reduce:
		return reduceBody[T](i, in[0]), nil
	case MaxGrad:
		return maxGradBody[T](i, in[0]), nil
	case Gather:
		return gatherBody[T](i, in), nil
	case ScatterAdd:
		return scatterAddBody[T](i, in), nil
	case Softmax:
		return softmaxBody[T](i, in[0]), nil
	case SoftmaxGrad:
		return softmaxGradBody[T](i, in[0]), nil
	case CrossEntropy:
		return crossEntropyBody[T](i, in), nil
	case CrossEntropyGrad:
		return crossEntropyGradBody[T](i, in), nil
	case Normalize:
		return normalizeBody[T](i, in[0]), nil
	case NormalizeGrad:
		return normalizeGradBody[T](i, in[0]), nil
	case LayerNorm:
		return layerNormBody[T](i, in[0]), nil
	case LayerNormGrad:
		return layerNormGradBody[T](i, in[0]), nil
	case Update:
		return updateBody[T](i), nil
	case UpdateMany:
		return updateManyBody[T](i), nil
	case OnRows:
		return onRowsBody[T](i, in, out)
	}
	return compileImages[T](i, in, out)
}

// compileImages is compile for the instructions of convolutional nets, and random ones.
func compileImages[T vec.Float](i Instr, in, out []Type) (body, error) {
	switch i := i.(type) {
	case Conv2d, Conv2dGradX, Conv2dGradW:
		g, err := chosenGemmer()
		if err != nil {
			return nil, err
		}
		return compileConv[T](i, in, out[0], g), nil
	case Im2col:
		return im2colBody[T](i, in[0]), nil
	case Col2im:
		return col2imBody[T](i, out[0]), nil
	case MaxPool2d:
		return maxPoolBody[T](i, in[0], out[0]), nil
	case MaxPool2dGrad:
		return maxPoolGradBody[T](i, in), nil
	case AvgPool2d:
		return avgPoolBody[T](i, in[0], out[0]), nil
	case AvgPool2dGrad:
		return avgPoolGradBody[T](i, in[0], out[0]), nil
	case Random:
		return randomBody[T](i), nil
	case Dropout:
		return dropoutBody[T](i), nil
	}
	return nil, fmt.Errorf("%w: the CPU does not know %v", ErrNoBackend, i)
}

// compileViewed is compileFloat for what reads operands by views, nil for those that are contiguous. The types are those that it sees.
func compileViewed[T vec.Float](i Instr, in []Type, views []*View, out []Type) (body, error) {
	if of, ok := i.(Map); ok {
		return mapBody[T](of, in, views), nil
	}
	g, err := chosenGemmer()
	if err != nil {
		return nil, err
	}
	switch of := i.(type) {
	case MatMul:
		return matMulBody[T](of, in, views, out[0], g), nil
	case Attention:
		return attentionBody[T](of, in, views, g), nil
	case AttentionGrad:
		return attentionGradBody[T](of, in, views, g), nil
	}
	return matMulThenBody[T](i.(MatMulThen), in, views, g), nil
}
