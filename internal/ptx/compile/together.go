package compile

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// together compiles what the lanes of a warp do with one another.
func (c *compiler) together(s *syntax.Statement, o *simt.Op) (err error) {
	if !s.Has("sync") {
		return errors.New("only the .sync form is understood")
	}
	switch s.Op[0] {
	case "shfl":
		o.Run, err = c.shuffle(s, o)
	case "vote":
		o.Run, err = c.vote(s, o)
	case "match":
		o.Run, err = c.match(s, o)
	case "redux":
		o.Run, err = c.redux(s, o)
	case "mma":
		o.Run, err = c.mma(s)
	case "ldmatrix":
		o.Run, err = c.ldmatrix(s)
	case "wgmma":
		o.Run, err = c.wgmma(s)
	case "elect":
		o.Run, err = c.elect(s, o)
	default:
		return errUnknown
	}
	return err
}

// maskOf sets the register that the lanes of an instruction are named by: its last operand.
func (c *compiler) maskOf(s *syntax.Statement, o *simt.Op) error {
	k, err := c.in(s.Args[len(s.Args)-1], syntax.Type{Kind: 'b', Size: 4})
	o.Mask = int32(k)
	return err
}

// shuffle compiles shfl.sync.mode.b32 d|p, a, b, c, mask.
func (c *compiler) shuffle(s *syntax.Statement, o *simt.Op) (simt.Exec, error) {
	if len(s.Args) != 5 {
		return nil, errUnknown
	}
	u32 := syntax.Type{Kind: 'b', Size: 4}
	d, err := c.out(syntax.Operand{Name: s.Args[0].Name})
	if err != nil {
		return nil, err
	}
	p := -1
	if n := s.Args[0].Second; n != "" {
		if p, _, err = c.predicate(syntax.Operand{Name: n}); err != nil {
			return nil, err
		}
	}
	var x [3]int
	for k := range x {
		if x[k], err = c.in(s.Args[k+1], u32); err != nil {
			return nil, err
		}
	}
	mode := s.OneOf("up", "down", "bfly", "idx")
	if mode == "" {
		return nil, errUnknown
	}
	return func(w *simt.Warp, m uint32) { shuffleLanes(w, mode, d, p, x, m) }, c.maskOf(s, o)
}

//go:norace
//go:nocheckptr
func shuffleLanes(w *simt.Warp, mode string, d, p int, x [3]int, m uint32) {
	A, B, C := w.Regs[x[0]], &w.Regs[x[1]], &w.Regs[x[2]]
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		j, ok := shuffled(mode, l, int(B[l]&31), int(C[l]))
		if m>>j&1 == 0 {
			w.Fail(l, 0, fmt.Sprintf("lane %d shuffles from lane %d, which takes no part", l, j))
			return
		}
		simt.Set(&w.Regs[d], l, uint32(A[j]))
		if p >= 0 {
			w.Preds[p] &^= 1 << l
			if ok {
				w.Preds[p] |= 1 << l
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

func (c *compiler) vote(s *syntax.Statement, o *simt.Op) (simt.Exec, error) {
	if len(s.Args) != 3 {
		return nil, errUnknown
	}
	p, flip, err := c.predicate(s.Args[1])
	if err != nil {
		return nil, err
	}
	if err := c.maskOf(s, o); err != nil {
		return nil, err
	}
	if s.Has("ballot") {
		d, err := c.out(s.Args[0])
		return func(w *simt.Warp, m uint32) { w.Each(d, m, uint64((w.Preds[p]^flip)&m)) }, err
	}
	d, _, err := c.predicate(s.Args[0])
	how := s.OneOf("all", "any", "uni")
	if how == "" {
		return nil, errUnknown
	}
	return func(w *simt.Warp, m uint32) {
		v := (w.Preds[p] ^ flip) & m
		yes := v == m
		switch how {
		case "any":
			yes = v != 0
		case "uni":
			yes = v == m || v == 0
		}
		w.Preds[d] &^= m
		if yes {
			w.Preds[d] |= m
		}
	}, err
}

// match compiles match.any and match.all.
func (c *compiler) match(s *syntax.Statement, o *simt.Op) (simt.Exec, error) {
	ts := s.Types()
	if len(s.Args) != 3 || len(ts) != 1 {
		return nil, errUnknown
	}
	d, err := c.out(syntax.Operand{Name: s.Args[0].Name})
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.Args[1], ts[0])
	if err != nil {
		return nil, err
	}
	all, p := s.Has("all"), -1
	if n := s.Args[0].Second; n != "" {
		if p, _, err = c.predicate(syntax.Operand{Name: n}); err != nil {
			return nil, err
		}
	}
	return func(w *simt.Warp, m uint32) {
		A := w.Regs[a] // the result may lie in its place
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
			simt.Set(&w.Regs[d], l, same)
			if p >= 0 {
				w.Preds[p] &^= 1 << l
				if same != 0 {
					w.Preds[p] |= 1 << l
				}
			}
		}
	}, c.maskOf(s, o)
}

// redux compiles the fold of a warp's values.
func (c *compiler) redux(s *syntax.Statement, o *simt.Op) (simt.Exec, error) {
	ts := s.Types()
	if len(s.Args) != 3 || len(ts) != 1 || ts[0].Size != 4 || ts[0].Float() {
		return nil, errUnknown
	}
	d, err := c.out(s.Args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.Args[1], ts[0])
	if err != nil {
		return nil, err
	}
	f := fold(s.OneOf("add", "min", "max", "and", "or", "xor"), ts[0])
	if f == nil {
		return nil, errUnknown
	}
	return func(w *simt.Warp, m uint32) {
		first := bits.TrailingZeros32(m)
		v := extend(w.Regs[a][first], ts[0])
		for l := first + 1; l < 32; l++ {
			if m>>l&1 != 0 {
				v = f(v, extend(w.Regs[a][l], ts[0]))
			}
		}
		w.Each(d, m, v)
	}, c.maskOf(s, o)
}

// fold gives a function of two extended whole numbers.
func fold(op string, t syntax.Type) func(a, b uint64) uint64 {
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
		if t.Signed() {
			return func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) }
		}
		return func(a, b uint64) uint64 { return min(a, b) }
	case "max":
		if t.Signed() {
			return func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) }
		}
		return func(a, b uint64) uint64 { return max(a, b) }
	}
	return nil
}
