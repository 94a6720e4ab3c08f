package gpu

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

const (
	tensorCores = 80 // the compute capability from which on GPUs multiply bfloat16
	narrowUnit  = 8  // elements of a copy that are made together: 16 bytes
)

// narrows says whether products of a dtype are those of factors rounded to bfloat16.
func (b *backend) narrows(d device.Dtype) bool {
	return b.cfg.Precision == BF16 && d == device.Float32 && b.gpu.Driver().Info().Arch >= tensorCores
}

// narrowed is products of copies in bfloat16, which lie as the operands do, where these are not
// that themselves. The copies are made before; one of an operand is there for all codes of the
// sequence that read the same memory before it is written.
func (b *backend) narrowed(c *code, p *products) (*products, error) {
	q := *p
	q.narrow = true
	for _, s := range []*side{&q.a, &q.b} {
		if s.narrow {
			continue
		}
		from, n := s.region(p.dims)
		at, err := b.copied(c, from, n)
		if err != nil {
			return nil, err
		}
		s.at = at.plus((s.at.value - from.value) / 2)
	}
	return &q, nil
}

// copied is where a code finds n elements in bfloat16.
func (b *backend) copied(c *code, from arg, n int) (arg, error) {
	f, err := b.kernel("bf16", "narrow", 0)
	if err != nil {
		return arg{}, err
	}
	bytes := 2 * n
	if from.kind == argScratch { // nobody else sees that; what is written there next is copied to the same place
		at, ok := c.narrow[from.value]
		if !ok || at.bytes < bytes {
			at = scratchCopy{c.temp(bytes), bytes}
			if c.narrow == nil {
				c.narrow = map[uint64]scratchCopy{}
			}
			c.narrow[from.value] = at
		}
		c.copy(f, scratchArg(at.off), from, n)
		return scratchArg(at.off), nil
	}
	c.copies++
	to := arg{argCopy, c.copies - 1, 0}
	c.copy(f, to, from, n).makes = bytes
	return to, nil
}

// scratchCopy is where in the scratch a copy of something there lies.
type scratchCopy struct{ off, bytes int }

// copy launches the rounding of n elements.
func (c *code) copy(narrow cuda.Func, to, from arg, n int) *launch {
	const threads = 256
	each := threads * narrowUnit
	return c.call(narrow, min((n+each-1)/each, 1<<16), threads).arg(to).arg(from).u64(uint64(n))
}

// region is what a side of a batch is copied of, in elements: the whole operand where the side is
// most of it, as others may be the rest.
func (s *side) region(dims []int) (from arg, n int) {
	end := (s.rows-1)*s.row + (s.cols-1)*s.col + 1
	for k, d := range dims {
		end += (d - 1) * s.batch[k]
	}
	const size, unit = 4, 4 * narrowUnit
	from = s.at
	if whole := s.whole.bytes / size; whole > 0 && end >= whole/2 {
		from.value = s.whole.from
		return from, whole
	}
	from.value -= from.value % unit
	return from, end + int(s.at.value-from.value)/size
}

// byTensorCores is byKernel of what is narrow.
func (b *backend) byTensorCores(c *code, p *products, count int) error {
	const tile, threads = 128, 256
	lda, turnA, _ := p.a.stored()
	ldb, turnB, _ := p.b.stored()
	name := "product_"
	for _, turned := range []bool{turnA, turnB} {
		name += map[bool]string{false: "r", true: "t"}[turned]
	}
	if p.thin {
		name += "_thin"
	}
	f, err := b.kernel("bf16", name, 0)
	if err != nil {
		return err
	}
	d, sa, sb := padded(p.dims), padded(p.a.batch), padded(p.b.batch)
	l := c.call(f, p.tiles(tile), threads)
	l.grid[2] = uint32(min(count*p.splits, 65535))
	l.arg(p.to).arg(p.a.at).arg(p.b.at)
	for _, n := range []int{p.m, p.n, p.k, p.inner, p.splits, count * p.splits, max(d[1], 1), max(d[2], 1)} {
		l.u32(n)
	}
	l.flag(p.a.eights(lda)).flag(p.b.eights(ldb))
	for _, n := range []int{lda, ldb, sa[0], sa[1], sa[2], sb[0], sb[1], sb[2]} {
		l.u64(uint64(n))
	}
	return nil
}

// eights says whether rows of a copy begin at multiples of 16 bytes.
func (s *side) eights(ld int) bool {
	ok := s.at.value%16 == 0 && ld%narrowUnit == 0
	for _, st := range s.batch {
		ok = ok && st%narrowUnit == 0
	}
	return ok
}
