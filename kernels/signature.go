package kernels

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
)

// Signature is an instruction with the types of its operands and results: what a [Backend]
// prepares, and what every backend checks buffers and places by.
type Signature struct {
	Instr   Instr
	In, Out []Type
}

// Sign infers the results. It keeps copies of the types.
func Sign(i Instr, in []Type) (Signature, error) {
	if i == nil {
		return Signature{}, fmt.Errorf("%w: the instruction is nil", ErrOperands)
	}
	out, err := i.Infer(in)
	if err != nil {
		return Signature{}, err
	}
	return Signature{i, cloneTypes(in), cloneTypes(out)}, nil
}

func cloneTypes(ts []Type) []Type {
	c := slices.Clone(ts)
	for k := range c {
		if k > 0 && c[k].Shape.Equal(c[k-1].Shape) {
			c[k].Shape = c[k-1].Shape
		} else {
			c[k].Shape = c[k].Shape.Clone()
		}
	}
	return c
}

// Check refuses a wrong number or size of buffers, and sharing that the instruction does not allow.
func (s *Signature) Check(outs, ins []*device.Buffer) error {
	if len(outs) != len(s.Out) || len(ins) != len(s.In) {
		return s.refuse("expected %d results and %d operands, got %d and %d", len(s.Out), len(s.In), len(outs), len(ins))
	}
	for n, b := range ins {
		if err := s.fits("operand", n, b, s.In[n]); err != nil {
			return err
		}
	}
	find := places(outs)
	for n, b := range outs {
		if err := s.fits("result", n, b, s.Out[n]); err != nil {
			return err
		}
		if find.of(b) != n {
			return s.refuse("result %d is the buffer of another result", n)
		}
		if b.ReadOnly() {
			return fmt.Errorf("%v: result %d: %w", s.Instr, n, device.ErrReadOnly)
		}
	}
	for m, a := range ins {
		if n := find.of(a); n >= 0 && !overwrites(s.Instr, s.In, s.Out, n, m) {
			return s.refuse("result %d must not be the buffer of operand %d", n, m)
		}
	}
	return nil
}

// finder says where a buffer is first among some.
type finder struct {
	all   []*device.Buffer
	first map[*device.Buffer]int // nil where there are few
}

// places makes a finder. Optimizers have hundreds of results.
func places(all []*device.Buffer) finder {
	f := finder{all: all}
	if len(all) > 32 {
		f.first = make(map[*device.Buffer]int, len(all))
		for n, b := range slices.Backward(all) {
			f.first[b] = n
		}
	}
	return f
}

// of is −1 where the buffer is none of them.
func (f finder) of(b *device.Buffer) int {
	if f.first == nil {
		return slices.Index(f.all, b)
	}
	if n, ok := f.first[b]; ok {
		return n
	}
	return -1
}

func (s *Signature) fits(what string, n int, b *device.Buffer, t Type) error {
	if b == nil {
		return s.refuse("%s %d is nil", what, n)
	}
	if b.Len() != t.Bytes() {
		return s.refuse("%s %d has %d bytes; %v has %d", what, n, b.Len(), t, t.Bytes())
	}
	return nil
}

func (s *Signature) refuse(format string, args ...any) error {
	return refuse(s.Instr, s.In, format, args...)
}

// Layout is the buffers of a [Routine]: their sizes in bytes, and which it may write.
type Layout struct {
	Sizes   []int
	Written []bool
}

// NewLayout keeps copies.
func NewLayout(sizes []int, written []bool) (Layout, error) {
	if len(sizes) != len(written) {
		return Layout{}, fmt.Errorf("%w: %d sizes of buffers, and %d marks of which are written", ErrOperands, len(sizes), len(written))
	}
	return Layout{slices.Clone(sizes), slices.Clone(written)}, nil
}

// Places refuses places that do not fit an instruction's types or the buffers, and sharing that the
// instruction does not allow.
func (l *Layout) Places(s *Signature, outs, ins []Place) error {
	if len(outs) != len(s.Out) || len(ins) != len(s.In) {
		return s.refuse("expected %d results and %d operands, got places for %d and %d", len(s.Out), len(s.In), len(outs), len(ins))
	}
	for m, p := range ins {
		if err := l.holds(s, "operand", m, p, s.In[m]); err != nil {
			return err
		}
	}
	for n, p := range outs {
		if err := l.holds(s, "result", n, p, s.Out[n]); err != nil {
			return err
		}
		if !l.Written[p.Buf] {
			return s.refuse("result %d lies in buffer %d, which is only read", n, p.Buf)
		}
		if slices.ContainsFunc(outs[:n], p.overlaps) {
			return s.refuse("result %d overlaps another result", n)
		}
		for m, q := range ins {
			if p.overlaps(q) && !(p == q && overwrites(s.Instr, s.In, s.Out, n, m)) {
				return s.refuse("result %d must not overlap operand %d", n, m)
			}
		}
	}
	return nil
}

// holds checks one place.
func (l *Layout) holds(s *Signature, what string, n int, p Place, t Type) error {
	switch {
	case p.Buf < 0 || p.Buf >= len(l.Sizes):
		return s.refuse("%s %d lies in buffer %d of %d", what, n, p.Buf, len(l.Sizes))
	case p.Len != t.Bytes():
		return s.refuse("%s %d has %d bytes; %v has %d", what, n, p.Len, t, t.Bytes())
	case p.Off < 0 || p.Off > l.Sizes[p.Buf]-p.Len:
		return s.refuse("%s %d lies at %d, beyond the %d bytes of buffer %d", what, n, p.Off, l.Sizes[p.Buf], p.Buf)
	case p.Off%PlaceAlign != 0:
		return s.refuse("%s %d lies at %d, which is not aligned to %d", what, n, p.Off, PlaceAlign)
	}
	return nil
}

// Check refuses buffers for a run that are not as the routine was told.
func (l *Layout) Check(bufs []*device.Buffer) error {
	if len(bufs) != len(l.Sizes) {
		return fmt.Errorf("%w: the routine has %d buffers, got %d", ErrOperands, len(l.Sizes), len(bufs))
	}
	for k, b := range bufs {
		switch {
		case b == nil:
			return fmt.Errorf("%w: buffer %d of the routine is nil", ErrOperands, k)
		case b.Len() != l.Sizes[k]:
			return fmt.Errorf("%w: buffer %d of the routine has %d bytes, expected %d", ErrOperands, k, b.Len(), l.Sizes[k])
		case !l.Written[k]:
		case b.ReadOnly():
			return fmt.Errorf("buffer %d of the routine: %w", k, device.ErrReadOnly)
		case slices.Contains(bufs[:k], b) || slices.Contains(bufs[k+1:], b):
			return fmt.Errorf("%w: buffer %d of the routine, which is written, is given twice", ErrOperands, k)
		}
	}
	return nil
}
