package compile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// groupProduct is a wgmma instruction m64nNk16 of bfloat16 with sums of float32. Of the 64 rows a
// warp has 16.
type groupProduct struct {
	n            int
	d            []int
	a            []int // of a left factor in registers; else its descriptor is the register descA
	descA, descB int
	turnA, turnB bool // rows are as long as a factor is wide, and not as the sums are
	signA, signB float32
	adds         func(w *simt.Warp) (uint32, bool)
}

// wgmma compiles the products of four warps, and what waits for them.
func (c *compiler) wgmma(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Op) < 4 || s.Op[1] == "mma_async" && len(s.Op) != 8 || !s.Has("aligned") || !s.Has("sync") {
		return nil, errUnknown
	}
	var do func(w *simt.Warp)
	switch s.Op[1] {
	case "fence":
		do = (*simt.Warp).Fence
	case "commit_group":
		do = (*simt.Warp).CommitProducts
	case "wait_group":
		if len(s.Args) != 1 || s.Args[0].Kind != syntax.OperandImm || s.Args[0].Imm > 7 {
			return nil, errors.New("expected a number of groups, up to 7")
		}
		n := int(s.Args[0].Imm)
		do = func(w *simt.Warp) { w.CompleteProducts(n) }
	case "mma_async":
		p, err := c.groupProduct(s)
		if err != nil {
			return nil, err
		}
		do = func(w *simt.Warp) {
			if meter := w.Meter(); meter != nil {
				meter.Products++
				meter.Operands += p.operands()
			}
			w.Multiply(p)
		}
	default:
		return nil, errUnknown
	}
	return func(w *simt.Warp, m uint32) {
		if m != simt.Full {
			w.FailAt(w.Live, 0, "a product of matrices by a part of a warp")
			return
		}
		do(w)
	}, nil
}

func (c *compiler) groupProduct(s *syntax.Statement) (*groupProduct, error) {
	p := new(groupProduct)
	text, ok := strings.CutPrefix(s.Op[4], "m64n")
	text, is := strings.CutSuffix(text, "k16")
	n, err := strconv.Atoi(text)
	if !ok || !is || err != nil || n < 8 || n > 256 || n%8 != 0 || strings.Join(s.Op[5:], ".") != "f32.bf16.bf16" || len(s.Args) < 7 {
		return nil, errUnknown
	}
	p.n = n
	f32, b32, b64 := syntax.Type{Kind: 'f', Size: 4}, syntax.Type{Kind: 'b', Size: 4}, syntax.Type{Kind: 'b', Size: 8}
	if _, err = c.fragment(s.Args[0], n/2, f32, false); err != nil { // it may go on from them
		return nil, err
	}
	if p.d, err = c.fragment(s.Args[0], n/2, f32, true); err != nil {
		return nil, err
	}
	turns := 2
	if s.Args[1].Kind == syntax.OperandVec {
		turns = 1
		p.a, err = c.fragment(s.Args[1], 4, b32, false)
	} else {
		p.descA, err = c.in(s.Args[1], b64)
	}
	if err != nil {
		return nil, err
	}
	if p.descB, err = c.in(s.Args[2], b64); err != nil {
		return nil, err
	}
	if p.adds, err = c.condition(s.Args[3]); err != nil {
		return nil, err
	}
	var imm [4]int64
	if len(s.Args) != 6+turns {
		return nil, errUnknown
	}
	for k, o := range s.Args[4:] {
		if o.Kind != syntax.OperandImm {
			return nil, errUnknown
		}
		imm[k] = int64(o.Imm)
	}
	for _, v := range imm[:2] {
		if v != 1 && v != -1 {
			return nil, errors.New("a factor is multiplied by 1 or -1")
		}
	}
	p.signA, p.signB = float32(imm[0]), float32(imm[1])
	p.turnA, p.turnB = turns == 2 && imm[2] == 1, imm[1+turns] == 1
	return p, nil
}

// condition gives a predicate, or a number in its place, of all lanes: not ok where they differ.
func (c *compiler) condition(o syntax.Operand) (func(w *simt.Warp) (uint32, bool), error) {
	if o.Kind == syntax.OperandImm {
		return func(*simt.Warp) (uint32, bool) { return uint32(o.Imm), true }, nil
	}
	p, flip, err := c.predicate(o)
	return func(w *simt.Warp) (uint32, bool) {
		v := w.Preds[p] ^ flip
		return v, v == 0 || v == simt.Full
	}, err
}

// operands is how many bytes a warp's part reads of shared memory: of what all four read, a
// quarter.
func (p *groupProduct) operands() int64 {
	n := p.n * 16 * 2 / 4
	if p.a == nil {
		n += 16 * 16 * 2
	}
	return int64(n)
}

// Registers is [simt.Product]'s.
func (p *groupProduct) Registers(w *simt.Warp) (d []int, adds bool) {
	v, ok := p.adds(w)
	if !ok {
		w.FailAt(w.Live, 0, "lanes do not agree whether a product is added")
	}
	return p.d, v != 0
}

// Begin is [simt.Product]'s.
func (p *groupProduct) Begin(w *simt.Warp) func(w *simt.Warp, sums [][32]float32) {
	var x [16][16]float32
	var a *matrixAt
	if p.a == nil {
		if a = describe(w, p.descA, p.turnA); a == nil {
			return nil
		}
	} else {
		if !w.Unmarked(p.a) {
			return nil
		}
		for r, reg := range p.a {
			for l := range 32 {
				for e := range 2 {
					x[l>>2+8*(r&1)][2*(l&3)+e+8*(r>>1)] = brain(uint16(w.Regs[reg][l] >> (16 * e)))
				}
			}
		}
	}
	b := describe(w, p.descB, p.turnB)
	if b == nil {
		return nil
	}
	return func(w *simt.Warp, sums [][32]float32) {
		if a != nil && !a.fetch(w, 16*w.Rank(), 16, func(r, k int, v float32) { x[r][k] = v }) {
			return
		}
		y := make([][16]float32, p.n)
		if !b.fetch(w, 0, p.n, func(r, k int, v float32) { y[r][k] = v }) {
			return
		}
		p.multiply(sums, &x, y)
	}
}

//go:norace
//go:nocheckptr
func (p *groupProduct) multiply(sums [][32]float32, x *[16][16]float32, y [][16]float32) {
	sign := float64(p.signA * p.signB)
	for e := range sums {
		for l := range 32 {
			row, col := &x[l>>2+8*(e>>1&1)], &y[e>>2*8+2*(l&3)+e&1]
			v := float64(0)
			for k := range 16 {
				v += float64(row[k]) * float64(col[k])
			}
			sums[e][l] = directed(float64(sums[e][l])+sign*v, 'z')
		}
	}
}

func brain(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// matrixAt is where a factor lies in shared memory, as a descriptor says.
type matrixAt struct {
	at, leading, stride, wide, mask uint64 // wide: bytes of a row of a piece
	turned                          bool
}

// describe reads a descriptor; nil after a fault.
func describe(w *simt.Warp, reg int, turned bool) *matrixAt {
	v := w.Regs[reg][0]
	for l := range 32 {
		if w.Regs[reg][l] != v {
			w.Fail(l, 0, "lanes do not agree on the descriptor of a matrix")
			return nil
		}
	}
	m := &matrixAt{at: v & 0x3fff << 4, leading: v >> 16 & 0x3fff << 4, stride: v >> 32 & 0x3fff << 4, turned: turned}
	swizzle := v >> 62
	m.wide, m.mask = [4]uint64{16, 128, 64, 32}[swizzle], [4]uint64{0, 7, 3, 1}[swizzle]
	if base := v >> 49 & 7; base != 0 {
		w.Fail(0, 0, fmt.Sprintf("a matrix that begins %d rows into its pattern is not understood", base))
		return nil
	}
	return m
}

// fetch gives rows of a factor, of the 16 columns that are summed over.
func (m *matrixAt) fetch(w *simt.Warp, first, rows int, to func(row, k int, v float32)) bool {
	for r := 0; r < rows; r++ {
		for k := 0; k < 16; k++ {
			eight := w.Shared(simt.Swizzled(m.eight(first+r, k), m.mask))
			if eight == nil {
				return false
			}
			for e := range 8 {
				v := brain(uint16(eight[2*e]) | uint16(eight[2*e+1])<<8)
				if m.turned {
					to(r+e, k, v)
				} else {
					to(r, k+e, v)
				}
			}
			if !m.turned {
				k += 7
			}
		}
		if m.turned {
			r += 7
		}
	}
	return true
}

// eight is where 8 elements lie that follow each other, before pieces of a row change places.
func (m *matrixAt) eight(row, k int) uint64 {
	r, c, each := uint64(row), uint64(k), m.wide/2
	switch {
	case !m.turned && m.mask == 0:
		return m.at + r/8*m.stride + r%8*16 + c/8*m.leading
	case !m.turned:
		return m.at + r/8*m.stride + r%8*m.wide + c*2
	case m.mask == 0:
		return m.at + r/8*m.stride + c%8*16 + c/8*m.leading
	}
	return m.at + r/each*m.leading + r%each*2 + c%8*m.wide + c/8*m.stride
}

// elect compiles the choice of one lane: the first.
func (c *compiler) elect(s *syntax.Statement, o *simt.Op) (simt.Exec, error) {
	if len(s.Args) != 2 || s.Args[0].Second == "" {
		return nil, errUnknown
	}
	d, err := c.out(syntax.Operand{Name: s.Args[0].Name})
	if err != nil {
		return nil, err
	}
	p, _, err := c.predicate(syntax.Operand{Name: s.Args[0].Second})
	if err != nil {
		return nil, err
	}
	return func(w *simt.Warp, m uint32) {
		first := m & -m
		var l uint64
		for first>>l != 1 {
			l++
		}
		w.Each(d, m, l)
		w.Preds[p] = w.Preds[p]&^m | first
	}, c.maskOf(s, o)
}

// setmaxnreg compiles a warp's wish for registers, of which the machine has as many as it likes.
func (c *compiler) setmaxnreg(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Args) != 1 || s.Args[0].Kind != syntax.OperandImm || s.Args[0].Imm%8 != 0 || s.Args[0].Imm < 24 || s.Args[0].Imm > 256 {
		return nil, errors.New("expected a number of registers from 24 to 256, a multiple of 8")
	}
	if s.OneOf("inc", "dec") == "" {
		return nil, errUnknown
	}
	return func(*simt.Warp, uint32) {}, nil
}
