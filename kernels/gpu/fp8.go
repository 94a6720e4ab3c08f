package gpu

import (
	"cmp"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// quantizedUnit is what sizes are multiples of, and addresses in bytes.
const quantizedUnit = 16

// worthQuantizing says whether one product takes less time with factors in e4m3: by how many
// multiplications it is, where the configuration says so. Otherwise it is by an estimate for an
// H100, which nobody has measured: 0.7 of 10¹⁵ operations in a second become 1.1, each number of a
// factor costs a picosecond to quantize, and two launches 5 µs.
func (b *backend) worthQuantizing(p *products) bool {
	m, n, k := float64(p.m), float64(p.n), float64(p.k)
	if b.cfg.FP8From > 0 {
		return m*n*k >= float64(b.cfg.FP8From)
	}
	const saved, each, launches = 2/0.7e15 - 2/1.1e15, 1e-12, 5e-6
	return m*n*k*saved > (m+n)*k*each+launches
}

// unquantized is why products are not of factors in e4m3; empty where they can be, as far as the
// library has them.
func (b *backend) unquantized(p *products, e epilogue) string {
	switch {
	case !b.scales():
		return whyNoScales
	case b.library() == nil:
		return whyNoLibrary
	case p.splits != 0:
		return whyPieces
	case !b.worthQuantizing(p):
		return whySmall
	case (p.m|p.n|p.k)%quantizedUnit != 0:
		return whyOdd
	case device.Shape(p.dims).Elems() > mostCalls || !p.a.by16() || !p.b.by16() || (p.to.value|e.bias.value)%quantizedUnit != 0:
		return whyLies
	}
	return ""
}

// scales says whether the GPU multiplies e4m3 with scales.
func (b *backend) scales() bool { return b.gpu.Driver().Info().Arch/10 == 9 }

// by16 says whether all rows of a side, as they lie, begin at multiples of 16 bytes.
func (s *side) by16() bool {
	ld, _, ok := s.stored()
	all := int(s.at.value) | ld*s.elem()
	for _, stride := range s.batch {
		all |= stride * s.elem()
	}
	return ok && all%quantizedUnit == 0
}

// elem is the size of an element in memory.
func (s *side) elem() int {
	if s.narrow {
		return device.BFloat16.Size()
	}
	return device.Float32.Size()
}

// byQuantized has the library multiply copies of the factors in e4m3, where the precision is FP8.
// why is the reason that it does not, and err what the library said then: whyEpilogue where the
// product alone can be had so.
func (b *backend) byQuantized(c *code, p *products, e epilogue) (done bool, why string, err error) {
	if !b.quantizes(p) {
		return false, "", nil
	}
	s, f, why, err := b.quantizedWith(p, e)
	if why != "" || err != nil {
		return false, why, err
	}
	return true, "", b.callQuantized(c, p, s, e, f)
}

// quantizes says whether the precision wants factors of products in e4m3, where they can be that.
func (b *backend) quantizes(p *products) bool {
	return b.cfg.Precision == FP8 && b.narrows(p.dtype) && min(p.m, p.n, p.k) > 0 && !slices.Contains(p.dims, 0)
}

// quantizedWith is what the library is to be called for, or why it cannot be.
func (b *backend) quantizedWith(p *products, e epilogue) (s cuda.ProductSpec, f cuda.Product, why string, err error) {
	if why := b.unquantized(p, e); why != "" {
		return s, nil, why, nil
	}
	s = cuda.ProductSpec{
		M: p.m, N: p.n, K: p.k, TransB: true, In: cuda.E4M3, Epilogue: e.kind, ScaleA: quantizedBytes(p.m, p.k), ScaleB: quantizedBytes(p.n, p.k),
	}
	if p.thin {
		s.Out = cuda.BF16
	}
	f, why, err = b.quantizedProduct(s)
	if why == "" && e.adds {
		why = whySum
	}
	if why != "" && e.kind != cuda.None {
		s.Epilogue = cuda.None
		if _, alone, other := b.quantizedProduct(s); alone == "" && other == nil {
			why = whyEpilogue
		}
	}
	return s, f, why, err
}

// quantizedProduct asks the library, and says why its product cannot be had. An error without a
// reason is one that others would meet, too.
func (b *backend) quantizedProduct(s cuda.ProductSpec) (f cuda.Product, why string, err error) {
	if s.Epilogue.HasBias() && s.Out != cuda.BF16 {
		return nil, whyLacks, nil
	}
	f, err = b.library().Product(s)
	if err == nil && f.Workspace() > 0 && b.lean {
		return nil, whyNoMemory, nil
	}
	return f, refusal(err), err
}

// tallyQuantized counts what byQuantized did, where it was asked.
func (b *backend) tallyQuantized(done bool, why string, err error) {
	switch {
	case done:
		b.tally.add(workFP8, byLibrary, "", nil)
	case why != "":
		b.tally.add(workFP8, byBFloat16, why, err)
	}
}

// callQuantized makes the launches of byQuantized.
func (b *backend) callQuantized(c *code, p *products, s cuda.ProductSpec, e epilogue, f cuda.Product) error {
	work := c.temp(f.Workspace())
	c.workspace = c.workspace || f.Workspace() > 0
	for n := range device.Shape(p.dims).Elems() {
		atA, atB := p.matrices(n, len(p.dims))
		_, turnA, _ := p.a.stored()
		_, turnB, _ := p.b.stored()
		qa, err := b.quantize(c, &p.a, atA, p.m, p.k, turnA)
		if err != nil {
			return err
		}
		qb, err := b.quantize(c, &p.b, atB, p.n, p.k, !turnB)
		if err != nil {
			return err
		}
		d := p.to.plus(uint64(n * p.m * p.n * s.Out.Size()))
		c.call(f, 1, 1).arg(qa).arg(qb).arg(d).arg(d).arg(e.bias).arg(arg{}).arg(scratchArg(work))
	}
	return nil
}

// quantizedBytes is the size of so many rows of e4m3. Their scales follow.
func quantizedBytes(rows, terms int) int { return (rows*terms + 255) &^ 255 }

// quantize is where a code finds a matrix of a side in e4m3, by rows of so many terms; across:
// whose elements lie apart. One copy is there for all codes of the sequence that read the same
// memory in the same way before it is written.
func (b *backend) quantize(c *code, s *side, offset, rows, terms int, across bool) (arg, error) {
	ld, _, _ := s.stored()
	f := form{rows: rows, ld: ld, across: across, reads: ((rows-1)*ld + terms) * s.elem()}
	name, blocks := "along", (rows+15)/16
	if across {
		name, blocks, f.reads = "across", (rows+63)/64, ((terms-1)*ld+rows)*s.elem()
	}
	t := kernels.Type{Dtype: device.Float32}
	if s.narrow {
		t.Dtype = device.BFloat16
	}
	fn, err := b.kernel("fp8", name+lying(t), 0)
	if err != nil {
		return arg{}, err
	}
	data := quantizedBytes(rows, terms)
	f.bytes = data + device.Float32.Size()*cuda.Scales(rows, terms)
	to, l := c.copy(fn, blocks, 256, s.at.plus(uint64(offset*s.elem())), f)
	l.grid[1] = uint32(min((terms+cuda.ScaledTerms-1)/cuda.ScaledTerms, 1<<16-1))
	l.arg(to.plus(uint64(data))).u64(uint64(ld)).u32(rows).u32(terms)
	return to, nil
}

var _ kernels.Noter = (*backend)(nil)

// Note is [kernels.Noter]'s: it says which products are of factors in e4m3, and why others are not.
func (b *backend) Note(i kernels.Instr, in []kernels.Type) string {
	if n, is := i.(kernels.Narrow); is {
		i = n.Of
	}
	out, err := i.Infer(kernels.Widened(in))
	if err != nil || !isProduct(i) {
		return ""
	}
	v, _ := i.(kernels.Viewed)
	m, _ := kernels.Unviewed(i).(kernels.MatMul)
	shape := out[0].Shape
	if then, is := kernels.Unviewed(i).(kernels.MatMulThen); is {
		m, shape = then.MatMul, then.Then.Shape
	}
	p, err := b.productOf(&code{}, m, in, v.In, shape, outArg(0))
	if err != nil || !b.quantizes(p) {
		return ""
	}
	if _, _, why, err := b.quantizedWith(p, epilogue{}); why != "" || err != nil {
		return "in bfloat16, as " + cmp.Or(why, whyFailed)
	}
	return "in e4m3"
}
