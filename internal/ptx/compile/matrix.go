package compile

import (
	"errors"
	"math"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// mma compiles mma.sync.m16n8kK.row.col.f32.T.T.f32 on bf16, f16 and tf32. A product is exact and
// so is a sum of them, in float64, of which then is cut off what float32 has no digits for, as a
// GPU does, which may do so in between, too.
func (c *compiler) mma(s *syntax.Statement) (simt.Exec, error) {
	k := map[string]int{"m16n8k4": 4, "m16n8k8": 8, "m16n8k16": 16}[s.OneOf("m16n8k4", "m16n8k8", "m16n8k16")]
	ts := s.Types()
	f32 := syntax.Type{Kind: 'f', Size: 4}
	if k == 0 || len(ts) != 4 || ts[0] != f32 || ts[3] != f32 || ts[1] != ts[2] || !s.Has("row") || !s.Has("col") || len(s.Args) != 4 {
		return nil, errUnknown
	}
	t := ts[1]
	in := syntax.Type{Kind: 'b', Size: 4}
	each := 4 / t.Size // elements of a register
	if each == 1 && (t.Kind != 't' || k == 16) || each == 2 && k == 4 || t.Pair || t.Size == 8 {
		return nil, errUnknown
	}
	d, err := c.fragment(s.Args[0], 4, in, true)
	if err != nil {
		return nil, err
	}
	a, err := c.fragment(s.Args[1], k/2/each, in, false)
	if err != nil {
		return nil, err
	}
	b, err := c.fragment(s.Args[2], k/4/each, in, false)
	if err != nil {
		return nil, err
	}
	sum, err := c.fragment(s.Args[3], 4, f32, false)
	if err != nil {
		return nil, err
	}
	p := &tile{d: d, a: a, b: b, sum: sum, k: k, each: each, of: t.Kind}
	return func(w *simt.Warp, m uint32) {
		if m != simt.Full {
			w.FailAt(w.Live, 0, "a product of matrices by a part of a warp")
			return
		}
		if meter := w.Meter(); meter != nil {
			meter.Products++
		}
		p.execute(w)
	}, nil
}

// tile is an mma instruction: its registers, k, how many elements one has, and the kind of them.
type tile struct {
	d, a, b, sum []int
	k, each      int
	of           byte
}

// parts gives the elements of a register; where it has one, the second is nothing.
func (p *tile) parts(v uint64) (first, second float64) {
	switch p.of {
	case 't': // the last 13 bits do not count
		return float64(math.Float32frombits(uint32(v) &^ 0x1fff)), 0
	case 'g':
		return float64(math.Float32frombits(uint32(v) << 16)), float64(math.Float32frombits(uint32(v) &^ 0xffff))
	}
	return fromHalf(uint16(v)), fromHalf(uint16(v >> 16))
}

//go:norace
//go:nocheckptr
func (p *tile) execute(w *simt.Warp) {
	var x [16][16]float64
	var y [8][16]float64 // by columns
	put := func(line *[16]float64, at int, v uint64) {
		first, second := p.parts(v)
		line[at] = first
		if p.each == 2 {
			line[at+1] = second
		}
	}
	for l := range 32 {
		group, in := l>>2, l&3
		for r, reg := range p.a {
			put(&x[group+8*(r&1)], in*p.each+(r>>1)*4*p.each, w.Regs[reg][l])
		}
		for r, reg := range p.b {
			put(&y[group], in*p.each+r*4*p.each, w.Regs[reg][l])
		}
	}
	for l := range 32 {
		r0, r1 := &x[l>>2], &x[l>>2+8]
		c0, c1 := &y[2*(l&3)], &y[2*(l&3)+1]
		var out [4]float64
		for i, reg := range p.sum {
			out[i] = float64(simt.At[float32](&w.Regs[reg], l))
		}
		for j := range p.k {
			out[0] += r0[j] * c0[j]
			out[1] += r0[j] * c1[j]
			out[2] += r1[j] * c0[j]
			out[3] += r1[j] * c1[j]
		}
		for i, reg := range p.d {
			w.Regs[reg][l] = uint64(math.Float32bits(directed(out[i], 'z')))
		}
	}
}

// fragment gives the registers of a part of a matrix.
func (c *compiler) fragment(o syntax.Operand, n int, t syntax.Type, out bool) ([]int, error) {
	if len(elements(o)) != n {
		return nil, errors.New("a part of a matrix has other registers")
	}
	regs := make([]int, n)
	for k, e := range elements(o) {
		var err error
		if out {
			regs[k], err = c.out(e)
		} else {
			regs[k], err = c.in(e, t)
		}
		if err != nil {
			return nil, err
		}
	}
	return regs, nil
}

// ldmatrix compiles the load of matrices of 8 by 8 of 16 bits; 8 lanes each tell where a matrix has
// its rows.
func (c *compiler) ldmatrix(s *syntax.Statement) (simt.Exec, error) {
	n := map[string]int{"x1": 1, "x2": 2, "x4": 4}[s.OneOf("x1", "x2", "x4")]
	if n == 0 || !s.Has("m8n8") || !s.Has("b16") || len(s.Args) != 2 {
		return nil, errUnknown
	}
	d, err := c.fragment(s.Args[0], n, syntax.Type{}, true)
	if err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.Args[1], 8)
	if err != nil {
		return nil, err
	}
	if a.Space != simt.Shared && a.Space != simt.Generic {
		return nil, errUnknown
	}
	trans := s.Has("trans")
	return func(w *simt.Warp, m uint32) {
		if m != simt.Full {
			w.FailAt(w.Live, 0, "a load of matrices by a part of a warp")
			return
		}
		if meter := w.Meter(); meter != nil {
			meter.Count(&a, &w.Regs[a.Reg], simt.Full>>(32-8*n))
		}
		loadMatrices(w, &a, d, trans)
	}, nil
}

//go:norace
//go:nocheckptr
func loadMatrices(w *simt.Warp, a *simt.Access, d []int, trans bool) {
	var rows [32]*[8]uint16
	for l := range 8 * len(d) {
		p := w.LaneBytes(a, l)
		if p == nil {
			return
		}
		rows[l] = (*[8]uint16)(p)
	}
	for k, reg := range d {
		for l := range 32 {
			lo, hi := rows[8*k+l>>2][2*(l&3)], rows[8*k+l>>2][2*(l&3)+1]
			if trans {
				lo, hi = rows[8*k+2*(l&3)][l>>2], rows[8*k+2*(l&3)+1][l>>2]
			}
			w.Regs[reg][l] = uint64(hi)<<16 | uint64(lo)
		}
	}
}
