package compile

import (
	"errors"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// sharedAt gives the register of an address [name+off] of shared memory, and what is added to it.
func (c *compiler) sharedAt(o syntax.Operand) (reg int, off uint64, err error) {
	if o.Kind != syntax.OperandAddr || len(o.List) > 0 {
		return 0, 0, errors.New("expected an address")
	}
	reg, err = c.in(syntax.Operand{Name: o.Name}, syntax.Type{Kind: 'u', Size: 8})
	return reg, uint64(o.Off), err
}

// mbarrier compiles what is done with a barrier in shared memory, but for waiting. Behind an
// arrival it is the turn of others, which may find at once what they wait for.
func (c *compiler) mbarrier(s *syntax.Statement, o *simt.Op) error {
	u32 := syntax.Type{Kind: 'u', Size: 4}
	args, to := s.Args, -1
	if len(args) > 1 && args[0].Kind == syntax.OperandName {
		var err error
		if to, err = c.out(args[0]); err != nil {
			return err
		}
		args = args[1:]
	}
	if len(args) < 1 || len(args) > 2 || !s.Has("b64") {
		return errUnknown
	}
	at, off, err := c.sharedAt(args[0])
	if err != nil {
		return err
	}
	n := c.constant(1)
	if len(args) == 2 {
		if n, err = c.in(args[1], u32); err != nil {
			return err
		}
	}
	var do func(w *simt.Warp, l int, q uint64, n uint32) uint32
	switch how := s.Op[1]; {
	case how == "init":
		do = func(w *simt.Warp, l int, q uint64, n uint32) uint32 { w.MakeBarrier(l, q, n); return 0 }
	case how == "inval":
		do = func(w *simt.Warp, l int, q uint64, _ uint32) uint32 { w.EndBarrier(l, q); return 0 }
	case how == "arrive" && s.Has("expect_tx"):
		do = func(w *simt.Warp, l int, q uint64, n uint32) uint32 { return w.Arrive(l, q, 1, n) }
	case how == "arrive" && !s.Has("noComplete"):
		do = func(w *simt.Warp, l int, q uint64, n uint32) uint32 { return w.Arrive(l, q, n, 0) }
	case how == "expect_tx":
		do = func(w *simt.Warp, l int, q uint64, n uint32) uint32 { return w.Arrive(l, q, 0, n) }
	default:
		return errUnknown
	}
	if s.Op[1] == "arrive" && !s.Has("expect_tx") {
		o.Kind = simt.OpTell
	}
	o.Run = func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			if v := do(w, l, w.Regs[at][l]+off, uint32(w.Regs[n][l])); to >= 0 {
				w.Regs[to][l] = uint64(v)
			}
		}
	}
	return nil
}

// waits compiles mbarrier.try_wait.parity and mbarrier.test_wait.parity.
func (c *compiler) waits(s *syntax.Statement, o *simt.Op) error {
	if len(s.Args) < 3 || len(s.Args) > 4 || !s.Has("parity") || !s.Has("b64") {
		return errUnknown
	}
	p, _, err := c.predicate(s.Args[0])
	if err != nil {
		return err
	}
	at, off, err := c.sharedAt(s.Args[1])
	if err != nil {
		return err
	}
	parity, err := c.in(s.Args[2], syntax.Type{Kind: 'u', Size: 4})
	o.Kind = simt.OpPoll
	o.Poll = func(w *simt.Warp, m uint32) bool {
		var yes uint32
		for l := range 32 {
			if m>>l&1 != 0 && w.Passed(l, w.Regs[at][l]+off, uint32(w.Regs[parity][l])) {
				yes |= 1 << l
			}
		}
		w.Preds[p] = w.Preds[p]&^m | yes
		return yes == m
	}
	return err
}

// copyTile compiles cp.async.bulk.tensor.4d from global to shared memory.
func (c *compiler) copyTile(s *syntax.Statement) (simt.Exec, error) {
	if !s.Has("tensor") || !s.Has("4d") || !s.Has("global") || !s.Has("shared::cluster") && !s.Has("shared::cta") ||
		!s.Has("mbarrier::complete_tx::bytes") || s.Has("im2col") || s.Has("multicast::cluster") || len(s.Args) < 3 {
		return nil, errUnknown
	}
	to, toOff, err := c.sharedAt(s.Args[0])
	if err != nil {
		return nil, err
	}
	bar, barOff, err := c.sharedAt(s.Args[2])
	if err != nil {
		return nil, err
	}
	m := s.Args[1]
	if m.Kind != syntax.OperandAddr || m.Name == "" || len(m.List) != 4 {
		return nil, errors.New("expected a map and four numbers")
	}
	from, err := c.in(syntax.Operand{Name: m.Name}, syntax.Type{Kind: 'u', Size: 8})
	if err != nil {
		return nil, err
	}
	var at [4]int
	for k, o := range m.List {
		if at[k], err = c.in(o, syntax.Type{Kind: 's', Size: 4}); err != nil {
			return nil, err
		}
	}
	return func(w *simt.Warp, lanes uint32) {
		for l := range 32 {
			if lanes>>l&1 == 0 {
				continue
			}
			var first [4]int32
			for k, r := range at {
				first[k] = int32(w.Regs[r][l])
			}
			w.CopyTile(l, w.Regs[to][l]+toOff, w.Regs[from][l]+uint64(m.Off), w.Regs[bar][l]+barOff, first)
		}
	}, nil
}
