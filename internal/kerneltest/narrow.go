package kerneltest

import (
	le "encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Narrowed is an instruction of which some operands and results of float32 are bfloat16. What
// products read is rounded to that anyway, so all numbers are. The result of Narrowed is not narrow
// where nothing is of float32.
func Narrowed(r *rand.Rand, i kernels.Instr, in []Tensor) (kernels.Narrow, []Tensor) {
	n, in := kernels.Narrow{Of: i}, slices.Clone(in)
	for k, x := range in {
		if x.Dtype != device.Float32 {
			continue
		}
		if in[k] = New(device.BFloat16, x.Shape, append(x.V, 0)...); r.IntN(2) == 0 {
			in[k].Dtype = device.Float32
		}
	}
	out, err := n.Infer(types(in))
	if err != nil {
		return n, in
	}
	for _, t := range out {
		n.Outs = append(n.Outs, t.Dtype == device.Float32 && r.IntN(2) == 0)
	}
	_, product := kernels.Unviewed(i).(kernels.MatMulThen)
	n.Product = product && kernels.Widened(types(in[:1]))[0].Dtype == device.Float32 && r.IntN(2) == 0
	return n, in
}

// narrowed is what a narrow instruction makes, before it is rounded: what is compared with it need
// not be further away than rounding takes it.
func narrowed(i kernels.Narrow, in []Tensor, out []kernels.Type) (res []Tensor, slack [][]float64, err error) {
	wide, of := slices.Clone(in), kernels.Widened(out)
	for k, t := range kernels.Widened(types(in)) {
		wide[k].Type = t
	}
	if i.Product {
		res, slack = thenRounded(i.Of, wide, of)
	} else {
		res, slack, err = oracle(i.Of, wide, of)
	}
	for k := range res {
		res[k].Type = out[k]
	}
	return res, slack, err
}

// thenRounded is a MatMulThen whose product is rounded before the map: to one side or the other,
// where it lies between.
func thenRounded(i kernels.Instr, in []Tensor, out []kernels.Type) ([]Tensor, [][]float64) {
	if v, ok := i.(kernels.Viewed); ok {
		return thenRounded(v.Of, seenThrough(v.In, in), out)
	}
	then := i.(kernels.MatMulThen)
	c := product(then, in)
	slack := productSlack(c)
	for k, v := range c.V {
		c.V[k] = round(device.BFloat16, v)
		if math.Abs(c.V[k]-v)+slack[k] >= halfStep(v) {
			slack[k] += 2 * halfStep(v)
		} else {
			slack[k] = 0
		}
	}
	return mapped(then.Then, append([]Tensor{c}, in[2:]...), slack, out)
}

// halfStep is how far a number may be from the nearest bfloat16.
func halfStep(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	return math.Ldexp(1, max(math.Ilogb(v), -126)-8)
}

// toNarrow rounds to the nearest, to even where two are as near.
func toNarrow(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func fromNarrow(v uint16) float64 { return float64(math.Float32frombits(uint32(v) << 16)) }

func encodeNarrow(v []float64) []byte {
	var b []byte
	for _, x := range v {
		b = le.LittleEndian.AppendUint16(b, toNarrow(float32(x)))
	}
	return b
}

func decodeNarrow(b []byte) []float64 {
	v := make([]float64, len(b)/2)
	for k := range v {
		v[k] = fromNarrow(le.LittleEndian.Uint16(b[2*k:]))
	}
	return v
}
