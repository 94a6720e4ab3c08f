package expr

import (
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// A GPU's units for products read rows that begin at multiples of 16 bytes, which are 8 elements of
// bfloat16 or 16 of e4m3, several times as fast as others. So where the graph's programs run on
// one, products of rows of an odd length (the 50,257 tokens of GPT-2 first) become products of rows
// that are a little longer, with zeros, and what is looked at of them is a slice. What reads the
// slice element by element, or as logits, reads it where it lies. Gradients follow from that: their
// products are of longer rows, too.

const (
	mostPad   = 16  // rows are made longer by less
	leastRows = 512 // shorter rows are not worth the copy
)

// padded is what an instruction becomes where rows are padded; nil where it stays as it is.
func (g *Graph) padded(i kernels.Instr, in []*gorgonia.Node) *gorgonia.Node {
	switch i := i.(type) {
	case kernels.MatMul:
		return g.paddedProduct(i, in)
	case kernels.Binary:
		return g.paddedBias(i, in)
	case kernels.Reshape:
		return g.paddedReshape(i, in[0])
	case kernels.CrossEntropy:
		if whole, n := g.cut(in[0]); whole != nil && i.Classes == 0 {
			return g.Apply(kernels.CrossEntropy{Classes: n}, whole, in[1])
		}
	}
	return nil
}

// paddedProduct pads the axes of a product that are the last of an operand or of the result.
func (g *Graph) paddedProduct(i kernels.MatMul, in []*gorgonia.Node) *gorgonia.Node {
	a, b := in[0], in[1]
	ta, tb := g.types[a], g.types[b]
	if ta.Dtype != device.Float32 {
		return nil
	}
	// Of the operands' last two axes, which is m, k and n.
	m, ka := len(ta.Shape)-2, len(ta.Shape)-1
	kb, n := len(tb.Shape)-2, len(tb.Shape)-1
	if i.TransA {
		m, ka = ka, m
	}
	if i.TransB {
		kb, n = n, kb
	}
	rows, sums, columns := ta.Shape[m], ta.Shape[ka], tb.Shape[n]
	to := g.pads(rows, columns, sums)
	unfit := func(n int) bool { return n >= leastRows && n%to != 0 }
	padM, padK, padN := i.TransA && unfit(rows), unfit(sums) && (!i.TransA || i.TransB), unfit(columns)
	if !padM && !padK && !padN {
		return nil
	}
	if padK {
		a, b = g.longer(a, ka, to), g.longer(b, kb, to)
	}
	if padM {
		a = g.longer(a, m, to)
	}
	if padN {
		b = g.longer(b, n, to)
	}
	y := g.Apply(i, a, b)
	if g.err != nil {
		return nil
	}
	last := len(g.types[y].Shape) - 1
	if padM {
		y = g.Apply(kernels.Slice{Axis: last - 1, Stop: rows}, y)
	}
	if padN {
		y = g.Apply(kernels.Slice{Axis: last, Stop: columns}, y)
	}
	return y
}

// longer is x with zeros at the end of an axis, up to a multiple.
func (g *Graph) longer(x *gorgonia.Node, axis, to int) *gorgonia.Node {
	return g.Apply(kernels.Pad{Axis: axis, After: -g.types[x].Shape[axis] & (to - 1)}, x)
}

// unpadded is a gradient of what was made longer, if that is what it is of.
func (g *Graph) unpadded(d gradient) gradient {
	for {
		op, ok := d.of.Op().(*Op)
		if !ok {
			return d
		}
		p, ok := op.Instr.(kernels.Pad)
		if !ok {
			return d
		}
		d.of = g.args[d.of][0]
		d.is = g.Apply(kernels.Slice{Axis: p.Axis, Start: p.Before, Stop: p.Before + g.types[d.of].Shape[p.Axis]}, d.is)
	}
}

// cut finds what x is the beginning of the rows of, and how much of them; nil where it is not.
func (g *Graph) cut(x *gorgonia.Node) (whole *gorgonia.Node, n int) {
	op, ok := x.Op().(*Op)
	if !ok {
		return nil, 0
	}
	s, ok := op.Instr.(kernels.Slice)
	if last := len(op.Out.Shape) - 1; !ok || s.Axis != last || s.Start != 0 || op.In[0].Shape[last]-s.Stop >= mostPad {
		return nil, 0
	}
	return g.args[x][0], s.Stop
}

// paddedBias adds a row before the result is cut.
func (g *Graph) paddedBias(i kernels.Binary, in []*gorgonia.Node) *gorgonia.Node {
	for k := range in {
		whole, n := g.cut(in[k])
		other := in[1-k]
		if whole == nil || i.Fn != kernels.Add || !g.types[other].Shape.Equal(device.Shape{n}) {
			continue
		}
		both := [2]*gorgonia.Node{whole, whole}
		both[1-k] = g.Apply(kernels.Pad{After: g.rowOf(whole) - n}, other)
		return g.cutAgain(g.Apply(i, both[:]...), n)
	}
	return nil
}

// paddedReshape cuts rows after others of their axes were joined or taken apart.
func (g *Graph) paddedReshape(i kernels.Reshape, x *gorgonia.Node) *gorgonia.Node {
	whole, n := g.cut(x)
	last := len(i.Shape) - 1
	if whole == nil || last < 0 || i.Shape[last] != n {
		return nil
	}
	to := slices.Clone(i.Shape)
	to[last] = g.rowOf(whole)
	return g.cutAgain(g.Apply(kernels.Reshape{Shape: to}, whole), n)
}

// rowOf is how many elements a row of x has.
func (g *Graph) rowOf(x *gorgonia.Node) int {
	s := g.types[x].Shape
	return s[len(s)-1]
}

func (g *Graph) cutAgain(y *gorgonia.Node, n int) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	return g.Apply(kernels.Slice{Axis: len(g.types[y].Shape) - 1, Stop: n}, y)
}
