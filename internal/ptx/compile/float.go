package compile

import (
	"math"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
	"github.com/weft-project/weft/internal/vec"
)

// rounding is a direction: 'n' to nearest, 'z' to zero, 'm' down, 'p' up.
func rounding(s *syntax.Statement) byte {
	if r := s.OneOf("rn", "rz", "rm", "rp"); r != "" {
		return r[1]
	}
	return 'n'
}

// float32 compiles arithmetic on f32.
func (c *compiler) float32(s *syntax.Statement) (simt.Exec, error) {
	t := syntax.Type{Kind: 'f', Size: 4}
	n := operandsOf(s.Op[0])
	d, x, err := c.regs(s, t, n)
	if err != nil {
		return nil, err
	}
	ftz, sat, r := s.Has("ftz"), s.Has("sat"), rounding(s)
	exact := !ftz && !sat && r == 'n'
	switch {
	case exact && s.Op[0] == "add":
		return add[float32](d, x[0], x[1]), nil
	case exact && s.Op[0] == "sub":
		return sub[float32](d, x[0], x[1]), nil
	case exact && s.Op[0] == "mul":
		return mul[float32](d, x[0], x[1]), nil
	case exact && (s.Op[0] == "fma" || s.Op[0] == "mad"):
		return fma(d, x[0], x[1], x[2]), nil
	}
	in := func(v float32) float32 { return v }
	if ftz {
		in = flush
	}
	out := func(v float64) float32 { return in(float32(v)) }
	if r != 'n' {
		out = func(v float64) float32 { return in(directed(v, r)) }
	}
	if sat {
		plain := out
		out = func(v float64) float32 { return saturate(plain(v)) }
	}
	switch n {
	case 1:
		f := unary32(s)
		if f == nil {
			return nil, errUnknown
		}
		if s.Has("approx") {
			g := approximated(s.Op[0], func(a, _ float64) float64 { return f(a) })
			return map1(d, x[0], func(a float32) float32 { return out(g(float64(in(a)), 0)) }), nil
		}
		return map1(d, x[0], func(a float32) float32 { return out(f(float64(in(a)))) }), nil
	case 2:
		f := binary32(s)
		if f == nil {
			return nil, errUnknown
		}
		if s.Has("approx") || s.Has("full") {
			f = approximated(s.Op[0], f)
		}
		return map2(d, x[0], x[1], func(a, b float32) float32 { return out(f(float64(in(a)), float64(in(b)))) }), nil
	}
	return map3(d, x[0], x[1], x[2], func(a, b, e float32) float32 {
		return out(odd(float64(in(a))*float64(in(b)), float64(in(e))))
	}), nil
}

// fma is a*b+c, rounded once. The product is exact in float64; that the sum is rounded there first
// can matter only where it then lies in the middle between two numbers of float32, or below the
// normal ones.
func fma(d, a, b, e int) simt.Exec {
	return func(w *simt.Warp, m uint32) { fmaLanes(&w.Regs[d], &w.Regs[a], &w.Regs[b], &w.Regs[e], m) }
}

//go:norace
//go:nocheckptr
func fmaLanes(D, A, B, C *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		p := float64(math.Float32frombits(uint32(A[l]))) * float64(math.Float32frombits(uint32(B[l])))
		c := float64(math.Float32frombits(uint32(C[l])))
		s := p + c
		if u := math.Float64bits(s); u&(1<<29-1) == 1<<28 || u<<1>>53-1 < 1023-126-1 { // but for zero, which is exact
			s = odd(p, c)
		}
		D[l] = uint64(math.Float32bits(float32(s)))
	}
}

// fma64Lanes calls math.FMA by its name: as a value it would not be the processor's.
//
//go:norace
//go:nocheckptr
func fma64Lanes(D, A, B, C *simt.Lanes, m uint32) {
	vec.ClearUppers()
	for l := range 32 {
		if m>>l&1 != 0 {
			D[l] = math.Float64bits(math.FMA(math.Float64frombits(A[l]), math.Float64frombits(B[l]), math.Float64frombits(C[l])))
		}
	}
}

// odd is x+y rounded to an odd last bit where it is not exact: what is rounded to fewer bits
// afterwards is as if it had been rounded once.
func odd(x, y float64) float64 {
	s := x + y
	z := s - x
	lost := (x - (s - z)) + (y - z)
	if lost == 0 || lost != lost {
		return s
	}
	return sticky(s, lost)
}

// sticky marks s, the rounded value of s+lost, as not exact in its last bit.
func sticky(s, lost float64) float64 {
	b := math.Float64bits(s)
	if b&1 == 1 {
		return s
	}
	if (lost > 0) == (s > 0) {
		return math.Float64frombits(b + 1)
	}
	return math.Float64frombits(b - 1)
}

// directed rounds to float32 in a direction.
func directed(v float64, r byte) float32 {
	f := float32(v)
	switch back := float64(f); {
	case v != v || back == v || math.IsInf(v, 0):
		return f
	case back > v && (r == 'm' || r == 'z' && v > 0):
		return math.Nextafter32(f, float32(math.Inf(-1)))
	case back < v && (r == 'p' || r == 'z' && v < 0):
		return math.Nextafter32(f, float32(math.Inf(1)))
	}
	return f
}

// flush makes what is too small for a normal number zero, with its sign.
func flush(v float32) float32 {
	if b := math.Float32bits(v); b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return v
}

func saturate(v float32) float32 {
	if !(v > 0) { // NaN, too
		return 0
	}
	return min(v, 1)
}

// unary32 gives a function whose result is rounded to float32 afterwards.
func unary32(s *syntax.Statement) func(float64) float64 {
	switch s.Op[0] {
	case "neg":
		return func(a float64) float64 { return -a }
	case "abs":
		return math.Abs
	case "rcp":
		return func(a float64) float64 { return quotient(1, a) }
	case "sqrt":
		return root
	}
	return approximate(s.Op[0])
}

// approximate gives the functions that both widths have.
func approximate(op string) func(float64) float64 {
	switch op {
	case "rsqrt":
		return func(a float64) float64 { return 1 / math.Sqrt(a) }
	case "ex2":
		return math.Exp2
	case "lg2":
		return math.Log2
	case "sin":
		return math.Sin
	case "cos":
		return math.Cos
	case "tanh":
		return math.Tanh
	}
	return nil
}

func binary32(s *syntax.Statement) func(a, b float64) float64 {
	switch s.Op[0] {
	case "add":
		return odd
	case "sub":
		return func(a, b float64) float64 { return odd(a, -b) }
	case "mul":
		return func(a, b float64) float64 { return a * b }
	case "div":
		return quotient
	case "min", "max":
		return extreme[float64](s)
	case "copysign": // the sign of the first, the rest of the second
		return func(a, b float64) float64 { return math.Copysign(b, a) }
	}
	return nil
}

// quotient and root are rounded to odd.
func quotient(a, b float64) float64 {
	q := a / b
	if math.IsInf(q, 0) || q != q || math.IsInf(b, 0) {
		return q
	}
	if lost := math.FMA(-q, b, a); lost != 0 {
		return sticky(q, math.Copysign(1, lost)*math.Copysign(1, b))
	}
	return q
}

func root(a float64) float64 {
	r := math.Sqrt(a)
	if !(r > 0) || math.IsInf(r, 0) {
		return r
	}
	if lost := math.FMA(-r, r, a); lost != 0 {
		return sticky(r, lost)
	}
	return r
}

// extreme is min or max: of a number and NaN the number, unless .NaN says otherwise; -0 is less
// than +0.
func extreme[T simt.Float](s *syntax.Statement) func(a, b T) T {
	larger, keep := s.Op[0] == "max", s.Has("NaN")
	return func(a, b T) T {
		switch {
		case a != a && b != b || keep && (a != a || b != b):
			return T(math.NaN())
		case a != a:
			return b
		case b != b:
			return a
		case larger:
			return max(a, b)
		}
		return min(a, b)
	}
}

// float64 compiles arithmetic on f64.
func (c *compiler) float64(s *syntax.Statement) (simt.Exec, error) {
	if rounding(s) != 'n' {
		return nil, errUnknown
	}
	t := syntax.Type{Kind: 'f', Size: 8}
	n := operandsOf(s.Op[0])
	d, x, err := c.regs(s, t, n)
	if err != nil {
		return nil, err
	}
	switch s.Op[0] {
	case "add":
		return add[float64](d, x[0], x[1]), nil
	case "sub":
		return sub[float64](d, x[0], x[1]), nil
	case "mul":
		return mul[float64](d, x[0], x[1]), nil
	case "fma", "mad":
		return func(w *simt.Warp, m uint32) {
			fma64Lanes(&w.Regs[d], &w.Regs[x[0]], &w.Regs[x[1]], &w.Regs[x[2]], m)
		}, nil
	case "div":
		return map2(d, x[0], x[1], func(a, b float64) float64 { return a / b }), nil
	case "min", "max":
		return map2(d, x[0], x[1], extreme[float64](s)), nil
	case "copysign":
		return map2(d, x[0], x[1], func(a, b float64) float64 { return math.Copysign(b, a) }), nil
	case "neg":
		return map1(d, x[0], func(a float64) float64 { return -a }), nil
	case "abs":
		return map1(d, x[0], math.Abs), nil
	case "rcp":
		if s.Has("approx") {
			return map1(d, x[0], reciprocal64), nil
		}
		return map1(d, x[0], func(a float64) float64 { return 1 / a }), nil
	case "sqrt":
		return map1(d, x[0], math.Sqrt), nil
	}
	if f := approximate(s.Op[0]); f != nil {
		return map1(d, x[0], f), nil
	}
	return nil, errUnknown
}
