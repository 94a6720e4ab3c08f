package ptx

import (
	"math"
)

// atomic compiles atom and red.
func (c *compiler) atomic(s *stmt) (exec, error) {
	ts := s.types()
	args := s.args
	d, err := -1, error(nil)
	if s.op[0] == "atom" {
		if len(args) < 2 {
			return nil, errUnknown
		}
		if d, err = c.out(args[0]); err != nil {
			return nil, err
		}
		args = args[1:]
	}
	if len(args) < 2 || len(args) > 3 || len(ts) != 1 || s.has("noftz") && ts[0].size > 4 {
		return nil, errUnknown
	}
	t := ts[0]
	a, err := c.addressOf(s, args[0], 1)
	if err != nil {
		return nil, err
	}
	if a.space == local || a.space == params {
		return nil, errUnknown
	}
	a.write, a.sync = true, true
	b, err := c.in(args[1], t)
	if err != nil {
		return nil, err
	}
	e := b
	op := s.oneOf("add", "exch", "cas", "inc", "dec", "min", "max", "and", "or", "xor")
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
	var run exec
	switch t.size {
	case 2:
		run = updates[uint16](a, d, b, e, t, f)
	case 4:
		run = updates[uint32](a, d, b, e, t, f)
	case 8:
		run = updates[uint64](a, d, b, e, t, f)
	default:
		return nil, errUnknown
	}
	return c.metered(run, a), nil
}

func updates[T integer](a access, d, b, e int, t typ, f func(old, b, e uint64) uint64) exec {
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			p := (*T)(w.at(&a, l))
			if p == nil {
				return
			}
			old := extend(uint64(*p), t)
			*p = T(f(old, extend(w.r[b][l], t), extend(w.r[e][l], t)))
			if d >= 0 {
				w.r[d][l] = old
			}
		}
	}
}

// update gives what an atomic operation writes.
func update(op string, t typ) func(old, b, e uint64) uint64 {
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
		case t == typ{kind: 'f', size: 4}:
			return func(old, b, _ uint64) uint64 {
				return uint64(math.Float32bits(math.Float32frombits(uint32(old)) + math.Float32frombits(uint32(b))))
			}
		case t == typ{kind: 'f', size: 8}:
			return func(old, b, _ uint64) uint64 {
				return math.Float64bits(math.Float64frombits(old) + math.Float64frombits(b))
			}
		case t.pair || t.float():
			return halfAdd(t)
		}
	}
	if t.float() {
		return nil
	}
	f := fold(op, t)
	if f == nil {
		return nil
	}
	return func(old, b, _ uint64) uint64 { return f(old, b) }
}

func halfAdd(t typ) func(old, b, e uint64) uint64 {
	one := t
	one.size, one.pair = 2, false
	read, write := reader(one), writer(one, 'n')
	if read == nil {
		return nil
	}
	add := func(a, b uint64) uint64 { return write(odd(read(a), read(b))) }
	return func(old, b, _ uint64) uint64 {
		v := add(old, b)
		if t.pair {
			v |= add(old>>16, b>>16) << 16
		}
		return v
	}
}
