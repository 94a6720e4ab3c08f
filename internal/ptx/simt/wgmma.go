package simt

import "fmt"

// Product is a wgmma instruction that was made ready: a warp's part, 16 rows.
type Product interface {
	// Registers are those of the sums, and whether the sums go on from what these hold.
	Registers(w *Warp) (d []int, adds bool)
	// Begin reads what lies in registers and gives what is to be done, with the sums, by register
	// and lane, when it is waited for: reading shared memory.
	Begin(w *Warp) func(w *Warp, sums [][32]float32)
}

// sums are accumulators that products under way add to. Meanwhile registers hold marks in their
// place: a mark that is moved stays one, and anything else that is made of one is not a number.
type sums struct {
	id    uint32
	v     [][32]float32
	users int // products under way
}

type product struct {
	to    *sums
	group int
	do    func(w *Warp, sums [][32]float32)
	pc    int32
}

const (
	markOf  = 0xACC0_0000_0000_0000
	markNaN = 0x7fe0_0000 // and the number of the register
)

func (s *sums) mark(k int) uint64 { return markOf | uint64(s.id&0xfffff)<<32 | markNaN | uint64(k) }

// marked says whether a register has a mark.
func marked(v uint64) bool { return v>>52 == markOf>>52 && v>>16&0xffff == markNaN>>16 }

// Fence is wgmma.fence: registers that were written before may be read by products behind it.
func (w *Warp) Fence() { w.fenced = true }

// Multiply begins a product. It is done when it is waited for, and no earlier, so that who does not
// wait sees it.
func (w *Warp) Multiply(p Product) {
	if !w.fenced {
		w.FailAt(w.Live, 0, "a product with no wgmma.fence before, since registers were last waited for")
		return
	}
	d, adds := p.Registers(w)
	do := p.Begin(w)
	if w.b.fault != nil {
		return
	}
	to := w.sumsOf(d, adds)
	if to == nil {
		return
	}
	to.users++
	w.products = append(w.products, product{to, w.productGroup, do, w.pc})
}

// sumsOf gives the accumulators in some registers, and marks these.
//
//go:norace
//go:nocheckptr
func (w *Warp) sumsOf(d []int, adds bool) *sums {
	first := w.Regs[d[0]][0]
	to := &sums{v: make([][32]float32, len(d))}
	w.sumsMade++
	to.id = w.sumsMade
	if adds && marked(first) {
		for _, p := range w.products {
			if p.to.mark(0) == first {
				to = p.to
			}
		}
	}
	for k, r := range d {
		for l := range 32 {
			switch v := w.Regs[r][l]; {
			case !adds:
			case to.users > 0 && v != to.mark(k), to.users == 0 && marked(v):
				w.Fail(l, 0, "a product goes on from sums of which a part is another product's")
				return nil
			case to.users == 0:
				to.v[k][l] = At[float32](&w.Regs[r], l)
			}
			w.Regs[r][l] = to.mark(k)
		}
	}
	return to
}

// Unmarked fails where registers are sums of products that were not waited for.
func (w *Warp) Unmarked(regs []int) bool {
	for _, r := range regs {
		for l := range 32 {
			if marked(w.Regs[r][l]) {
				w.Fail(l, 0, "a product reads sums of another that was not waited for")
				return false
			}
		}
	}
	return true
}

// CommitProducts is wgmma.commit_group.
func (w *Warp) CommitProducts() { w.productGroup++ }

// CompleteProducts does those of all groups but the last n, and gives registers what they made.
func (w *Warp) CompleteProducts(n int) {
	w.fenced = false
	done := 0
	pc := w.pc
	for _, p := range w.products {
		if p.group >= w.productGroup-n {
			break
		}
		w.pc = p.pc // faults are the product's
		p.do(w, p.to.v)
		if w.b.fault != nil {
			return
		}
		p.to.users--
		done++
	}
	w.pc = pc
	var made []*sums
	for _, p := range w.products[:done] {
		if p.to.users == 0 && p.to.v != nil {
			made = append(made, p.to)
		}
	}
	w.products = append(w.products[:0], w.products[done:]...)
	if len(made) > 0 {
		w.unmark(made)
	}
}

// unmark puts sums wherever their marks are.
//
//go:norace
//go:nocheckptr
func (w *Warp) unmark(made []*sums) {
	byID := map[uint64]*sums{}
	for _, s := range made {
		byID[s.mark(0)>>32] = s
	}
	for r := range w.Regs {
		reg := &w.Regs[r]
		if !marked(reg[0]) {
			continue
		}
		s := byID[reg[0]>>32]
		if s == nil {
			continue
		}
		k := int(reg[0] & 0xffff)
		for l := range 32 {
			if reg[l] == s.mark(k) {
				Set(reg, l, s.v[k][l])
				reg[l] &= 1<<32 - 1
			}
		}
	}
}

// Shared reads 16 bytes of shared memory, as products of matrices do.
func (w *Warp) Shared(at uint64) *[16]byte {
	a := Access{Space: Shared, Size: 16, All: 16}
	p := w.shared(&a, 0, at)
	if p == nil {
		return nil
	}
	if !w.b.fencedFor(at) {
		w.Fail(0, at, fmt.Sprintf("a product reads shared memory at %d, whose writer made no fence.proxy.async", at))
		return nil
	}
	return (*[16]byte)(p)
}

// fencedFor says whether what threads wrote at 16 bytes is there for products, too.
func (b *block) fencedFor(at uint64) bool {
	for k := int(at) >> b.shift; k <= int(at+15)>>b.shift; k++ {
		if c := &b.cells[k]; c.writer >= 0 && c.written >= b.first && b.warps[c.writer>>5].proxies == c.proxies {
			return false
		}
	}
	return true
}

// FenceProxy is fence.proxy.async: what the warp wrote to shared memory before is there for
// products behind it.
func (w *Warp) FenceProxy() { w.proxies++ }

// Swizzled is where a byte of a matrix lies, of those whose pieces a mask moves.
func Swizzled(at, mask uint64) uint64 { return swizzled(at, mask) }

// Rank is the number of the warp among the four that make a product together.
func (w *Warp) Rank() int { return w.id % 4 }
