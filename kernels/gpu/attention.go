package gpu

import (
	"fmt"

	"github.com/weft-project/weft/kernels"
)

// attentionShared is how much shared memory a block of attention may take.
const attentionShared = 48 << 10

// lowerAttention makes the launches of attention and its gradient: a warp for each row. What is read through views is laid out first.
func (b *backend) lowerAttention(i kernels.Instr, in []kernels.Type, views []*kernels.View, out []kernels.Type) (*code, error) {
	c := &code{}
	args, seen := make([]arg, len(in)), in
	if views != nil {
		seen = kernels.Viewed{Of: i, In: views}.Seen(in)
	}
	for k := range in {
		args[k] = inArg(k)
		if views == nil || views[k] == nil {
			continue
		}
		move := kernels.Viewed{Of: kernels.Reshape{Shape: seen[k].Shape}, In: views[k : k+1]}
		copied, err := b.generate(move, in[k:k+1])
		if err != nil {
			return nil, err
		}
		args[k] = scratchArg(c.temp(seen[k].Bytes()))
		c.join(copied, []arg{args[k]}, []arg{inArg(k)})
	}
	a := attention{backend: b, c: c, in: args, q: seen[0], rows: [2]int{seen[0].Shape[1], seen[1].Shape[1]}}
	switch i := i.(type) {
	case kernels.Attention:
		a.causal = i.Causal
		return c, a.launch("attention", 0, 32, 2, []arg{outArg(0), outArg(1)})
	case kernels.AttentionGrad:
		a.causal = i.Causal
		heads, offK, offV := a.q.Shape[2], 0, 0
		k, v := 1, 2
		if i.Joined {
			offK, offV, heads, k, v = heads, 2*heads, 3*heads, 0, 0
		}
		if err := a.launch("attention_grad_q", 0, 32, 3, []arg{outArg(0)}, heads); err != nil {
			return nil, err
		}
		return c, a.launch("attention_grad_kv", 1, 64, 4, []arg{outArg(k), outArg(v)}, heads, offK, offV)
	}
	return nil, unknown(i)
}

// attention is one instruction.
type attention struct {
	*backend
	c      *code
	in     []arg
	q      kernels.Type
	rows   [2]int // of q, and of k and v
	causal bool
}

// launch makes a warp for each row of q (0), or of k and v (1), with shared memory for so many numbers and rows.
func (a *attention) launch(name string, of, numbers, rows int, outs []arg, more ...int) error {
	s := a.q.Shape
	const warps = 4
	bytes := warps * (numbers + rows*s[3]) * a.q.Dtype.Size()
	if bytes > attentionShared || s.Elems() > mostElems {
		return fmt.Errorf("%w: heads of %d numbers, or %v, are more than the kernels of attention take", kernels.ErrOperands, s[3], a.q)
	}
	f, err := a.kernel("attention", name+"_"+suffix(a.q.Dtype), bytes)
	if err != nil {
		return err
	}
	l := a.c.call(f, (s[0]*s[2]*a.rows[of]+warps-1)/warps, 32*warps).dynamic(bytes)
	for _, x := range append(outs, a.in...) {
		l.add(x)
	}
	for _, n := range more {
		l.u32(n)
	}
	l.u32(s[0]).u32(s[1]).u32(a.rows[1]).u32(s[2]).u32(s[3]).flag(a.causal)
	return nil
}
