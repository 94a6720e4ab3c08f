package gpu

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// library is the driver's library for products; nil where it has none.
func (b *backend) library() cuda.Multiplier {
	m, _ := b.gpu.Driver().(cuda.Multiplier)
	return m
}

// mostCalls is how many calls of a library may stand for one instruction: it knows batches along
// one axis only.
const mostCalls = 64

// byLibrary is multiply with the driver's library. It is not done where that cannot, which is
// counted.
func (b *backend) byLibrary(c *code, p *products, e epilogue) (done bool, err error) {
	if min(p.m, p.n, p.k) == 0 || slices.Contains(p.dims, 0) {
		return false, nil
	}
	work := workProduct
	if e.kind != cuda.None || e.adds {
		work = workEpilogue
	}
	why, err := b.callLibrary(c, p, e)
	switch {
	case why != "":
		b.tally.add(work, byKernels, why, err)
		return false, nil
	case err == nil:
		b.tally.add(work, byLibrary, "", nil)
	}
	return err == nil, err
}

// callLibrary makes the launches of byLibrary, or says why kernels are to make the products.
func (b *backend) callLibrary(c *code, p *products, e epilogue) (why string, err error) {
	lib := b.library()
	switch {
	case lib == nil:
		return whyNoLibrary, nil
	case p.thin && !p.narrow:
		return whyWidth, nil
	case p.splits != 0:
		return whyPieces, nil
	}
	s, calls, ok := b.specOf(p, e)
	if !ok {
		return whyLies, nil
	}
	f, err := lib.Product(s)
	if err != nil {
		return refusal(err), err
	}
	if f.Workspace() > 0 && b.lean {
		return whyNoMemory, fmt.Errorf("%w: %s has a workspace of %d bytes", device.ErrMemory, f.Name(), f.Workspace())
	}
	work := c.temp(f.Workspace())
	c.workspace = c.workspace || f.Workspace() > 0
	last := max(len(p.dims)-1, 0)
	for at := range calls {
		a, bb := p.matrices(at, last)
		off, in := uint64(at*max(s.Batch, 1)*p.m*p.n*s.Out.Size()), s.In.Size()
		d := p.to.plus(off)
		sum := d
		if e.adds {
			sum = e.sum.plus(off)
		}
		c.call(f, 1, 1).arg(p.a.at.plus(uint64(a * in))).arg(p.b.at.plus(uint64(bb * in))).arg(sum).arg(d).arg(e.bias).arg(arg{}).arg(scratchArg(work))
	}
	return "", nil
}

// matrices is where the n-th of some axes of the batch begin, in elements.
func (p *products) matrices(n, axes int) (a, b int) {
	for k := axes - 1; k >= 0; k-- {
		i := n % p.dims[k]
		n /= p.dims[k]
		a += i * p.a.batch[k]
		b += i * p.b.batch[k]
	}
	return a, b
}

// specOf is the product that a library is to be called for, so many times; not ok where the
// operands lie as none reads them.
func (b *backend) specOf(p *products, e epilogue) (s cuda.ProductSpec, calls int, ok bool) {
	lda, turnA, okA := p.a.stored()
	ldb, turnB, okB := p.b.stored()
	calls, last := 1, len(p.dims)-1
	for _, d := range p.dims[:max(last, 0)] {
		calls *= d
	}
	if !okA || !okB || calls > mostCalls {
		return s, calls, false
	}
	s = cuda.ProductSpec{
		M: p.m, N: p.n, K: p.k, TransA: turnA, TransB: turnB, LDA: lda, LDB: ldb, LDD: p.n, LDC: p.n, StrideD: p.m * p.n, StrideC: p.m * p.n,
		Accumulate: e.adds, Epilogue: e.kind, Align: 16,
	}
	if last >= 0 {
		s.Batch, s.StrideA, s.StrideB = p.dims[last], p.a.batch[last], p.b.batch[last]
	}
	switch {
	case p.narrow:
		s.In = cuda.BF16
		if p.thin {
			s.Out = cuda.BF16
		}
	case p.dtype == device.Float64:
		s.In, s.Out = cuda.F64, cuda.F64
	case b.cfg.Precision == TF32:
		s.Arithmetic = cuda.TF32
	}
	factors, results := func(n int) uint64 { return uint64(n * s.In.Size()) }, func(n int) uint64 { return uint64(n * s.Out.Size()) }
	offsets := []uint64{p.a.at.value, p.b.at.value, p.to.value, e.bias.value, e.sum.value}
	for k := range p.dims {
		offsets = append(offsets, factors(p.a.batch[k]), factors(p.b.batch[k]), results(p.m*p.n))
	}
	for _, off := range offsets {
		for off%uint64(s.Align) != 0 {
			s.Align /= 2
		}
	}
	return s, calls, s.Align >= s.Out.Size() // factors may lie at a half of a float32
}
