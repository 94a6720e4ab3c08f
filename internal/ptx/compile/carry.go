package compile

import (
	"math/bits"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// carried compiles add, sub and mad that set (.cc) or use (addc, subc, madc) the carry.
func (c *compiler) carried(s *syntax.Statement, t syntax.Type) (simt.Exec, error) {
	op := s.Op[0]
	use := op[len(op)-1] == 'c'
	if use {
		op = op[:len(op)-1]
	}
	n := operandsOf(op)
	d, x, err := c.regs(s, t, n)
	if err != nil || t.Size < 4 || t.Float() {
		return nil, errUnknown
	}
	put, hi, less := s.Has("cc"), s.Has("hi"), op == "sub"
	a, b, e := x[0], x[1], x[2]
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			y, z := extend(w.Regs[a][l], t), extend(w.Regs[b][l], t)
			if n == 3 {
				y, z = product(y, z, t, hi), extend(w.Regs[e][l], t)
			}
			in := uint64(0)
			if use {
				in = uint64(w.Carry >> l & 1)
			}
			v, out := sum(y, z, in, t.Size, less)
			w.Regs[d][l] = v
			if put {
				w.Carry = w.Carry&^(1<<l) | uint32(out)<<l
			}
		}
	}, nil
}

// product is the low or the high half of one.
func product(y, z uint64, t syntax.Type, hi bool) uint64 {
	switch {
	case !hi:
		return y * z
	case t.Size == 4:
		return y * z >> 32
	}
	h, _ := bits.Mul64(y, z)
	if t.Signed() {
		h -= y&uint64(int64(z)>>63) + z&uint64(int64(y)>>63)
	}
	return h
}

func sum(y, z, in uint64, size int, less bool) (v, out uint64) {
	if size == 4 {
		y, z = y&(1<<32-1), z&(1<<32-1)
		if less {
			v = y - z - in
		} else {
			v = y + z + in
		}
		return v & (1<<32 - 1), v >> 32 & 1
	}
	if less {
		return bits.Sub64(y, z, in)
	}
	return bits.Add64(y, z, in)
}
