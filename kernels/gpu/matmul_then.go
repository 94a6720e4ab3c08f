package gpu

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// epilogue is what a library does to a product before it stores it. The zero value is nothing.
type epilogue struct {
	kind cuda.Epilogue
	bias arg
	adds bool // to the sums what lies where sum says
	sum  arg
}

// lowerProductThen makes the launches of a product and of the map that follows, which may have the
// product rounded to bfloat16.
func (b *backend) lowerProductThen(i kernels.MatMulThen, in []kernels.Type, views []*kernels.View, out []kernels.Type, rounded bool) (*code, error) {
	if c, done, err := b.byEpilogue(i, in, views, out); done || err != nil {
		return c, err
	}
	c := &code{}
	then := append([]kernels.Type{{Dtype: kernels.Widened(in[:1])[0].Dtype, Shape: i.Then.Shape}}, in[2:]...)
	if rounded {
		then[0].Dtype = device.BFloat16
	}
	var to arg
	if k := into(i, then, in, views, out); k >= 0 {
		to = outArg(k)
	} else {
		to = scratchArg(c.temp(then[0].Bytes()))
	}
	p, err := b.productOf(c, i.MatMul, in, views, then[0].Shape, to)
	if err != nil {
		return nil, err
	}
	p.thin = kernels.IsNarrow(then[0])
	if err := b.multiply(c, p); err != nil {
		return nil, err
	}
	var after kernels.Instr = i.Then
	if views != nil {
		after = kernels.Viewed{Of: after, In: append([]*kernels.View{nil}, views[2:]...)}
	}
	m, err := b.generate(stored(after, then, out), then)
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
	c.inline(m, outs, ins)
	return c, nil
}

// byEpilogue is lowerProductThen where the library does all that the map does.
func (b *backend) byEpilogue(i kernels.MatMulThen, in []kernels.Type, views []*kernels.View, out []kernels.Type) (c *code, done bool, err error) {
	e, ok := epilogueOf(i.Then, in, views)
	if !ok {
		e, ok = sumOf(i.Then, in, views, out)
	}
	if !ok || b.library() == nil || e.kind.HasBias() && kernels.IsNarrow(in[2]) && !kernels.IsNarrow(out[0]) {
		return nil, false, nil
	}
	c = &code{}
	p, err := b.productOf(c, i.MatMul, in, views, i.Then.Shape, outArg(0))
	if err != nil {
		return nil, false, err
	}
	p.thin = kernels.IsNarrow(out[0])
	if p.thin && e.kind.HasBias() && !kernels.IsNarrow(in[2]) { // the library wants it as it stores the product
		if e.bias, err = b.copied(c, e.bias, p.n); err != nil {
			return nil, false, err
		}
	}
	done, why, err := b.byQuantized(c, p, e)
	switch {
	case done:
		b.tallyQuantized(done, why, err)
		return c, done, err
	case why == whyEpilogue || why == whySum:
		b.tally.add(workEpilogue, byKernels, why, err)
		return nil, false, nil
	case why == "" && err != nil:
		return nil, false, err
	}
	if b.narrows(p.dtype) && min(p.m, p.n, p.k) > 0 && !slices.Contains(p.dims, 0) {
		if p, err = b.narrowed(c, p); err != nil {
			return nil, false, err
		}
	}
	said := err
	if done, err = b.byLibrary(c, p, e); done { // otherwise multiply says why
		b.tallyQuantized(false, why, said)
	}
	return c, done, err
}

// into is the result in which the product may be computed: the map may write it over its first
// operand, and nothing that the map reads can lie there. −1: none.
func into(i kernels.MatMulThen, then, in []kernels.Type, views []*kernels.View, out []kernels.Type) int {
	var whole kernels.Instr = i
	if views != nil {
		whole = kernels.Viewed{Of: i, In: views}
	}
	whole = stored(whole, in, out)
	for k, o := range i.Then.Outs {
		if o.Fold != nil || !kernels.Overwrites(stored(i.Then, then, out), then, k, 0) {
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

// sumOf finds that a map adds what lies as the results do, such as those of the product before.
func sumOf(m kernels.Map, in []kernels.Type, views []*kernels.View, out []kernels.Type) (e epilogue, ok bool) {
	if len(in) != 3 || len(out) != 1 || !in[2].Equal(out[0]) || views != nil && views[2] != nil || len(m.Steps) != 1 || m.Outs[0].Reg != 2 || m.Outs[0].Fold != nil {
		return e, false
	}
	s := m.Steps[0]
	return epilogue{adds: true, sum: inArg(2)}, s.Op == kernels.Instr(kernels.Binary{Fn: kernels.Add}) && s.Args[0] != s.Args[1]
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
