package compile

import (
	"math"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// atomic compiles atom and red.
func (c *compiler) atomic(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	args := s.Args
	d, err := -1, error(nil)
	if s.Op[0] == "atom" {
		if len(args) < 2 {
			return nil, errUnknown
		}
		if d, err = c.out(args[0]); err != nil {
			return nil, err
		}
		args = args[1:]
	}
	if len(args) < 2 || len(args) > 3 || len(ts) != 1 || s.Has("noftz") && ts[0].Size > 4 {
		return nil, errUnknown
	}
	t := ts[0]
	a, err := c.addressOf(s, args[0], 1)
	if err != nil {
		return nil, err
	}
	if a.Space == simt.Local || a.Space == simt.Parameter {
		return nil, errUnknown
	}
	a.Write, a.Sync = true, true
	b, err := c.in(args[1], t)
	if err != nil {
		return nil, err
	}
	e := b
	op := s.OneOf("add", "exch", "cas", "inc", "dec", "min", "max", "and", "or", "xor")
	if (op == "cas") != (len(args) == 3) {
		return nil, errUnknown
	}
	if op == "cas" {
		if e, err = c.in(args[2], t); err != nil {
			return nil, err
		}
	}
	f := update(op, t)
	if f == nil {
		return nil, errUnknown
	}
	var run simt.Exec
	switch t.Size {
	case 2:
		run = updates[uint16](a, d, b, e, t, f)
	case 4:
		run = updates[uint32](a, d, b, e, t, f)
	case 8:
		run = updates[uint64](a, d, b, e, t, f)
	default:
		return nil, errUnknown
	}
	return c.counted(run, a), nil
}

func updates[T simt.Integer](a simt.Access, d, b, e int, t syntax.Type, f func(old, b, e uint64) uint64) simt.Exec {
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			p := (*T)(w.LaneBytes(&a, l))
			if p == nil {
				return
			}
			old := extend(uint64(*p), t)
			*p = T(f(old, extend(w.Regs[b][l], t), extend(w.Regs[e][l], t)))
			if d >= 0 {
				w.Regs[d][l] = old
			}
		}
	}
}

// update gives what an atomic operation writes.
func update(op string, t syntax.Type) func(old, b, e uint64) uint64 {
	switch op {
	case "exch":
		return func(_, b, _ uint64) uint64 { return b }
	case "cas":
		return func(old, b, e uint64) uint64 {
			if old == b {
				return e
			}
			return old
		}
	case "inc":
		return func(old, b, _ uint64) uint64 {
			if old >= b {
				return 0
			}
			return old + 1
		}
	case "dec":
		return func(old, b, _ uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		}
	case "add":
		switch {
		case t == syntax.Type{Kind: 'f', Size: 4}:
			return func(old, b, _ uint64) uint64 {
				return uint64(math.Float32bits(math.Float32frombits(uint32(old)) + math.Float32frombits(uint32(b))))
			}
		case t == syntax.Type{Kind: 'f', Size: 8}:
			return func(old, b, _ uint64) uint64 {
				return math.Float64bits(math.Float64frombits(old) + math.Float64frombits(b))
			}
		case t.Pair || t.Float():
			return halfAdd(t)
		}
	}
	if t.Float() {
		return nil
	}
	f := fold(op, t)
	if f == nil {
		return nil
	}
	return func(old, b, _ uint64) uint64 { return f(old, b) }
}

func halfAdd(t syntax.Type) func(old, b, e uint64) uint64 {
	one := t
	one.Size, one.Pair = 2, false
	read, write := reader(one), writer(one, 'n')
	if read == nil {
		return nil
	}
	add := func(a, b uint64) uint64 { return write(odd(read(a), read(b))) }
	return func(old, b, _ uint64) uint64 {
		v := add(old, b)
		if t.Pair {
			v |= add(old>>16, b>>16) << 16
		}
		return v
	}
}
