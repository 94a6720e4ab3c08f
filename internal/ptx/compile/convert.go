package compile

import (
	"math"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// cvt compiles conversions. Results are extended to 64 bits, as a narrower type may go into a wider
// register.
func (c *compiler) cvt(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	if len(ts) != 2 {
		return nil, errUnknown
	}
	to, from := ts[0], ts[1]
	if to.Pair && len(s.Args) == 3 {
		return c.cvtPair(s, to, from)
	}
	d, x, err := c.regs(s, from, 1)
	if err != nil {
		return nil, err
	}
	a := x[0]
	switch {
	case !to.Float() && !from.Float():
		return c.cvtInt(s, d, a, to, from)
	case from == syntax.Type{Kind: 's', Size: 4} && to == syntax.Type{Kind: 'f', Size: 4} && rounding(s) == 'n':
		return map1(d, a, func(v int32) float32 { return float32(v) }), nil
	case !from.Float():
		return c.fromInt(s, d, a, to, from)
	}
	read := reader(from)
	if read == nil {
		return nil, errUnknown
	}
	ftz := s.Has("ftz")
	value := func(v uint64) float64 {
		f := read(v)
		if ftz && from.Size == 4 {
			f = float64(flush(float32(f)))
		}
		return f
	}
	if !to.Float() {
		return toInt(s, d, a, to, from, value)
	}
	write := writer(to, rounding(s))
	if write == nil {
		return nil, errUnknown
	}
	if r := s.OneOf("rni", "rzi", "rmi", "rpi"); r != "" {
		plain := value
		whole := wholeNumber(r)
		value = func(v uint64) float64 { return whole(plain(v)) }
	}
	sat, relu := s.Has("sat"), s.Has("relu")
	return convert(d, a, func(v uint64) uint64 {
		f := value(v)
		switch {
		case sat && !(f > 0), relu && f < 0:
			f = 0
		case sat && f > 1:
			f = 1
		}
		u := write(f)
		if ftz && to.Size == 4 {
			u = uint64(math.Float32bits(flush(math.Float32frombits(uint32(u)))))
		}
		return u
	}), nil
}

func convert(d, a int, f func(uint64) uint64) simt.Exec {
	return map1(d, a, f)
}

// extend reads the low bytes of a lane as a whole number.
func extend(v uint64, t syntax.Type) uint64 {
	n := 64 - 8*t.Size
	if t.Signed() {
		return uint64(int64(v<<n) >> n)
	}
	return v << n >> n
}

func (c *compiler) cvtInt(s *syntax.Statement, d, a int, to, from syntax.Type) (simt.Exec, error) {
	if !s.Has("sat") {
		n := 64 - 8*min(to.Size, from.Size)
		if signed := from.Signed() && to.Size > from.Size || to.Signed() && to.Size <= from.Size; signed {
			return func(w *simt.Warp, m uint32) { signLanes(&w.Regs[d], &w.Regs[a], m, n) }, nil
		}
		return func(w *simt.Warp, m uint32) { zeroLanes(&w.Regs[d], &w.Regs[a], m, n) }, nil
	}
	return convert(d, a, func(v uint64) uint64 {
		v = extend(v, from)
		lo, hi := bounds(to)
		switch {
		case from.Signed() && int64(v) < 0 && int64(v) < lo:
			return uint64(lo)
		case (!from.Signed() || int64(v) >= 0) && v > hi:
			return hi
		}
		return v
	}), nil
}

// signLanes and zeroLanes extend what is left of lanes without their high n bits.
//
//go:norace
//go:nocheckptr
func signLanes(D, A *simt.Lanes, m uint32, n int) {
	for l := range 32 {
		if m>>l&1 != 0 {
			D[l] = uint64(int64(A[l]<<n) >> n)
		}
	}
}

//go:norace
//go:nocheckptr
func zeroLanes(D, A *simt.Lanes, m uint32, n int) {
	for l := range 32 {
		if m>>l&1 != 0 {
			D[l] = A[l] << n >> n
		}
	}
}

// bounds are the least and the largest value of a type of whole numbers.
func bounds(t syntax.Type) (lo int64, hi uint64) {
	n := 8 * t.Size
	if t.Signed() {
		return -1 << (n - 1), 1<<(n-1) - 1
	}
	return 0, ^uint64(0) >> (64 - n)
}

// fromInt rounds whole numbers to a float type, once.
func (c *compiler) fromInt(s *syntax.Statement, d, a int, to, from syntax.Type) (simt.Exec, error) {
	write := writer(to, rounding(s))
	if write == nil || to.Size == 8 && rounding(s) != 'n' {
		return nil, errUnknown
	}
	return convert(d, a, func(v uint64) uint64 {
		v = extend(v, from)
		if to.Size == 8 {
			if from.Signed() {
				return math.Float64bits(float64(int64(v)))
			}
			return math.Float64bits(float64(v))
		}
		hi, lo := v>>32, v&(1<<32-1)
		top := float64(hi) * (1 << 32)
		if from.Signed() {
			top = float64(int64(v)>>32) * (1 << 32)
		}
		return write(odd(top, float64(lo)))
	}), nil
}

func wholeNumber(r string) func(float64) float64 {
	switch r {
	case "rzi":
		return math.Trunc
	case "rmi":
		return math.Floor
	case "rpi":
		return math.Ceil
	}
	return math.RoundToEven
}

// toInt rounds to a whole number and clamps it; NaN is 0 (and the least number where the result has
// 64 bits, as GPUs have it).
func toInt(s *syntax.Statement, d, a int, to, from syntax.Type, value func(uint64) float64) (simt.Exec, error) {
	r := s.OneOf("rni", "rzi", "rmi", "rpi")
	if r == "" {
		return nil, errUnknown
	}
	round := wholeNumber(r)
	lo, hi := bounds(to)
	nan := uint64(0)
	if to.Size == 8 || from.Size == 8 {
		if nan = 1 << 63; to.Size < 8 {
			nan = 1 << 31
		}
	}
	if to.Size < 4 {
		nan = 0
	}
	return convert(d, a, func(v uint64) uint64 {
		f := round(value(v))
		switch {
		case f != f:
			return nan
		case f <= float64(lo):
			return uint64(lo)
		case f >= float64(hi):
			return hi
		case to.Signed():
			return uint64(int64(f))
		}
		return uint64(f)
	}), nil
}

// reader gives the value of a lane as a float64.
func reader(t syntax.Type) func(uint64) float64 {
	switch {
	case t.Kind == 'f' && t.Size == 8:
		return math.Float64frombits
	case t.Kind == 'f' && t.Size == 4 && !t.Pair, t.Kind == 't':
		return func(v uint64) float64 { return float64(math.Float32frombits(uint32(v))) }
	case t.Kind == 'f' && t.Size == 2:
		return func(v uint64) float64 { return fromHalf(uint16(v)) }
	case t.Kind == 'g' && t.Size == 2:
		return func(v uint64) float64 { return float64(math.Float32frombits(uint32(v) << 16)) }
	}
	return nil
}

// writer gives the bits of a float64 rounded to a type.
func writer(t syntax.Type, r byte) func(float64) uint64 {
	switch {
	case t.Kind == 'f' && t.Size == 8:
		return math.Float64bits
	case t.Kind == 'f' && t.Size == 4 && !t.Pair:
		return func(f float64) uint64 { return uint64(math.Float32bits(directed(f, r))) }
	case t.Kind == 'f' && t.Size == 2:
		return func(f float64) uint64 { return uint64(toHalf(f, r)) }
	case t.Kind == 'g' && t.Size == 2:
		return func(f float64) uint64 { return uint64(toBrain(f, r)) }
	case t.Kind == 't':
		return toTensor
	}
	return nil
}
