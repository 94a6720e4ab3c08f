package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/device"
)

// Narrow is an instruction of which some operands and results lie in memory as bfloat16. It reads
// such operands as float32, which is exact, and rounds such results to the nearest, to even where
// two are as near, and to infinity beyond 3.396e38: as programs may have it that compute products
// of bfloat16 (see [Narrower]). Views lie within: Narrow{Viewed{…}}.
type Narrow struct {
	Of      Instr
	Outs    []bool // by result: it is bfloat16; none where they are fewer
	Product bool   // and so is the product of a MatMulThen, before its map reads it
}

// Narrower is a [Backend] that knows [Narrow].
type Narrower interface {
	// Narrows says whether factors of products are rounded to bfloat16, so that to keep them as
	// that loses nothing.
	Narrows() bool
}

func (i Narrow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", i.Of)
	for k, is := range i.Outs {
		if is {
			fmt.Fprintf(&b, " →%d:bfloat16", k)
		}
	}
	if i.Product {
		b.WriteString(" product:bfloat16")
	}
	return b.String()
}

// Infer takes what Of takes, where any float32 may be bfloat16.
func (i Narrow) Infer(in []Type) ([]Type, error) {
	switch i.Of.(type) {
	case nil, Narrow:
		return nil, refuse(i, in, "expected an instruction that is not narrow itself")
	}
	out, err := i.Of.Infer(Widened(in))
	if err != nil {
		return nil, err
	}
	if i.Product && !i.hasProduct(in) {
		return nil, refuse(i, in, "only a MatMulThen of float32 has a product to round")
	}
	if len(i.Outs) > len(out) {
		return nil, refuse(i, in, "there are %d results, and %d are said to be bfloat16 or not", len(out), len(i.Outs))
	}
	out = slices.Clone(out)
	for k, is := range i.Outs {
		if !is {
			continue
		}
		if out[k].Dtype != device.Float32 {
			return nil, refuse(i, in, "result %d is %v; only float32 can be rounded to bfloat16", k, out[k])
		}
		out[k].Dtype = device.BFloat16
	}
	return out, nil
}

// Elements of one size lie at the same places.
func (i Narrow) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Dtype == out[result].Dtype && overwrites(i.Of, Widened(in), Widened(out), result, operand)
}

func (i Narrow) hasProduct(in []Type) bool {
	_, ok := Unviewed(i.Of).(MatMulThen)
	return ok && Widened(in[:1])[0].Dtype == device.Float32
}

// Widened are types with float32 for bfloat16.
func Widened(ts []Type) []Type {
	if !slices.ContainsFunc(ts, IsNarrow) {
		return ts
	}
	ts = slices.Clone(ts)
	for k := range ts {
		if IsNarrow(ts[k]) {
			ts[k].Dtype = device.Float32
		}
	}
	return ts
}

// IsNarrow says whether a tensor lies in memory as bfloat16.
func IsNarrow(t Type) bool { return t.Dtype == device.BFloat16 }

// Rounding says what of an instruction may be kept as bfloat16 until a backward reads it, where
// products are of bfloat16: what products and attention make or read, and elementwise functions of
// that. What is summed up or normalised, such as a stream of residuals, stays as it is, and so do
// statistics. The zero Rounding is that of an instruction whose values all stay as they are.
type Rounding struct {
	Result   bool // its first result
	Operands bool // its operands
	First    int  // of which the first so many; 0: all
	Sums     bool // but not an operand as large as the result
	Moves    bool // its operands if its result, which shows them
	Factors  bool // its operands are rounded before it reads them, so that rounding them loses nothing
}

// RoundingOf is the Rounding of an instruction.
func RoundingOf(i Instr) Rounding {
	of, ok := i.(roundable)
	if !ok {
		return Rounding{}
	}
	return of.rounding()
}

// Keeps says whether operand k may be kept so.
func (r Rounding) Keeps(k int) bool { return r.Operands && (r.First == 0 || k < r.First) }

type roundable interface{ rounding() Rounding }

// ReadsNarrow says whether an instruction computes as well with operand k in bfloat16, if that was
// computed as such.
func ReadsNarrow(i Instr, k int) bool {
	of, ok := Unviewed(i).(narrowReader)
	return ok && of.readsNarrow(k)
}

type narrowReader interface{ readsNarrow(k int) bool }
