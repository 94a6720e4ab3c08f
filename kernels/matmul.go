package kernels

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/vec"
)

// matMulBody multiplies operands that are read by views, nil for those that are contiguous.
func matMulBody[T vec.Float](i MatMul, in []Type, views []*View, out Type, g gemmer) body {
	p := planProducts[T](i, in, views, out.Shape, g)
	return func(outs, ins [][]byte) error {
		r := p.begin(ins)
		p.rows(&r, device.As[T](outs[0]), 0, p.count)
		r.end()
		return nil
	}
}

// productThen is a [MatMulThen] made ready: products whose rows go, block after block, through a map while they are in the cache.
type productThen[T vec.Float] struct {
	*products[T]
	then   *mapPlan[T]
	block  int // rows
	blocks int
	into   int // the result in which the product may be computed; −1: none
}

const (
	// blockBytes is how much of a product a map finds in the cache.
	blockBytes = 1 << 20
	// blockRows is how few rows make a product slower than what the cache saves: the library arranges all of b anew for each block.
	blockRows = 256
)

func matMulThenBody[T vec.Float](i MatMulThen, in []Type, views []*View, g gemmer) body {
	p := planProductThen[T](i, in, views, g)
	p.cut(blockBytes, blockRows)
	return p.run
}

func planProductThen[T vec.Float](i MatMulThen, in []Type, views []*View, g gemmer) *productThen[T] {
	p := &productThen[T]{products: planProducts[T](i.MatMul, in, views, i.Then.Shape, g), into: -1}
	rest, seen := append([]Type{{in[0].Dtype, i.Then.Shape}}, in[2:]...), []*View{nil}
	if views != nil {
		seen = append(seen, views[2:]...)
	}
	p.then = planMap[T](i.Then, rest, seen, true)
	for k, o := range i.Then.Outs {
		if o.Fold == nil && (o.Reg == 0 || p.into < 0 && i.Then.overwrites(rest, k, 0)) {
			p.into = k
		}
	}
	return p
}

// cut makes blocks of so many bytes, but not of fewer rows.
func (p *productThen[T]) cut(bytes, rows int) {
	p.block = max(p.count, 1)
	if row := p.n * device.DtypeOf[T]().Size(); p.count*row > 2*bytes {
		p.block = max(rows, bytes/row)
		if p.block > p.m {
			p.block -= p.block % p.m
		}
	}
	p.blocks = (p.count + p.block - 1) / p.block
}

func (p *productThen[T]) run(outs, ins [][]byte) error {
	r := p.begin(ins)
	m := p.then.begin(outs, ins[1:], max(p.blocks, 1)) // in b's place stands the product
	var c []T
	if p.into >= 0 && !p.shares(outs[p.into], ins[2:]) {
		c = device.As[T](outs[p.into])
	}
	for k := range p.blocks {
		p.rowsThen(&r, m, c, k)
	}
	m.end()
	r.end()
	return nil
}

// shares says that a result lies over an operand of the map, which the product would overwrite before it is read.
func (p *productThen[T]) shares(out []byte, ins [][]byte) bool {
	for _, x := range ins {
		if len(x) > 0 && len(out) > 0 && &x[0] == &out[0] {
			return true
		}
	}
	return false
}

// rowsThen computes a block; the product lies in c, or in scratch where that is nil.
func (p *productThen[T]) rowsThen(r *reading[T], m *mapRun[T], c []T, k int) {
	from := k * p.block
	to := min(from+p.block, p.count)
	if c != nil {
		c = c[from*p.n : to*p.n]
	} else {
		s := takeScratch((to - from) * p.n * 8)
		defer s.free()
		c = elems[T](s)[:(to-from)*p.n]
	}
	p.rows(r, c, from, to)
	m.rows(k, from, to, c)
}
