package gpu

import (
	"slices"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// epilogue is what a library does to a product before it stores it. The zero value is nothing.
type epilogue struct {
	kind cuda.Epilogue
	bias arg
}

// lowerProductThen makes the launches of a product and of the map that follows.
func (b *backend) lowerProductThen(i kernels.MatMulThen, in []kernels.Type, views []*kernels.View, out []kernels.Type) (*code, error) {
	c := &code{}
	product := kernels.Type{Dtype: in[0].Dtype, Shape: i.Then.Shape}
	if e, ok := epilogueOf(i.Then, in, views); ok && b.library() != nil {
		p, err := b.productOf(c, i.MatMul, in, views, product.Shape, outArg(0))
		if err != nil {
			return nil, err
		}
		if b.narrows(p.dtype) && min(p.m, p.n, p.k) > 0 && !slices.Contains(p.dims, 0) {
			if p, err = b.narrowed(c, p); err != nil {
				return nil, err
			}
		}
		if done, err := b.byLibrary(c, p, e); done || err != nil {
			return c, err
		}
		c = &code{}
	}
	var to arg
	if k := into(i, in, views); k >= 0 {
		to = outArg(k)
	} else {
		to = scratchArg(c.temp(product.Bytes()))
	}
	p, err := b.productOf(c, i.MatMul, in, views, product.Shape, to)
	if err != nil {
		return nil, err
	}
	if err := b.multiply(c, p); err != nil {
		return nil, err
	}
	var then kernels.Instr = i.Then
	if views != nil {
		then = kernels.Viewed{Of: then, In: append([]*kernels.View{nil}, views[2:]...)}
	}
	m, err := b.generate(then, append([]kernels.Type{product}, in[2:]...))
	if err != nil {
		return nil, err
	}
	outs, ins := make([]arg, len(out)), []arg{to}
	for k := range outs {
		outs[k] = outArg(k)
	}
	for k := range in[2:] {
		ins = append(ins, inArg(2+k))
	}
	c.join(m, outs, ins)
	return c, nil
}

// into is the result in which the product may be computed: the map may write it over its first operand, and nothing that the map reads
// can lie there. −1: none.
func into(i kernels.MatMulThen, in []kernels.Type, views []*kernels.View) int {
	var whole kernels.Instr = i
	if views != nil {
		whole = kernels.Viewed{Of: i, In: views}
	}
	then := append([]kernels.Type{{Dtype: in[0].Dtype, Shape: i.Then.Shape}}, in[2:]...)
	for k, o := range i.Then.Outs {
		if o.Fold != nil || !kernels.Overwrites(i.Then, then, k, 0) {
			continue
		}
		free := true
		for m := range in[2:] {
			free = free && !kernels.Overwrites(whole, in, k, 2+m)
		}
		if free {
			return k
		}
	}
	return -1
}

// epilogueOf finds what of a map a library does: a bias for each column, a ReLU, or both.
func epilogueOf(m kernels.Map, in []kernels.Type, views []*kernels.View) (e epilogue, ok bool) {
	if len(m.Outs) != 1 || m.Outs[0].Fold != nil || len(m.Steps) == 0 || len(m.Steps) > 2 || m.Outs[0].Reg != len(in)-1+len(m.Steps)-1 {
		return e, false
	}
	reg := 0 // what has been computed so far: the product
	for k, s := range m.Steps {
		switch {
		case s.Op == kernels.Instr(kernels.Binary{Fn: kernels.Add}) && k == 0 && len(in) == 3 && (s.Args == [2]int{0, 1} || s.Args == [2]int{1, 0}):
			n, bias := m.Shape[len(m.Shape)-1], in[2].Shape
			if bias.Elems() != n || len(bias) == 0 || bias[len(bias)-1] != n || views != nil && views[2] != nil {
				return e, false
			}
			e.kind, e.bias = cuda.Bias, inArg(2)
		case s.Op == kernels.Instr(kernels.Unary{Fn: kernels.Relu}) && s.Args[0] == reg && k == len(m.Steps)-1:
			if e.kind == cuda.Bias {
				e.kind = cuda.ReLUBias
			} else if len(in) == 2 {
				e.kind = cuda.ReLU
			}
		default:
			return e, false
		}
		reg = len(in) - 1 + k
	}
	return e, e.kind != cuda.None
}
