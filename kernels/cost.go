package kernels

import "github.com/weft-project/weft/device"

// Cost is an estimate of what running an instruction takes.
type Cost struct {
	Flops int // operations on numbers: a multiplication and an addition are two, a function of one element is one
	Bytes int // read and written, each once; what is read through a view counts as much as the view shows without repeating
}

// Plus adds two costs.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Flops + d.Flops, c.Bytes + d.Bytes} }

// CostOf estimates an instruction with operands of types in, which Infer accepts with results of
// types out.
func CostOf(i Instr, in, out []Type) Cost {
	var views []*View
	stored := in
	if n, ok := i.(Narrow); ok {
		i, in = n.Of, Widened(in)
	}
	if v, ok := i.(Viewed); ok {
		i, in, views = v.Of, v.Seen(in), v.In
	}
	var c Cost
	if of, ok := i.(counted); ok {
		c.Flops = of.flops(in, out)
	}
	for _, t := range out {
		c.Bytes += t.Bytes()
	}
	for k, t := range stored {
		if views != nil && views[k] != nil {
			c.Bytes += views[k].distinct() * t.Dtype.Size()
		} else {
			c.Bytes += t.Bytes()
		}
	}
	switch i.(type) {
	case Reshape:
		if views == nil { // nothing moves
			c.Bytes = 0
		}
	case Slice:
		c.Bytes = 2 * out[0].Bytes()
	case Gather:
		c.Bytes = 2*out[0].Bytes() + in[1].Bytes()
	case OnRows: // the rows of each table are read and written, those of the gradient read
		c.Bytes = 2*len(out)*in[1].Bytes() + in[1].Bytes() + in[len(in)-1].Bytes()
	}
	return c
}

// distinct is how many elements a view shows, each counted once.
func (v *View) distinct() int {
	n := 1
	for k, d := range v.Shape {
		if v.Strides[k] != 0 || d == 0 {
			n *= d
		}
	}
	return n
}

// Again is about how many additions it takes to compute an element of an instruction's result, of
// this dtype, anew. It is false for what is better kept.
func Again(i Instr, d device.Dtype) (additions int, ok bool) {
	of, ok := i.(cheap)
	if !ok {
		return 0, false
	}
	return of.again(d), true
}

// cheap is an instruction that is worth computing again, to save the memory of its result.
type cheap interface{ again(d device.Dtype) int }

// counted is an instruction that computes; the others move.
type counted interface{ flops(in, out []Type) int }

func elems(ts []Type, k int) int { return ts[k].Shape.Elems() }
