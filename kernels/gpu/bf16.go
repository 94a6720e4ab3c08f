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
	return b.cfg.Precision >= BF16 && d == device.Float32 && b.gpu.Driver().Info().Arch >= tensorCores
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
	narrow, err := b.kernel("bf16", "narrow", 0)
	if err != nil {
		return arg{}, err
	}
	const threads, each = 256, 256 * narrowUnit
	to, l := c.copy(narrow, min((n+each-1)/each, 1<<16), threads, from, form{bytes: 2 * n, reads: 4 * n})
	l.u64(uint64(n))
	return to, nil
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

// form is how a copy differs from what it is of.
type form struct {
	bytes, reads int  // of the copy, and of what is copied
	rows, ld     int  // of what is quantized; 0: it is bfloat16
	across       bool // likewise: along the rows of what it is of, or across them
}

// copy begins a launch that copies, whose first arguments are the copy and what it is of, and says
// where the copy is.
func (c *code) copy(fn cuda.Func, blocks, threads int, from arg, f form) (to arg, l *launch) {
	if from.kind != argScratch {
		to = arg{kind: argCopy, index: c.copies}
		c.copies++
		l = c.call(fn, blocks, threads)
		l.makes = f
		return to, l.arg(to).arg(from)
	}
	// Nobody else sees that; what is written there next is copied to the same place.
	key := scratchKey{at: from.value}
	if f.rows > 0 { // of bfloat16 a larger copy has what a smaller one has
		key.form = f
	}
	at, ok := c.narrow[key]
	if !ok || at.bytes < f.bytes {
		at = scratchCopy{c.temp(f.bytes), f.bytes}
		if c.narrow == nil {
			c.narrow = map[scratchKey]scratchCopy{}
		}
		c.narrow[key] = at
	}
	to = scratchArg(at.off)
	return to, c.call(fn, blocks, threads).arg(to).arg(from)
}

// scratchKey is what in the scratch is copied, and how.
type scratchKey struct {
	form
	at uint64
}

// scratchCopy is where in the scratch a copy of something there lies.
type scratchCopy struct{ off, bytes int }

// copies are the operands that a sequence's launches read in another form. A copy serves until what
// it is of is written.
type copies struct {
	all   []copied
	fresh []int // those that are as what they are of
}

// copied is a copy of some bytes of a buffer, which launches from first to last write and read.
type copied struct {
	form
	of          spot
	first, last int
	at          int // bytes into the scratch
}

// of finds the copy of memory that a launch is about to make, or else notes it.
func (c *copies) of(from spot, f form, launch int) (id int, known bool) {
	for _, id := range c.fresh {
		if c.all[id].of == from && c.all[id].form == f {
			return id, true
		}
	}
	id = len(c.all)
	c.all = append(c.all, copied{form: f, of: from, first: launch, last: launch})
	c.fresh = append(c.fresh, id)
	return id, false
}

// wrote forgets copies of what has been written.
func (c *copies) wrote(s spot) {
	kept := c.fresh[:0]
	for _, id := range c.fresh {
		if of := c.all[id].of; of.buf != s.buf || of.off >= s.off+s.n || s.off >= of.off+of.n {
			kept = append(kept, id)
		}
	}
	c.fresh = kept
}

// arrange chooses where copies lie from some byte on: where no other lies that is needed at the
// same time. It says where they end.
func (c *copies) arrange(from int) (end int) {
	end = from
	for k := range c.all {
		x := &c.all[k]
		x.at = from
		for moved := true; moved; {
			moved = false
			for _, y := range c.all[:k] {
				if y.last >= x.first && x.at < y.after() && y.at < x.after() {
					x.at, moved = y.after(), true
				}
			}
		}
		end = max(end, x.after())
	}
	return end
}

// after is where the next can begin.
func (c *copied) after() int { return c.at + (c.bytes+255)&^255 }

// place gives the copies their place in the scratch.
func (s *builder) place() {
	if len(s.copies.all) == 0 {
		return
	}
	s.scratch = s.copies.arrange(s.scratch)
	for k, p := range s.patches {
		if p.buf <= -2 {
			s.patches[k] = patch{p.off, -1, p.add + uintptr(s.copies.all[-2-p.buf].at), p.tiles}
		}
	}
}
