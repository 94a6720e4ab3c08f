package gpu

import (
	"errors"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// library is the driver's library for products; nil where it has none.
func (b *backend) library() cuda.Multiplier {
	m, _ := b.gpu.Driver().(cuda.Multiplier)
	return m
}

// mostCalls is how many calls of a library may stand for one instruction: it knows batches along one axis only.
const mostCalls = 64

// byLibrary is multiply with the driver's library. It is not done where that cannot.
func (b *backend) byLibrary(c *code, p *products, e epilogue) (done bool, err error) {
	lib := b.library()
	if lib == nil || p.thin && !p.narrow || p.splits != 0 || min(p.m, p.n, p.k) == 0 || slices.Contains(p.dims, 0) {
		return false, nil
	}
	lda, turnA, okA := p.a.stored()
	ldb, turnB, okB := p.b.stored()
	calls, last := 1, len(p.dims)-1
	for _, d := range p.dims[:max(last, 0)] {
		calls *= d
	}
	if !okA || !okB || calls > mostCalls {
		return false, nil
	}
	s := cuda.ProductSpec{
		M: p.m, N: p.n, K: p.k, TransA: turnA, TransB: turnB, LDA: lda, LDB: ldb, LDD: p.n, LDC: p.n, StrideD: p.m * p.n, StrideC: p.m * p.n,
		Epilogue: e.kind, Align: 16,
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
	offsets := []uint64{p.a.at.value, p.b.at.value, p.to.value, e.bias.value}
	for k := range p.dims {
		offsets = append(offsets, factors(p.a.batch[k]), factors(p.b.batch[k]), results(p.m*p.n))
	}
	for _, off := range offsets {
		for off%uint64(s.Align) != 0 {
			s.Align /= 2
		}
	}
	if s.Align < s.Out.Size() { // factors that lie at a half of a float32
		return false, nil
	}
	f, err := lib.Product(s)
	if errors.Is(err, cuda.ErrNoProduct) || errors.Is(err, cuda.ErrNoLibrary) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	work := c.temp(f.Workspace())
	for at := range calls {
		a, bb, rest := 0, 0, at
		for k := last - 1; k >= 0; k-- {
			i := rest % p.dims[k]
			rest /= p.dims[k]
			a += i * p.a.batch[k]
			bb += i * p.b.batch[k]
		}
		d := p.to.plus(results(at * max(s.Batch, 1) * p.m * p.n))
		c.call(f, 1, 1).add(p.a.at.plus(factors(a))).add(p.b.at.plus(factors(bb))).add(d).add(d).add(e.bias).add(arg{}).add(scratchArg(work))
	}
	return true, nil
}
