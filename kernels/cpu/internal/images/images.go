package images

import (
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// Body computes an instruction of this package; it is nil for others. The error is that of
// [blas.Chosen].
func Body[T conv.Float](i kernels.Instr, in, out []kernels.Type) (parallel.Body, error) {
	switch i := i.(type) {
	case kernels.Conv2d, kernels.Conv2dGradX, kernels.Conv2dGradW:
		g, err := blas.Chosen()
		if err != nil {
			return nil, err
		}
		return convolutionBody[T](i, in, out[0], g), nil
	case kernels.Im2col:
		return im2colBody[T](i, in[0]), nil
	case kernels.Col2im:
		return col2imBody[T](i, out[0]), nil
	case kernels.MaxPool2d:
		return maxPoolBody[T](i, in[0], out[0]), nil
	case kernels.MaxPool2dGrad:
		return maxPoolGradBody[T](i, in), nil
	case kernels.AvgPool2d:
		return avgPoolBody[T](i, in[0], out[0]), nil
	case kernels.AvgPool2dGrad:
		return avgPoolGradBody[T](i, in[0], out[0]), nil
	}
	return nil, nil //nolint:nilnil // another's
}
