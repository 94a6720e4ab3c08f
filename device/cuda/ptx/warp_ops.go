package ptx

import (
	"errors"
	"fmt"
	"math/bits"
)

// together compiles what the lanes of a warp do with one another.
func (c *compiler) together(s *stmt, o *op) (err error) {
	if !s.has("sync") {
		return errors.New("only the .sync form is understood")
	}
	switch s.op[0] {
	case "shfl":
		o.run, err = c.shuffle(s, o)
	case "vote":
		o.run, err = c.vote(s, o)
	case "match":
		o.run, err = c.match(s, o)
	case "redux":
		o.run, err = c.redux(s, o)
	case "mma":
		o.run, err = c.mma(s)
	case "ldmatrix":
		o.run, err = c.ldmatrix(s)
	default:
		return errUnknown
	}
	return err
}

// maskOf sets the register that the lanes of an instruction are named by: its last operand.
func (c *compiler) maskOf(s *stmt, o *op) error {
	k, err := c.in(s.args[len(s.args)-1], typ{kind: 'b', size: 4})
	o.mask = int32(k)
	return err
}

// shuffle compiles shfl.sync.mode.b32 d|p, a, b, c, mask.
func (c *compiler) shuffle(s *stmt, o *op) (exec, error) {
	if len(s.args) != 5 {
		return nil, errUnknown
	}
	u32 := typ{kind: 'b', size: 4}
	d, err := c.out(operand{name: s.args[0].name})
	if err != nil {
		return nil, err
	}
	p := -1
	if n := s.args[0].second; n != "" {
		if p, _, err = c.predicate(operand{name: n}); err != nil {
			return nil, err
		}
	}
	var x [3]int
	for k := range x {
		if x[k], err = c.in(s.args[k+1], u32); err != nil {
			return nil, err
		}
	}
	mode := s.oneOf("up", "down", "bfly", "idx")
	if mode == "" {
		return nil, errUnknown
	}
	return func(w *warp, m uint32) { shuffleLanes(w, mode, d, p, x, m) }, c.maskOf(s, o)
}

//go:norace
//go:nocheckptr
func shuffleLanes(w *warp, mode string, d, p int, x [3]int, m uint32) {
	A, B, C := w.r[x[0]], &w.r[x[1]], &w.r[x[2]]
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		j, ok := shuffled(mode, l, int(B[l]&31), int(C[l]))
		if m>>j&1 == 0 {
			w.fail(l, 0, fmt.Sprintf("lane %d shuffles from lane %d, which takes no part", l, j))
			return
		}
		set(&w.r[d], l, uint32(A[j]))
		if p >= 0 {
			w.p[p] &^= 1 << l
			if ok {
				w.p[p] |= 1 << l
			}
		}
	}
}

// shuffled is the lane that a lane gets its value from, by the manual's formula; its own where ok
// is false.
func shuffled(mode string, l, b, c int) (j int, ok bool) {
	segment, clamp := c>>8&31, c&31
	most := l&segment | clamp&^segment
	least := l & segment
	switch mode {
	case "up":
		j = l - b
		ok = j >= most
	case "down":
		j = l + b
		ok = j <= most
	case "bfly":
		j = l ^ b
		ok = j <= most
	default:
		j = least | b&^segment
		ok = j <= most
	}
	if !ok {
		j = l
	}
	return j, ok
}

func (c *compiler) vote(s *stmt, o *op) (exec, error) {
	if len(s.args) != 3 {
		return nil, errUnknown
	}
	p, flip, err := c.predicate(s.args[1])
	if err != nil {
		return nil, err
	}
	if err := c.maskOf(s, o); err != nil {
		return nil, err
	}
	if s.has("ballot") {
		d, err := c.out(s.args[0])
		return func(w *warp, m uint32) { w.each(d, m, uint64((w.p[p]^flip)&m)) }, err
	}
	d, _, err := c.predicate(s.args[0])
	how := s.oneOf("all", "any", "uni")
	if how == "" {
		return nil, errUnknown
	}
	return func(w *warp, m uint32) {
		v := (w.p[p] ^ flip) & m
		yes := v == m
		switch how {
		case "any":
			yes = v != 0
		case "uni":
			yes = v == m || v == 0
		}
		w.p[d] &^= m
		if yes {
			w.p[d] |= m
		}
	}, err
}

// match compiles match.any and match.all.
func (c *compiler) match(s *stmt, o *op) (exec, error) {
	ts := s.types()
	if len(s.args) != 3 || len(ts) != 1 {
		return nil, errUnknown
	}
	d, err := c.out(operand{name: s.args[0].name})
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.args[1], ts[0])
	if err != nil {
		return nil, err
	}
	all, p := s.has("all"), -1
	if n := s.args[0].second; n != "" {
		if p, _, err = c.predicate(operand{name: n}); err != nil {
			return nil, err
		}
	}
	return func(w *warp, m uint32) {
		A := w.r[a] // the result may lie in its place
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			var same uint32
			for j := range 32 {
				if m>>j&1 != 0 && extend(A[j], ts[0]) == extend(A[l], ts[0]) {
					same |= 1 << j
				}
			}
			if all && same != m {
				same = 0
			}
			set(&w.r[d], l, same)
			if p >= 0 {
				w.p[p] &^= 1 << l
				if same != 0 {
					w.p[p] |= 1 << l
				}
			}
		}
	}, c.maskOf(s, o)
}

// redux compiles the fold of a warp's values.
func (c *compiler) redux(s *stmt, o *op) (exec, error) {
	ts := s.types()
	if len(s.args) != 3 || len(ts) != 1 || ts[0].size != 4 || ts[0].float() {
		return nil, errUnknown
	}
	d, err := c.out(s.args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.args[1], ts[0])
	if err != nil {
		return nil, err
	}
	f := fold(s.oneOf("add", "min", "max", "and", "or", "xor"), ts[0])
	if f == nil {
		return nil, errUnknown
	}
	return func(w *warp, m uint32) {
		first := bits.TrailingZeros32(m)
		v := extend(w.r[a][first], ts[0])
		for l := first + 1; l < 32; l++ {
			if m>>l&1 != 0 {
				v = f(v, extend(w.r[a][l], ts[0]))
			}
		}
		w.each(d, m, v)
	}, c.maskOf(s, o)
}

// fold gives a function of two extended whole numbers.
func fold(op string, t typ) func(a, b uint64) uint64 {
	switch op {
	case "add":
		return func(a, b uint64) uint64 { return a + b }
	case "and":
		return func(a, b uint64) uint64 { return a & b }
	case "or":
		return func(a, b uint64) uint64 { return a | b }
	case "xor":
		return func(a, b uint64) uint64 { return a ^ b }
	case "min":
		if t.signed() {
			return func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) }
		}
		return func(a, b uint64) uint64 { return min(a, b) }
	case "max":
		if t.signed() {
			return func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) }
		}
		return func(a, b uint64) uint64 { return max(a, b) }
	}
	return nil
}
