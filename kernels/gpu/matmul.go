package gpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// side is an operand of a batch of products: its matrices op(x), and where they lie, in elements.
type side struct {
	at         arg
	whole      span  // the operand, where that is known
	narrow     bool  // its elements are bfloat16
	batch      []int // strides
	rows, cols int
	row, col   int // strides
}

// span is bytes of an operand.
type span struct {
	from  uint64
	bytes int
}

// products are c = op(a)·op(b), many of them, of one dtype. Each result follows the one before,
// without gaps.
type products struct {
	dtype   device.Dtype // of the results
	narrow  bool         // the sides are bfloat16
	thin    bool         // the results are stored as bfloat16, and a bias of the library's lies as that
	to      arg
	a, b    side
	dims    []int // the batch; the sides have a stride for each
	m, n, k int
	// The terms of the sums come in pieces of so many, which lie some elements from each other.
	// Splits add up so many pieces each, to a result of their own. The zero value: there is one
	// piece.
	inner, per, splits int
	pieceA, pieceB     int
}

// lowerProduct makes the launches of a product, which reads operands through views, nil for those
// that are as they are.
func (b *backend) lowerProduct(i kernels.MatMul, in []kernels.Type, views []*kernels.View, out []kernels.Type) (*code, error) {
	c := &code{}
	p, err := b.productOf(c, i, in, views, out[0].Shape, outArg(0))
	if err != nil {
		return nil, err
	}
	p.thin = kernels.IsNarrow(out[0])
	return c, b.multiply(c, p)
}

// productOf says how the operands of an instruction lie, having some laid out first where no kernel
// reads them as they are.
func (b *backend) productOf(c *code, i kernels.MatMul, in []kernels.Type, views []*kernels.View, out device.Shape, to arg) (*products, error) {
	batch := out[:len(out)-2]
	p := &products{dtype: kernels.Widened(in[:1])[0].Dtype, to: to}
	sides, seen := [2]*side{&p.a, &p.b}, [2]*kernels.View{}
	for k, trans := range []bool{i.TransA, i.TransB} {
		seen[k] = kernels.ViewOf(in, views, k)
		*sides[k] = sideOf(inArg(k), in[k], seen[k], trans, batch)
		if !b.readable(p.dtype, sides[k]) {
			if err := b.layOut(c, sides[k], in[k], seen[k], seen[k].Shape, trans, batch); err != nil {
				return nil, err
			}
		}
	}
	p.gather(batch)
	if len(p.dims) <= 3 {
		return p, nil
	}
	for k, trans := range []bool{i.TransA, i.TransB} { // every matrix where it would be without broadcasting
		whole := append(slices.Clone(batch), seen[k].Shape[len(seen[k].Shape)-2:]...)
		if err := b.layOut(c, sides[k], in[k], seen[k], whole, trans, batch); err != nil {
			return nil, err
		}
	}
	p.gather(batch)
	return p, nil
}

func sideOf(at arg, t kernels.Type, v *kernels.View, trans bool, batch device.Shape) side {
	r := len(v.Shape) - 2
	s := side{
		at: at.plus(uint64(v.Offset * t.Dtype.Size())), whole: span{at.value, t.Bytes()}, narrow: kernels.IsNarrow(t),
		batch: stride.Stretch(v.Strides, v.Shape[:r], batch), rows: v.Shape[r], cols: v.Shape[r+1], row: v.Strides[r], col: v.Strides[r+1],
	}
	if trans {
		s.rows, s.cols, s.row, s.col = s.cols, s.rows, s.col, s.row
	}
	return s
}

// layOut has a side copied into scratch, as a contiguous tensor of a shape that it broadcasts to.
func (b *backend) layOut(c *code, s *side, in kernels.Type, v *kernels.View, shape device.Shape, trans bool, batch device.Shape) error {
	to := kernels.Type{Dtype: in.Dtype, Shape: shape}
	if err := shape.Check(); err != nil {
		return fmt.Errorf("%w: %w", kernels.ErrOperands, err)
	}
	move := kernels.Viewed{Of: kernels.BroadcastTo{Shape: shape}, In: []*kernels.View{v}}
	copied, err := b.generate(stored(move, []kernels.Type{in}, []kernels.Type{to}), []kernels.Type{in})
	if err != nil {
		return err
	}
	at := scratchArg(c.temp(to.Bytes()))
	c.inline(copied, []arg{at}, []arg{{kind: s.at.kind, index: s.at.index}})
	*s = sideOf(at, to, kernels.Whole(shape), trans, batch)
	return nil
}

// gather chooses the batch. Matrices of a that meet the same b become one tall matrix where they
// lie so.
func (p *products) gather(batch device.Shape) {
	p.m, p.n, p.k = p.a.rows, p.b.cols, p.a.cols
	axes := append(slices.Clone(batch), p.m)
	dims, st := stride.Collapse(axes, stride.RowMajor(axes), append(slices.Clone(p.a.batch), p.a.row), append(slices.Clone(p.b.batch), 0))
	tall, last := p.a, len(dims)-1
	if last >= 0 {
		tall.rows, tall.row = dims[last], st[1][last]
	}
	_, _, was := p.a.stored()
	if _, _, is := tall.stored(); last >= 0 && st[2][last] == 0 && tall.rows >= p.m && (is || !was) {
		p.m, p.a = tall.rows, tall
		dims, st[1], st[2] = dims[:last], st[1][:last], st[2][:last]
	} else {
		dims, st = stride.Collapse(batch, stride.RowMajor(batch), p.a.batch, p.b.batch)
	}
	p.dims, p.a.batch, p.b.batch = dims, st[1], st[2]
}

// multiply makes the launches of products.
func (b *backend) multiply(c *code, p *products) error {
	const most = math.MaxInt32 - 256
	count := device.Shape(p.dims).Elems()
	if max(p.m, p.n, p.k, count) > most {
		return fmt.Errorf("%w: a product of more than %d rows, columns, terms or matrices", kernels.ErrOperands, most)
	}
	if p.m == 0 || p.n == 0 || count == 0 {
		return nil
	}
	if b.cfg.Precision >= BF16 && p.dtype == device.Float32 && !b.narrows(p.dtype) {
		b.tally.add(workBF16, byFloat32, whyNoCores, nil)
	}
	done, why, err := b.byQuantized(c, p, epilogue{})
	b.tallyQuantized(done, why, err)
	if done || err != nil && why == "" {
		return err
	}
	if b.narrows(p.dtype) && p.k > 0 {
		if p, err = b.narrowed(c, p); err != nil {
			return err
		}
	}
	if done, err := b.byLibrary(c, p, epilogue{}); done || err != nil {
		return err
	}
	if p.thin && !p.narrow {
		return b.thinned(c, p, count)
	}
	return b.byOwn(c, p, count)
}

// byOwn is multiply with kernels of our own.
func (b *backend) byOwn(c *code, p *products, count int) error {
	if p.splits == 0 {
		p.inner, p.per, p.splits = max(p.k, 1), 1, 1
		if n := p.worth(count); n > 1 {
			return b.split(c, p, count, n)
		}
	}
	return b.byKernel(c, p, count)
}

// thinned is byOwn for results that are rounded after they were computed: of float32's kernels.
func (b *backend) thinned(c *code, p *products, count int) error {
	wide, n := *p, count*p.m*p.n
	wide.thin, wide.to = false, scratchArg(c.temp(n*p.dtype.Size()))
	if err := b.byOwn(c, &wide, count); err != nil {
		return err
	}
	t := kernels.Type{Dtype: p.dtype, Shape: device.Shape{n}}
	return b.convert(c, t, device.BFloat16, p.to, wide.to)
}

// tiles is how many blocks make a result with tiles of n×n.
func (p *products) tiles(n int) int { return (p.m + n - 1) / n * ((p.n + n - 1) / n) }

const (
	smallTile   = 32
	fewBlocks   = 128  // fewer leave a GPU idle
	longSum     = 4096 // terms that may be added up by several blocks
	splitPieces = 512  // terms of each, at least
)

// worth is how many blocks should share the terms of one result. It depends on extents alone, as
// sums do on it.
func (p *products) worth(count int) int {
	blocks := p.tiles(smallTile) * count
	if p.k < longSum || blocks >= fewBlocks {
		return 1
	}
	return min(fewBlocks/blocks, p.k/splitPieces)
}

// split has parts of the sums computed beside each other, and adds them up.
func (b *backend) split(c *code, p *products, count, n int) error {
	q := *p
	const unit = 32
	q.inner = ((p.k+n-1)/n + unit - 1) / unit * unit
	q.per, q.splits = 1, (p.k+q.inner-1)/q.inner
	q.pieceA, q.pieceB = q.inner*p.a.col, q.inner*p.b.row
	return b.addUp(c, &q, count)
}

// addUp computes all splits and adds them up.
func (b *backend) addUp(c *code, p *products, count int) error {
	if p.splits == 1 {
		return b.byKernel(c, p, count)
	}
	parts := kernels.Type{Dtype: p.dtype, Shape: device.Shape{count, p.splits, p.m * p.n}}
	if err := parts.Shape.Check(); err != nil {
		return fmt.Errorf("%w: %w", kernels.ErrOperands, err)
	}
	var sum kernels.Instr = kernels.Reduce{Fn: kernels.Sum, Axes: []int{1}}
	if p.thin { // what is added up is not
		p.thin, sum = false, kernels.Narrow{Of: sum, Outs: []bool{true}}
	}
	added, err := b.generate(sum, []kernels.Type{parts})
	if err != nil {
		return err
	}
	to := p.to
	p.to = scratchArg(c.temp(parts.Bytes()))
	if err := b.byKernel(c, p, count); err != nil {
		return err
	}
	c.inline(added, []arg{to}, []arg{p.to})
	return nil
}

// byKernel is multiply with a kernel of our own.
func (b *backend) byKernel(c *code, p *products, count int) error {
	if p.narrow {
		return b.byTensorCores(c, p, count)
	}
	name, tile, threads := "gemm_small_", smallTile, 64
	large := 128
	if p.dtype == device.Float64 {
		large = 64
	}
	if p.m > large/2 && p.n > large/2 && p.tiles(large)*count >= fewBlocks/2 {
		name, tile, threads = "gemm_large_", large, 256
	}
	f, err := b.kernel("gemm", name+suffix(p.dtype), 0)
	if err != nil {
		return err
	}
	d, sa, sb := padded(p.dims), padded(p.a.batch), padded(p.b.batch)
	l := c.call(f, p.tiles(tile), threads)
	l.grid[2] = uint32(min(count*p.splits, 65535))
	l.arg(p.to).arg(p.a.at).arg(p.b.at)
	for _, n := range []int{p.m, p.n, p.k, p.inner, p.per, p.splits, count * p.splits, max(d[1], 1), max(d[2], 1), p.n} {
		l.u32(n)
	}
	for _, n := range []int{p.m * p.n, p.a.row, p.a.col, p.pieceA, sa[0], sa[1], sa[2], p.b.row, p.b.col, p.pieceB, sb[0], sb[1], sb[2]} {
		l.u64(uint64(n))
	}
	return nil
}

// padded puts up to three numbers at the end of three.
func padded(s []int) (three [3]int) {
	copy(three[3-len(s):], s)
	return three
}

// suffix is how the names of kernels for a dtype end.
func suffix(d device.Dtype) string {
	if d == device.Float64 {
		return "f64"
	}
	return "f32"
}

// readable says whether the way an operand lies can be read by what multiplies here.
func (b *backend) readable(d device.Dtype, s *side) bool {
	if b.library() == nil && !b.narrows(d) {
		return true
	}
	_, _, ok := s.stored()
	return ok
}

// stored says how a library sees the matrices: the distance of their rows or, turned, of their
// columns. Not ok where neither is contiguous.
func (s *side) stored() (ld int, turned, ok bool) {
	if ld, ok = leading(s.rows, s.cols, s.row, s.col); ok {
		return ld, false, true
	}
	ld, ok = leading(s.cols, s.rows, s.col, s.row)
	return ld, true, ok
}

// leading is the distance of contiguous rows that do not overlap.
func leading(rows, cols, row, col int) (ld int, ok bool) {
	if rows <= 1 {
		row = max(cols, 1)
	}
	return row, (cols <= 1 || col == 1) && row >= max(cols, 1)
}
