package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/zero"
)

// Zero is 0 itself in a setting whose zero value stands for a default: BatchNorm{Momentum:
// nn.Zero}.
const Zero = zero.Itself

// Layer is a function of one tensor with parameters.
type Layer interface {
	Forward(x *autodiff.Tensor) *autodiff.Tensor
	// Params lists the parameters, in a fixed order.
	Params() []*autodiff.Tensor
}

// Linear is x·W + B: x (…, in), W (in, out), B (out).
type Linear struct{ W, B *autodiff.Tensor }

// NewLinear draws W and B uniformly within ±1/√in, as PyTorch does.
func NewLinear(src *rand.Rand, in, out int) *Linear {
	bound := 1 / math.Sqrt(float64(max(in, 1)))
	return &Linear{
		W: KaimingUniform(src, device.Float32, math.Sqrt(5), in, out).RequireGrad(),
		B: Uniform(src, device.Float32, -bound, bound, out).RequireGrad(),
	}
}

// Forward is x·W + B.
func (l *Linear) Forward(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Linear(x, l.W, l.B) }

// Params is W and B.
func (l *Linear) Params() []*autodiff.Tensor { return []*autodiff.Tensor{l.W, l.B} }

// Embedding picks rows of Table (rows, d) by int32 or int64 ids.
type Embedding struct {
	Table  *autodiff.Tensor
	Sparse bool // the table's gradient is kept as the rows that were picked: autodiff.EmbeddingSparse
}

// NewEmbedding draws the table from the standard normal distribution, as PyTorch does.
func NewEmbedding(src *rand.Rand, rows, dim int) *Embedding {
	return &Embedding{Table: Normal(src, device.Float32, 0, 1, rows, dim).RequireGrad()}
}

// Forward gives a tensor of the ids' shape with one more axis, d.
func (l *Embedding) Forward(ids *autodiff.Tensor) *autodiff.Tensor {
	if l.Sparse {
		return autodiff.EmbeddingSparse(l.Table, ids)
	}
	return autodiff.Embedding(l.Table, ids)
}

// Params is the table.
func (l *Embedding) Params() []*autodiff.Tensor { return []*autodiff.Tensor{l.Table} }

// LayerNorm normalises the last axis, then scales by Gamma and shifts by Beta, both (d).
type LayerNorm struct {
	Gamma, Beta *autodiff.Tensor
	Eps         float64 // added to the variance; default 1e-5, and Zero for none
}

// NewLayerNorm starts with Gamma 1 and Beta 0.
func NewLayerNorm(dim int) *LayerNorm {
	return &LayerNorm{Gamma: Ones(device.Float32, dim).RequireGrad(), Beta: Zeros(device.Float32, dim).RequireGrad()}
}

// Forward normalises x (…, d).
func (l *LayerNorm) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.LayerNorm(x, l.Gamma, l.Beta, zero.Or(l.Eps, 1e-5))
}

// Params is Gamma and Beta.
func (l *LayerNorm) Params() []*autodiff.Tensor { return []*autodiff.Tensor{l.Gamma, l.Beta} }

// Activation makes a layer without parameters of a function: Activation(autodiff.GELU).
type Activation func(x *autodiff.Tensor) *autodiff.Tensor

// Forward calls the function.
func (f Activation) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	if f == nil {
		return autodiff.Failed(fmt.Errorf("%w: an Activation is nil", autodiff.ErrFunction))
	}
	return f(x)
}

// Params is nothing.
func (f Activation) Params() []*autodiff.Tensor { return nil }

// Sequential is layers one after another, none of which may be nil; no layers are the identity.
type Sequential []Layer

// NewMLP is linear layers of the given widths, the first being that of the input, with an
// activation between them.
func NewMLP(src *rand.Rand, between Activation, widths ...int) Sequential {
	var s Sequential
	for i := 1; i < len(widths); i++ {
		if i > 1 {
			s = append(s, between)
		}
		s = append(s, NewLinear(src, widths[i-1], widths[i]))
	}
	return s
}

// Forward runs the layers in order.
func (s Sequential) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	for k, l := range s {
		if missing(l) {
			return autodiff.Failed(fmt.Errorf("%w: Sequential's layer %d is nil", autodiff.ErrFunction, k))
		}
		x = l.Forward(x)
	}
	return x
}

// missing says whether l is nothing, or a nil pointer or function.
func missing(l Layer) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

// Params lists those of every layer, in order.
func (s Sequential) Params() []*autodiff.Tensor {
	var ps []*autodiff.Tensor
	for _, l := range s {
		if !missing(l) {
			ps = slices.Concat(ps, l.Params())
		}
	}
	return ps
}
