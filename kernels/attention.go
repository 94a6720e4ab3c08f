package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// Attention is softmax(q·kᵀ/√d)·v for each head of each batch, without a matrix of all scores in
// memory (Dao, "FlashAttention-2", arXiv:2307.08691): (q [b, t, heads, d], k [b, s, heads, d], v
// like k) → (y like q, the logarithms of the sums of exponentials [b, heads, t], which the gradient
// reads). So what a linear layer makes of tokens is read and written without a transpose.
type Attention struct {
	// Causal lets row r see the first s−t+r+1 rows of k and v alone, so that the last row sees all;
	// s is at least t then. What is not finite in what a row does not see does not reach it.
	Causal bool
}

func (i Attention) String() string { return fmt.Sprintf("Attention(causal=%v)", i.Causal) }

// Infer takes tensors of floats of one dtype.
func (i Attention) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 3); err != nil {
		return nil, err
	}
	q, k := in[0].Shape, in[1].Shape
	if len(q) != 4 || len(k) != 4 || !k.Equal(in[2].Shape) || q[0] != k[0] || q[2] != k[2] || q[3] != k[3] {
		return nil, refuse(i, in, "expected q (b, t, heads, d), and k and v (b, s, heads, d)")
	}
	if i.Causal && k[1] < q[1] {
		return nil, refuse(i, in, "of %d causal rows the first would see none of %d", q[1], k[1])
	}
	sums := device.Shape{q[0], q[2], q[1]}
	if err := sums.Check(); err != nil {
		return nil, refuse(i, in, "result: %v", err)
	}
	return []Type{in[0], {in[0].Dtype, sums}}, nil
}

// Two products, and the softmax of a score.
func (i Attention) flops(in, _ []Type) int { return (4*in[0].Shape[3] + 5) * scores(in, i.Causal) }

func (i Attention) rounding() Rounding { return Rounding{Result: true, Operands: true} }

// AttentionGrad is the gradient of Attention: (q, k, v, y and the logarithms as Attention gave
// them, gy like y) → (gq, gk, gv).
type AttentionGrad struct {
	Causal bool
	// Joined puts the three side by side into one result (b, t, 3·heads, d), where s is t.
	Joined bool
}

func (i AttentionGrad) String() string {
	return fmt.Sprintf("AttentionGrad(causal=%v, joined=%v)", i.Causal, i.Joined)
}

// Infer takes tensors of floats of one dtype.
func (i AttentionGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 6); err != nil {
		return nil, err
	}
	of, err := Attention{Causal: i.Causal}.Infer(in[:3])
	if err != nil {
		return nil, refuse(i, in, "%v", err)
	}
	if !in[3].Equal(of[0]) || !in[4].Equal(of[1]) || !in[5].Equal(of[0]) {
		return nil, refuse(i, in, "expected y and its gradient like q, and logarithms %v", of[1].Shape)
	}
	if !i.Joined {
		return in[:3:3], nil
	}
	q, k := in[0].Shape, in[1].Shape
	if q[1] != k[1] {
		return nil, refuse(i, in, "gradients of %d and %d rows do not lie side by side", q[1], k[1])
	}
	return result(i, in, in[0].Dtype, device.Shape{q[0], q[1], 3 * q[2], q[3]})
}

// Five products.
func (i AttentionGrad) flops(in, _ []Type) int {
	return (10*in[0].Shape[3] + 5) * scores(in, i.Causal)
}

// scores is how many products of a query and a key attention takes.
func scores(in []Type, causal bool) int {
	q, s := in[0].Shape, in[1].Shape[1]
	n := q[1] * s
	if causal {
		n -= q[1] * (q[1] - 1) / 2
	}
	return q[0] * q[2] * n
}
