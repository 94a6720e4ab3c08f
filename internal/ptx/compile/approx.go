package compile

import "math"

// approximated makes a function of float32 as wrong as a GPU's may be, by what NVIDIA's
// documentation of PTX says of each instruction, so that what is only just right here does not fail
// there. How wrong a result is depends on the operands alone. Powers of two come out exact.
func approximated(op string, f func(a, b float64) float64) func(a, b float64) float64 {
	return func(a, b float64) float64 {
		v := f(a, b)
		if v == 0 || v != v || math.IsInf(v, 0) {
			return v
		}
		if frac, _ := math.Frexp(v); math.Abs(frac) == 0.5 {
			return v
		}
		return v + chance(a, b)*allowed(op, a, v)
	}
}

// allowed is by how much the result v of an instruction may be off.
func allowed(op string, a, v float64) float64 {
	m := math.Abs(v)
	_, exp := math.Frexp(v)
	ulp := math.Ldexp(1, max(exp, -125)-24)
	switch op {
	case "rcp", "sqrt":
		return ulp
	case "ex2", "div":
		return 2 * ulp
	case "rsqrt":
		return m * math.Exp2(-22.9)
	case "lg2":
		if a > 0.5 && a < 2 {
			return math.Exp2(-22)
		}
		return m * math.Exp2(-22.6)
	case "sin", "cos":
		return math.Exp2(-20.5)
	case "tanh":
		return m * math.Exp2(-11)
	}
	return 0
}

// chance is a number from -1 to 1, of which every other is one of these.
func chance(a, b float64) float64 {
	h := (math.Float64bits(a)*0x9e3779b97f4a7c15 ^ math.Float64bits(b)) * 0xbf58476d1ce4e5b9
	h ^= h >> 32
	u := float64(h>>8&0xffff) / 0xffff
	if h&2 == 0 {
		u = 1
	}
	if h&1 == 0 {
		return -u
	}
	return u
}

// reciprocal64 is rcp.approx.ftz.f64, of which a GPU reads and gives the upper 32 bits.
func reciprocal64(a float64) float64 {
	upper := func(v float64) float64 { return math.Float64frombits(math.Float64bits(v) &^ math.MaxUint32) }
	a = upper(a)
	if math.Abs(a) < 0x1p-1022 {
		a = math.Copysign(0, a)
	}
	v := 1 / a
	if math.Abs(v) < 0x1p-1022 {
		return math.Copysign(0, v)
	}
	return upper(v)
}
