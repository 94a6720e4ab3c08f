package gpu

import (
	"math/bits"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// rowOp is what a GPU does with an instruction that works on rows of numbers.
type rowOp struct {
	lower  func() (*code, error)
	reads  int  // the operand that it reads as bfloat16 if it lies so, none if negative
	writes bool // its first result as bfloat16, if that is asked of it
}

// rowOp finds it; the types are of operands that Infer has accepted, and of its results.
func (b *backend) rowOp(i kernels.Instr, in, out []kernels.Type) (op rowOp, ok bool) {
	switch i := i.(type) {
	case kernels.Softmax:
		return rowOp{func() (*code, error) { return b.softmax(in[0], i.Axis, "softmax", []int{0}, i.Log) }, -1, false}, true
	case kernels.SoftmaxGrad:
		return rowOp{func() (*code, error) { return b.softmax(in[0], i.Axis, "softmax_grad", []int{0, 1}, i.Log) }, -1, false}, true
	case kernels.CrossEntropy:
		return rowOp{func() (*code, error) { return b.entropy(in, i) }, 0, false}, true
	case kernels.CrossEntropyGrad:
		return rowOp{func() (*code, error) { return b.entropyGrad(in, out, kernels.CrossEntropy(i)) }, 0, true}, true
	case kernels.Normalize:
		return rowOp{func() (*code, error) { return b.norm(in, out[0], i.Eps) }, 0, true}, true
	case kernels.LayerNorm:
		return rowOp{func() (*code, error) { return b.norm(in, out[0], i.Eps) }, 0, true}, true
	case kernels.NormalizeGrad:
		return rowOp{func() (*code, error) { return b.normGrad(in, out[0], i.Eps) }, 1, true}, true
	case kernels.LayerNormGrad:
		return rowOp{func() (*code, error) { return b.normGrad(in, out[0], i.Eps) }, 2, true}, true
	case kernels.Gather:
		return rowOp{func() (*code, error) { return b.gather(in) }, -1, false}, true
	case kernels.ScatterAdd:
		return rowOp{func() (*code, error) { return b.scatterAdd(i, in, out) }, -1, false}, true
	}
	return rowOp{}, false
}

// typed is a kernel's name for a dtype.
func typed(name string, d device.Dtype) string {
	return name + map[device.Dtype]string{device.Float32: "_f32", device.Float64: "_f64"}[d]
}

// rowPlan is how blocks share rows out: each row to so many lanes, neighbours in a warp or a whole
// block.
type rowPlan struct {
	rows, n       int
	lanes         int
	threads, size int // of a block; of an element, in bytes
	blocks        int
	memory        int // bytes of dynamic shared memory
}

// maxStatic is as much shared memory as any kernel declares that has a rowPlan.
const maxStatic = 4 << 10

// planRows shares out rows of n elements, about `each` accesses to a lane, in blocks of up to most
// threads.
func planRows(d device.Dtype, rows, n, each, most int) rowPlan {
	accesses := n // as the kernels have it
	if n*d.Size()%16 == 0 {
		accesses = n * d.Size() / 16
	}
	return share(d, rows, n, accesses, each, most)
}

// share is planRows for what takes so many accesses to a row.
func share(d device.Dtype, rows, n, accesses, each, most int) rowPlan {
	p := rowPlan{rows: rows, n: n, size: d.Size(), threads: 128}
	p.lanes = min(power((accesses+min(each, 4)-1)/min(each, 4)), 32)
	if accesses > 32*each {
		p.lanes = min(power((accesses+each-1)/each), most)
		p.threads = p.lanes
	}
	p.blocks = (rows + p.slots() - 1) / p.slots()
	return p
}

// power is the smallest power of two that is n or more.
func power(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// slots is how many rows a block works on at once.
func (p *rowPlan) slots() int { return p.threads / p.lanes }

// keep sets shared memory aside for some arrays of all a block's rows, and says whether it is
// there.
func (b *backend) keep(p *rowPlan, arrays int) bool {
	more := arrays * p.slots() * ((p.n*p.size + 15) &^ 15) // of whole packs
	if p.memory+more > b.gpu.Driver().Info().Shared-maxStatic {
		return false
	}
	p.memory += more
	return true
}

// rowKernel finds a kernel, which has as much shared memory as the plan sets aside.
func (b *backend) rowKernel(module, name string, d device.Dtype, p rowPlan) (cuda.Func, error) {
	return b.planned(module, typed(name, d), p)
}

// planned is rowKernel by a kernel's whole name.
func (b *backend) planned(module, name string, p rowPlan) (cuda.Func, error) {
	shared := 48<<10 - maxStatic // what every kernel may have unasked
	if p.memory > shared {
		shared = b.gpu.Driver().Info().Shared - maxStatic
	}
	return b.kernel(module, name, shared)
}

// launch begins the launch of a row kernel.
func (p rowPlan) launch(c *code, f cuda.Func) *launch {
	return c.call(f, p.blocks, p.threads).dynamic(p.memory)
}

// softmax is Softmax, or its gradient, of some operands of type t.
func (b *backend) softmax(t kernels.Type, axis int, name string, operands []int, log bool) (*code, error) {
	c, n := new(code), t.Shape[axis]
	if t.Shape.Elems() == 0 {
		return c, nil
	}
	outer, inner := t.Shape[:axis].Elems(), t.Shape[axis+1:].Elems()
	var l *launch
	if inner == 1 {
		p := planRows(t.Dtype, outer, n, 8, 1024)
		keep := b.keep(&p, len(operands))
		f, err := b.rowKernel("softmax", name, t.Dtype, p)
		if err != nil {
			return nil, err
		}
		l = p.launch(c, f).out(0)
		for _, k := range operands {
			l.in(k)
		}
		l.u32(outer).u32(n).u32(p.lanes).flag(log).flag(keep)
		return c, nil
	}
	f, err := b.kernel("softmax", typed(name+"_strided", t.Dtype), 0)
	if err != nil {
		return nil, err
	}
	const threads = 256
	width := min(threads/min(power(n), 8), power(inner))
	tiles := (inner + width - 1) / width
	l = c.call(f, outer*tiles, threads).out(0)
	for _, k := range operands {
		l.in(k)
	}
	l.u32(n).u32(inner).u32(width).u32(tiles).flag(log)
	return c, nil
}

// planLogits shares out rows of logits, of which the first columns are classes.
func planLogits(x kernels.Type, i kernels.CrossEntropy) rowPlan {
	n, size := i.Of(x.Shape[1]), x.Dtype.Size()
	accesses := n
	if x.Shape[1]*size%16 == 0 { // as the kernels have it
		accesses = (n*size + 15) / 16
	}
	return share(x.Dtype, x.Shape[0], n, accesses, 8, 1024)
}

// labels adds where the labels of the rows that there are begin.
func (l *launch) labels(of kernels.Type, i kernels.CrossEntropy) *launch {
	return l.arg(inArg(1).plus(uint64(i.First * of.Dtype.Size())))
}

// entropy is CrossEntropy: the losses of the rows, then their mean.
func (b *backend) entropy(in []kernels.Type, i kernels.CrossEntropy) (*code, error) {
	c, x := new(code), in[0]
	if kernels.IsNarrow(x) {
		return b.entropyOfEights(in, i)
	}
	p := planLogits(x, i)
	f, err := b.rowKernel("softmax", "entropy", x.Dtype, p)
	if err != nil {
		return nil, err
	}
	mean, err := b.kernel("softmax", typed("entropy_mean", x.Dtype), 0)
	if err != nil {
		return nil, err
	}
	losses := c.temp(p.rows * p.size)
	p.launch(c, f).temp(losses).in(0).labels(in[1], i).flag(in[1].Dtype == device.Int64).u32(p.rows).u32(p.n).u32(x.Shape[1]).u32(p.lanes).fault()
	c.call(mean, 1, min(max(power(p.rows), 32), 1024)).out(0).temp(losses).u32(p.rows)
	return c, nil
}

func (b *backend) entropyGrad(in, out []kernels.Type, i kernels.CrossEntropy) (*code, error) {
	c, x := new(code), in[0]
	if kernels.IsNarrow(x) || kernels.IsNarrow(out[0]) {
		return b.entropyGradOfEights(in, out[0], i)
	}
	p := planLogits(x, i)
	keep := b.keep(&p, 1)
	f, err := b.rowKernel("softmax", "entropy_grad", x.Dtype, p)
	if err != nil {
		return nil, err
	}
	p.launch(c, f).out(0).in(0).labels(in[1], i).in(2).flag(in[1].Dtype == device.Int64).u32(p.rows).u32(p.n).u32(x.Shape[1]).u32(p.lanes).flag(keep).fault()
	return c, nil
}

// lastRows is the rows along the last axis.
func lastRows(t kernels.Type) (rows, n int) {
	last := len(t.Shape) - 1
	return t.Shape[:last].Elems(), t.Shape[last]
}

// norm is Normalize of x, or LayerNorm of (x, gamma, beta).
func (b *backend) norm(in []kernels.Type, out kernels.Type, eps float64) (*code, error) {
	c, d := new(code), kernels.Widened(in[:1])[0].Dtype // what all is computed in, and rows are kept in
	rows, n := lastRows(in[0])
	if rows*n == 0 {
		return c, nil
	}
	p := planRows(d, rows, n, 8, 1024)
	keep := b.keep(&p, 1)
	f, err := b.rowsKernel("norm", "norm", p, in[0], out)
	if err != nil {
		return nil, err
	}
	l := p.launch(c, f).out(0).in(0)
	if len(in) > 1 {
		l.in(1).in(2)
	} else {
		l.u64(0).u64(0)
	}
	l.u32(rows).u32(n).u32(p.lanes).flag(keep).float(d, eps)
	return c, nil
}

// maxParts bounds how many blocks a gradient of layer norm has, each of which leaves a part of the
// parameters' gradients. It does not depend on the GPU, so that sums do not either.
const maxParts = 1024

// planNormGrad shares out rows, each to as many lanes as can keep it in registers, or to a block:
// Own of norm.cuh is how many elements a lane has.
func planNormGrad(d device.Dtype, rows, n int) rowPlan {
	p := rowPlan{rows: rows, n: n, size: d.Size(), threads: 128}
	own, least := 4, 1
	if n*p.size%16 == 0 {
		own, least = 8, min(power(n*p.size/16), 2) // two lanes' accesses fill a sector
	}
	p.lanes = min(max(power((n+own-1)/own), least), 512)
	if p.lanes > 32 {
		p.threads = p.lanes
	}
	p.blocks = (rows + p.slots() - 1) / p.slots()
	return p
}

// normGrad is NormalizeGrad of (x, gy), or LayerNormGrad of (x, gamma, gy).
func (b *backend) normGrad(in []kernels.Type, out kernels.Type, eps float64) (*code, error) {
	c, d := new(code), in[0].Dtype
	rows, n := lastRows(in[0])
	if n == 0 {
		return c, nil
	}
	affine := len(in) == 3
	p := planNormGrad(d, rows, n)
	if affine && p.slots() > 1 { // the groups' sums, before they are the block's
		p.memory = 2 * p.slots() * n * p.size
	}
	gy := in[len(in)-1]
	f, err := b.rowsKernel("norm", "norm_grad", p, in[0], gy, out)
	if err != nil {
		return nil, err
	}
	if affine {
		p.blocks = min(p.blocks, maxParts, max(64, 4<<20/n))
	}
	l, part := p.launch(c, f).out(0).in(0), 0
	if affine {
		part = c.temp(2 * n * p.size * p.blocks)
		l.in(1).in(2).temp(part)
	} else {
		l.u64(0).in(1).u64(0)
	}
	l.u32(rows).u32(n).u32(p.lanes).float(d, eps)
	if !affine {
		return c, nil
	}
	params, err := b.normGradParams(in[0], gy, out)
	if err != nil {
		return nil, err
	}
	c.call(params, (2*n+31)/32, 256).out(1).out(2).temp(part).u32(p.blocks).u32(n)
	return c, nil
}
