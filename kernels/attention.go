package kernels

import (
	"fmt"
	"strings"

	"github.com/weft-project/weft/device"
)

// Attention is softmax(q·kᵀ/√d)·v for each head of each batch, without a matrix of all scores in
// memory (Dao, "FlashAttention-2", arXiv:2307.08691): (q [b, t, heads, d], k [b, s, n, d], v like
// k) → (y like q, the logarithms of the sums of exponentials [b, heads, t], which the gradient
// reads). So what a linear layer makes of tokens is read and written without a transpose. Where
// heads is a multiple of n, heads/n heads in a row have the keys and values of one.
type Attention struct {
	// Causal lets row r see the first s−t+r+1 rows of k and v alone, so that the last row sees all;
	// s is at least t then. What is not finite in what a row does not see does not reach it.
	Causal bool
	// Masked takes an operand more, a mask of q's dtype (b, heads, t, s), any of whose extents may
	// be 1, and adds it to the scores. −∞ hides a key, whose value is multiplied by 0 then. A query
	// whose scores are all −∞ gives zeros. The mask has no gradient.
	Masked bool
	// Drop is the probability with which a weight of a value is 0; the others are multiplied by
	// 1/(1−Drop). Unless it is 0, a key is the last operand. The weights of a row are those of
	// ⌈s/4⌉·4 elements that Dropout keeps, of a tensor (b, heads, t, ⌈s/4⌉·4) under that key.
	Drop float64
}

func (i Attention) String() string { return fmt.Sprintf("Attention(causal=%v%s)", i.Causal, i.more()) }

// more tells of what few ask for.
func (i Attention) more() (s string) {
	if i.Masked {
		s = ", masked"
	}
	if i.Drop != 0 {
		s += fmt.Sprintf(", drop=%v", i.Drop)
	}
	return s
}

// operands is how many there are, of which the first so many are always there.
func (i Attention) operands(first int) (n int) {
	n = first
	if i.Masked {
		n++
	}
	if i.Drop != 0 {
		n++
	}
	return n
}

// Infer takes tensors of floats of one dtype, and a key. Its error says all that is wrong.
func (i Attention) Infer(in []Type) ([]Type, error) {
	why := i.expect(in, "q, k, v")
	if len(in) >= 3 {
		why = append(why, i.wrongShapes(in)...)
	}
	if len(why) > 0 {
		return nil, refuse(i, in, "%s", strings.Join(why, "; "))
	}
	q := in[0].Shape
	sums := device.Shape{q[0], q[2], q[1]}
	if err := sums.Check(); err != nil {
		return nil, refuse(i, in, "result: %v", err)
	}
	return []Type{in[0], {in[0].Dtype, sums}}, nil
}

// expect says what is wrong with the number of operands, of which those that are named are always
// there, with dtypes, the key and the probability, of attention or its gradient.
func (i Attention) expect(in []Type, names string) (why []string) {
	first := strings.Count(names, ",") + 1
	wrong := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	mask, key := -1, -1
	if i.Masked {
		mask, names = first, names+", a mask"
	}
	if i.Drop != 0 {
		key, names = i.operands(first)-1, names+", and a random key for what is dropped"
	}
	if n := i.operands(first); len(in) != n {
		if len(in) > n && (mask < 0 || key < 0) {
			names += " (a mask goes only with Masked, a key only with a Drop above 0)"
		}
		wrong("expected %d operands, got %d: %s", n, len(in), names)
	}
	if !(i.Drop >= 0 && i.Drop <= 1) {
		wrong("a probability of %v, expected one from 0 to 1", i.Drop)
	}
	turned := mask >= 0 && key >= 0 && len(in) > key && isKey(in[mask]) && in[key].Dtype.IsFloat()
	if turned {
		wrong("the mask comes before the key")
	}
	for k, t := range in {
		switch err := t.Shape.Check(); {
		case !t.Dtype.Valid():
			wrong("operand %d has no valid dtype", k)
		case err != nil:
			wrong("operand %d: %v", k, err)
		case turned && (k == mask || k == key):
		case k == key && !isKey(t):
			wrong("the key must be int64(2), a seed and a counter, got %v", t)
		case k == key || k >= i.operands(first):
		case !t.Dtype.IsFloat():
			wrong("operand %d: expected float32 or float64, got %v", k, t.Dtype)
		case t.Dtype != in[0].Dtype && in[0].Dtype.IsFloat():
			wrong("operand %d: the dtypes differ, %v and %v of q; cast one of them", k, t.Dtype, in[0].Dtype)
		}
	}
	return why
}

// wrongShapes says what is wrong with the shapes of q, k, v, and a mask.
func (i Attention) wrongShapes(in []Type) (why []string) {
	q, k := in[0].Shape, in[1].Shape
	if why := unlike(q, k, in[2].Shape); len(why) > 0 {
		return []string{"expected q (b, t, heads, d), and k and v (b, s, heads, d), or as many heads as divide those of q: " +
			strings.Join(why, ", ")}
	}
	if i.Causal && k[1] < q[1] {
		why = append(why, fmt.Sprintf("of %d causal rows the first would see none of %d", q[1], k[1]))
	}
	scores := device.Shape{q[0], q[2], q[1], k[1]}
	if i.Masked && len(in) > 3 && !isKey(in[3]) && !isMask(in[3].Shape, scores) {
		why = append(why, fmt.Sprintf("expected a mask (b, heads, t, s), any of which may be 1: %v, got %v", scores, in[3].Shape))
	}
	return why
}

// unlike says what of the shapes of q, k and v does not fit together.
func unlike(q, k, v device.Shape) (why []string) {
	wrong := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	for n, s := range []device.Shape{q, k, v} {
		if len(s) != 4 {
			wrong("%c has %d dimensions", "qkv"[n], len(s))
		}
	}
	if len(why) > 0 {
		return why
	}
	for n, of := range []string{"b", "s", "heads", "d"} {
		switch {
		case n == 2 && !shared(q[n], k[n]):
			wrong("k has %d heads, q %d", k[n], q[n])
		case n%3 == 0 && q[n] != k[n]:
			wrong("%s is %d of k, %d of q", of, k[n], q[n])
		}
		if v[n] != k[n] {
			wrong("%s is %d of v, %d of k", of, v[n], k[n])
		}
	}
	return why
}

// shared says whether so many heads can have keys of so many.
func shared(heads, keys int) bool {
	return heads == keys || heads > 0 && keys > 0 && heads%keys == 0
}

func isMask(mask, scores device.Shape) bool {
	if len(mask) != len(scores) {
		return false
	}
	for k, n := range mask {
		if n != 1 && n != scores[k] {
			return false
		}
	}
	return true
}

// Two products, and the softmax of a score.
func (i Attention) flops(in, _ []Type) int { return (4*in[0].Shape[3] + 5) * scores(in, i.Causal) }

func (i Attention) rounding() Rounding { return Rounding{Result: true, Operands: true, First: 3} }

// AttentionGrad is the gradient of Attention: (q, k, v, y and the logarithms as Attention gave
// them, gy like y, and then mask and key, if Attention has them) → (gq, gk, gv).
type AttentionGrad struct {
	Causal, Masked bool
	Drop           float64
	// Joined puts the three side by side into one result (b, t, heads+2·n, d), where s is t.
	Joined bool
}

// Of is the Attention whose gradient this is.
func (i AttentionGrad) Of() Attention {
	return Attention{Causal: i.Causal, Masked: i.Masked, Drop: i.Drop}
}

func (i AttentionGrad) String() string {
	return fmt.Sprintf("AttentionGrad(causal=%v, joined=%v%s)", i.Causal, i.Joined, i.Of().more())
}

// Infer takes tensors of floats of one dtype, and a key.
func (i AttentionGrad) Infer(in []Type) ([]Type, error) {
	if why := i.Of().expect(in, "q, k, v, y, logarithms, gy"); len(why) > 0 {
		return nil, refuse(i, in, "%s", strings.Join(why, "; "))
	}
	of, err := i.Of().Infer(append(in[:3:3], in[6:]...))
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
	return result(i, in, in[0].Dtype, device.Shape{q[0], q[1], q[2] + 2*k[2], q[3]})
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
