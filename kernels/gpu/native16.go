package gpu

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// readsNarrow says whether i, lowered for operands of the types in, reads an operand that is
// bfloat16 as it lies. The other operands may be bfloat16 too, each only as `in` has it: i may be
// [kernels.Viewed], but not [kernels.Narrow].
func (b *backend) readsNarrow(i kernels.Instr, in []kernels.Type, operand int) bool {
	if !b.roundsInKernels() || !kernels.IsNarrow(in[operand]) {
		return false
	}
	switch kernels.Unviewed(i).(type) {
	case kernels.Attention, kernels.AttentionGrad:
		return operand < headOperands(i) && operand != logarithms && b.readsHeads(i, in)
	}
	op, ok := b.rowOp(i, in, nil)
	return ok && operand == op.reads
}

// writesNarrow says whether i, lowered for operands of the types in, can write a result as
// bfloat16.
func (b *backend) writesNarrow(i kernels.Instr, in []kernels.Type, result int) bool {
	if !b.roundsInKernels() {
		return false
	}
	switch kernels.Unviewed(i).(type) {
	case kernels.Attention:
		return result == 0 && b.readsHeads(i, in)
	case kernels.AttentionGrad:
		return b.readsHeads(i, in)
	}
	op, ok := b.rowOp(i, in, nil)
	return ok && op.writes && result == 0 && in[0].Dtype != device.Float64
}

// logarithms is the operand of the gradient of attention that is always float32.
const logarithms = 4

// headOperands is how many operands of attention, or its gradient, are heads, or logarithms. A mask
// and a key follow.
func headOperands(i kernels.Instr) int {
	if _, ok := kernels.Unviewed(i).(kernels.AttentionGrad); ok {
		return 6
	}
	return 3
}

// readsHeads says whether attention, or its gradient, has kernels for operands that lie so:
// queries, keys, values and, of the gradient, results are bfloat16, whose gradient may be, and all
// rows can be accessed by 16 bytes.
func (b *backend) readsHeads(i kernels.Instr, in []kernels.Type) bool {
	var views []*kernels.View
	if v, ok := i.(kernels.Viewed); ok {
		views = v.In
	}
	for k, t := range in[:headOperands(i)] {
		if k == logarithms {
			continue
		}
		v := kernels.ViewOf(in, views, k)
		if k < logarithms && !kernels.IsNarrow(t) || t.Dtype == device.Float64 || v.Strides[3] != 1 || !hasUnits(v.Shape[3]) ||
			!seenThrough(inArg(k), t, v).by16(t.Dtype) {
			return false
		}
	}
	return b.narrows(device.Float32)
}

// roundsInKernels says whether the GPU has the instructions that package cu's kernels for bfloat16
// use.
func (b *backend) roundsInKernels() bool { return b.gpu.Driver().Info().Arch >= tensorCores }

// lying is how the names of kernels end that read and write some types, in order.
func lying(all ...kernels.Type) string {
	end := "_"
	for _, t := range all {
		if kernels.IsNarrow(t) {
			end += "b"
		} else {
			end += "f"
		}
	}
	return end
}

// planEights shares out rows that begin anywhere, and are accessed by eights: entropy_bf16.cu.
func planEights(x kernels.Type, i kernels.CrossEntropy) rowPlan {
	rows, n := x.Shape[0], i.Of(x.Shape[1])
	return share(x.Dtype, rows, n, (n+7)/8, 4, 512)
}

// entropyOfEights is entropy of logits in bfloat16.
func (b *backend) entropyOfEights(in []kernels.Type, i kernels.CrossEntropy) (*code, error) {
	c, p := new(code), planEights(in[0], i)
	f, err := b.planned("entropy_bf16", "entropy_b", p)
	if err != nil {
		return nil, err
	}
	mean, err := b.kernel("entropy_bf16", "entropy_mean_b", 0)
	if err != nil {
		return nil, err
	}
	losses := c.temp(p.rows * device.Float32.Size())
	p.launch(c, f).temp(losses).in(0).labels(in[1], i).flag(in[1].Dtype == device.Int64).u32(p.rows).u32(p.n).u32(in[0].Shape[1]).u32(p.lanes).fault()
	c.call(mean, 1, min(max(power(p.rows), 32), 1024)).out(0).temp(losses).u32(p.rows)
	return c, nil
}

// entropyGradOfEights is entropyGrad where the logits or the gradient are bfloat16.
func (b *backend) entropyGradOfEights(in []kernels.Type, out kernels.Type, i kernels.CrossEntropy) (*code, error) {
	c, p := new(code), planEights(in[0], i)
	keep := b.keep(&p, 1)
	f, err := b.planned("entropy_bf16", "entropy_grad"+lying(in[0], out), p)
	if err != nil {
		return nil, err
	}
	p.launch(c, f).out(0).in(0).labels(in[1], i).in(2).flag(in[1].Dtype == device.Int64).u32(p.rows).u32(p.n).u32(in[0].Shape[1]).u32(p.lanes).flag(keep).fault()
	return c, nil
}

// rowsKernel is rowKernel for a first operand, others and a result: in the module for bfloat16
// where that is any of them.
func (b *backend) rowsKernel(module, name string, p rowPlan, all ...kernels.Type) (cuda.Func, error) {
	if !slices.ContainsFunc(all, kernels.IsNarrow) {
		return b.rowKernel(module, name, all[0].Dtype, p)
	}
	return b.planned(module+"_bf16", name+lying(all...), p)
}

// normGradParams adds up what the blocks of a gradient of layer norm left: in the module that they
// are in.
func (b *backend) normGradParams(all ...kernels.Type) (cuda.Func, error) {
	if !slices.ContainsFunc(all, kernels.IsNarrow) {
		return b.kernel("norm", typed("norm_grad_params", all[0].Dtype), 0)
	}
	return b.kernel("norm_bf16", "norm_grad_params_b", 0)
}
