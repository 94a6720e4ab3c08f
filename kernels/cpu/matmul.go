package cpu

import (
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/elementwise"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// matMulBody multiplies operands that are read by views, nil for those that are contiguous.
func matMulBody[T vec.Float](i kernels.MatMul, in []kernels.Type, views []*kernels.View, out kernels.Type, g blas.Gemmer) parallel.Body {
	p := planProducts[T](i, in, views, out.Shape, g)
	idle := &sync.Pool{New: func() any { return new(batchRun[T]) }}
	return func(outs, ins [][]byte) error {
		c := device.As[T](outs[0])
		r := p.begin(ins)
		if p.count <= p.grain {
			p.rows(&r, c, 0, p.count)
		} else {
			b := idle.Get().(*batchRun[T])
			b.p, b.r, b.c = p, r, c
			parallel.For(p.count, p.grain, b)
			*b = batchRun[T]{}
			idle.Put(b)
		}
		r.end()
		return nil
	}
}

// batchRun is one run of many products.
type batchRun[T vec.Float] struct {
	p *products[T]
	r reading[T]
	c []T
}

// Piece implements [parallel.Work], by rows.
func (b *batchRun[T]) Piece(from, to int) { b.p.rows(&b.r, b.c[from*b.p.N:to*b.p.N], from, to) }

// productThen is a [MatMulThen] made ready. Of many small products each block of some goes through
// the map while it is in the cache. A large one, which the library itself cuts for several threads,
// is whole before the map begins, in parts; so is a block of one that needs scratch.
type productThen[T vec.Float] struct {
	*products[T]
	then  *elementwise.Plan[T]
	block int // rows
	part  int // rows of a block that the map does at once
	into  int // the result in which the product may be computed; −1: none
	idle  sync.Pool
}

const (
	// partBytes is how much of a product the map of one part reads.
	partBytes = 512 << 10
	// blockBytes is how much scratch one product may take. The library arranges b anew for each
	// block, so that small blocks cost more than the cache saves.
	blockBytes = 4 << 20
	blockRows  = 512
	// wholeBytes is up to how many bytes a product is one block.
	wholeBytes = 8 << 20
)

func matMulThenBody[T vec.Float](i kernels.MatMulThen, in []kernels.Type, views []*kernels.View, g blas.Gemmer) parallel.Body {
	p := planProductThen[T](i, in, views, g)
	row := max(p.N, 1) * in[0].Dtype.Size()
	block := p.count
	if p.count*row > wholeBytes {
		block = max(blockRows, blockBytes/row)
	}
	if p.M < p.count {
		block = p.grain
	}
	p.inBlocks(block, partBytes/row)
	return p.compute
}

func planProductThen[T vec.Float](i kernels.MatMulThen, in []kernels.Type, views []*kernels.View, g blas.Gemmer) *productThen[T] {
	p := &productThen[T]{products: planProducts[T](i.MatMul, in, views, i.Then.Shape, g), into: -1}
	rest, seen := append([]kernels.Type{{Dtype: in[0].Dtype, Shape: i.Then.Shape}}, in[2:]...), []*kernels.View{nil}
	if views != nil {
		seen = append(seen, views[2:]...)
	}
	p.then = elementwise.NewPlan[T](i.Then, rest, seen, true)
	for k, o := range i.Then.Outs {
		if o.Fold == nil && (o.Reg == 0 || p.into < 0 && kernels.Overwrites(i.Then, rest, k, 0)) {
			p.into = k
		}
	}
	p.idle.New = func() any { return &thenRun[T]{p: p} }
	return p
}

// inBlocks sets the rows of blocks, and of the parts of a block where there is one product.
func (p *productThen[T]) inBlocks(block, part int) {
	p.block, p.part = max(block, 1), max(block, 1)
	if p.M == p.count {
		p.part = min(max(part, 1), p.block)
	}
}

func (p *productThen[T]) compute(outs, ins [][]byte) error {
	x := p.idle.Get().(*thenRun[T])
	x.r = p.begin(ins)
	blocks, each := (p.count+p.block-1)/p.block, (p.block+p.part-1)/p.part
	x.m = p.then.Begin(outs, ins[1:], max(blocks*each, 1)) // in b's place stands the product
	if p.into >= 0 && !shares(outs[p.into], ins[2:]) {
		x.c = device.As[T](outs[p.into])
	}
	if p.M < p.count {
		parallel.For(p.count, p.block, x)
	} else {
		for from := 0; from < p.count; from += p.block {
			x.whole(from, min(from+p.block, p.count), from/p.block*each)
		}
	}
	x.m.End()
	x.r.end()
	*x = thenRun[T]{p: p}
	p.idle.Put(x)
	return nil
}

// shares says that a result lies over an operand of the map, which the product would overwrite
// before it is read.
func shares(out []byte, ins [][]byte) bool {
	for _, x := range ins {
		if len(x) > 0 && len(out) > 0 && &x[0] == &out[0] {
			return true
		}
	}
	return false
}

// thenRun is one run of a productThen.
type thenRun[T vec.Float] struct {
	p *productThen[T]
	r reading[T]
	m *elementwise.Run[T]
	c []T // where all of the product lies; nil: in scratch
	// The block whose map is cut into parts: its first row and part, and its product.
	from, first int
	now         []T
}

// product computes rows [from, to) of the product. The scratch, if it is not nil, is the caller's
// to free.
func (x *thenRun[T]) product(from, to int) (c []T, s *scratch.Memory) {
	n := x.p.N
	if c = x.c; c != nil {
		c = c[from*n : to*n]
	} else {
		s = scratch.Take((to - from) * n * device.DtypeOf[T]().Size())
		c = scratch.Elems[T](s)[:(to-from)*n]
	}
	x.p.rows(&x.r, c, from, to)
	return c, s
}

// whole does a block of one product, whose first part is given.
func (x *thenRun[T]) whole(from, to, first int) {
	c, s := x.product(from, to)
	x.from, x.first, x.now = from, first, c
	parallel.For(to-from, x.p.part, x)
	if s != nil {
		s.Free()
	}
}

// Piece implements [parallel.Work], by rows: of all small products, or of the product that is
// there.
func (x *thenRun[T]) Piece(from, to int) {
	if x.now != nil {
		x.m.Rows(x.first+from/x.p.part, x.from+from, x.from+to, x.now[from*x.p.N:to*x.p.N])
		return
	}
	c, s := x.product(from, to)
	x.m.Rows(from/x.p.block, from, to, c)
	if s != nil {
		s.Free()
	}
}
