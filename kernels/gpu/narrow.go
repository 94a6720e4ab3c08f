package gpu

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

var _ kernels.Narrower = (*backend)(nil)

// Narrows is [kernels.Narrower]'s.
func (b *backend) Narrows() bool { return b.narrows(device.Float32) }

// lowerNarrow makes the launches of an instruction, some of whose operands and results are
// bfloat16. Those that no kernel reads or writes as such lie in the scratch as float32.
func (b *backend) lowerNarrow(i kernels.Narrow, in, out []kernels.Type) (*code, error) {
	if generated(i.Of) {
		return b.generate(i, in)
	}
	c := &code{}
	in, out = slices.Clone(in), slices.Clone(out)
	ins, outs := make([]arg, len(in)), make([]arg, len(out))
	for k, t := range in {
		ins[k] = inArg(k)
		if t.Dtype != device.BFloat16 || b.readsAsIs(i.Of, in, k) {
			continue
		}
		in[k].Dtype = device.Float32
		ins[k] = scratchArg(c.temp(in[k].Bytes()))
		if err := b.convert(c, t, in[k].Dtype, ins[k], inArg(k)); err != nil {
			return nil, err
		}
	}
	for k, t := range out {
		outs[k] = outArg(k)
		if t.Dtype == device.BFloat16 && !b.writesAsIs(i.Of, in, k) {
			out[k].Dtype = device.Float32
			outs[k] = scratchArg(c.temp(out[k].Bytes()))
		}
	}
	of, err := b.lowerOf(i, in, out)
	if err != nil {
		return nil, err
	}
	c.inline(of, outs, ins)
	for k, t := range out {
		if outs[k].kind != argScratch {
			continue
		}
		if err := b.convert(c, t, device.BFloat16, outArg(k), outs[k]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// lowerOf is lower of what is narrow, for operands and results that kernels read and write as they
// lie.
func (b *backend) lowerOf(i kernels.Narrow, in, out []kernels.Type) (*code, error) {
	if p, ok := kernels.Unviewed(i.Of).(kernels.MatMulThen); ok {
		v, _ := i.Of.(kernels.Viewed)
		return b.lowerProductThen(p, in, v.In, out, i.Product)
	}
	return b.lower(i.Of, in, out)
}

// generated says whether package gen writes the kernels of an instruction.
func generated(i kernels.Instr) bool {
	switch kernels.Unviewed(i).(type) {
	case kernels.Map, kernels.Unary, kernels.Binary, kernels.Reduce,
		kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
		return true
	}
	return false
}

// readsAsIs says whether operand k, of bfloat16, is read as it lies.
func (b *backend) readsAsIs(i kernels.Instr, in []kernels.Type, k int) bool {
	if isProduct(i) {
		return b.Narrows() || k >= 2
	}
	return b.readsNarrow(i, in, k)
}

// writesAsIs says whether result k, of bfloat16, is written as that.
func (b *backend) writesAsIs(i kernels.Instr, in []kernels.Type, k int) bool {
	return isProduct(i) || b.writesNarrow(i, in, k)
}

func isProduct(i kernels.Instr) bool {
	switch kernels.Unviewed(i).(type) {
	case kernels.MatMul, kernels.MatMulThen:
		return true
	}
	return false
}

// convert rounds or widens all of a tensor of type t.
func (b *backend) convert(c *code, t kernels.Type, to device.Dtype, at, from arg) error {
	in, out := []kernels.Type{t}, []kernels.Type{{Dtype: to, Shape: t.Shape}}
	copied, err := b.generate(stored(kernels.Map{Shape: t.Shape, Outs: []kernels.Out{{}}}, in, out), in)
	if err != nil {
		return err
	}
	c.inline(copied, []arg{at}, []arg{from})
	return nil
}

// stored is an instruction for operands and results that lie as they do.
func stored(i kernels.Instr, in, out []kernels.Type) kernels.Instr {
	n := kernels.Narrow{Of: i}
	for _, t := range out {
		n.Outs = append(n.Outs, kernels.IsNarrow(t))
	}
	if !slices.Contains(n.Outs, true) && !slices.ContainsFunc(in, kernels.IsNarrow) {
		return i
	}
	return n
}

var _ kernels.Padder = (*backend)(nil)

// PadsRows is [kernels.Padder]'s: the units for products read by 16 bytes. Of rows that begin
// elsewhere cuBLASLt 13.1 multiplied the head of GPT-2 (16384 rows, 768, 50257) in 13.3 ms on an
// H200, and of rows of 50264 in 1.8 ms.
func (b *backend) PadsRows() bool {
	return b.cfg.Precision != Float32 && b.gpu.Driver().Info().Arch >= tensorCores
}

// PadsTo is [kernels.Padder]'s: 16 bytes of bfloat16, or of e4m3 where the product is to be of
// that, or one of its gradients. So all three take the same rows, which are padded once.
func (b *backend) PadsTo(m, n, k int) int {
	if b.cfg.Precision != FP8 || !b.scales() || b.library() == nil {
		return quantizedUnit / 2
	}
	for _, p := range [...]products{{m: m, n: n, k: k}, {m: m, n: k, k: n}, {m: k, n: n, k: m}} {
		if b.worthQuantizing(&p) {
			return quantizedUnit
		}
	}
	return quantizedUnit / 2
}
