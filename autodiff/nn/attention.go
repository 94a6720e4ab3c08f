package nn

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// SelfAttention lets the tokens of x (b, t, width) see each other, in several heads of
// width/Heads elements. Its output is like x.
type SelfAttention struct {
	QKV    *Linear  // makes queries, keys and values, side by side: (width, (Heads + 2·Keys)·width/Heads)
	Out    *Linear  // reads what the heads have seen: (width, width)
	Heads  int      // of queries; they divide the width
	Keys   int      // heads of keys and values, which divide Heads; 0: as many
	Causal bool     // a token sees itself and those before it alone
	Drop   *Dropout // of weights, in training; nil: none
}

// NewSelfAttention draws both linear layers. Of keys there are as many heads as of queries where
// `keys` is 0.
func NewSelfAttention(src *rand.Rand, width, heads, keys int) *SelfAttention {
	made := width
	if heads > 0 {
		made = (heads + 2*sharedBy(heads, keys)) * (width / heads)
	}
	return &SelfAttention{QKV: NewLinear(src, width, made), Out: NewLinear(src, width, width), Heads: heads, Keys: keys}
}

func sharedBy(heads, keys int) int {
	if keys == 0 {
		return heads
	}
	return keys
}

// Forward sees all tokens, or with Causal those before.
func (l *SelfAttention) Forward(x *autodiff.Tensor) *autodiff.Tensor { return l.Masked(x, nil) }

// Masked also adds a mask to the scores, such as [Padding]: (b, Heads, t, t), any of which may be
// 1. With nil there is none. It has no gradient.
func (l *SelfAttention) Masked(x, mask *autodiff.Tensor) *autodiff.Tensor {
	if x.Err() != nil {
		return x
	}
	s := x.Shape()
	keys := sharedBy(l.Heads, l.Keys)
	switch {
	case len(s) != 3:
		return autodiff.Failed(fmt.Errorf("%w: self-attention of %v; expected (b, t, width)", autodiff.ErrFunction, s))
	case l.Heads <= 0 || s[2]%l.Heads != 0:
		return autodiff.Failed(fmt.Errorf("%w: %d heads; expected a number that divides the width %d", autodiff.ErrFunction, l.Heads, s[2]))
	case keys <= 0 || l.Heads%keys != 0:
		return autodiff.Failed(fmt.Errorf("%w: %d heads of keys; expected a number that divides the %d heads of queries", autodiff.ErrFunction, keys, l.Heads))
	}
	i, more := kernels.Attention{Causal: l.Causal, Masked: mask != nil}, []*autodiff.Tensor(nil)
	if mask != nil {
		more = append(more, mask)
	}
	if l.Drop != nil && l.Drop.P != 0 && l.Drop.Training() {
		i.Drop, more = l.Drop.P, append(more, l.Drop.key(x))
	}
	made, d, at := l.QKV.Forward(x), s[2]/l.Heads, 0
	var heads [3]*autodiff.Tensor
	for k, n := range [3]int{l.Heads, keys, keys} {
		heads[k] = autodiff.Reshape(autodiff.Slice(made, 2, at, at+n*d), s[0], s[1], n, d)
		at += n * d
	}
	return l.Out.Forward(autodiff.Reshape(autodiff.AttentionBy(i, heads[0], heads[1], heads[2], more...), s...))
}

// Params is those of QKV and Out.
func (l *SelfAttention) Params() []*autodiff.Tensor { return append(l.QKV.Params(), l.Out.Params()...) }

// Padding is a mask (b, 1, 1, t) that hides what lies behind the tokens of each sequence: of t
// there are so many. It is float32, on the CPU.
func Padding(t int, tokens ...int) *autodiff.Tensor {
	m := make([]float32, len(tokens)*max(t, 0))
	for b, n := range tokens {
		for k := max(n, 0); k < t; k++ {
			m[b*t+k] = float32(math.Inf(-1))
		}
	}
	return autodiff.New(m, len(tokens), 1, 1, t)
}
