package expr

import (
	"maps"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// The logits of a language model are far larger than all else in it. Where nothing but a loss reads
// them, they are never whole: some rows at a time they are made, become part of the loss, then
// their own gradient, and then what that gives for the operands of the product. A loss's gradient
// is linear in what it is multiplied by, so all that is left for the backward is to multiply.

// Pieces says how losses are computed some rows at a time. The zero value is the default.
type Pieces struct {
	Bytes int // of logits, from which on; 0: 64 MiB
	Rows  int // of each piece, at most; 0: 2,048, on a CPU 512
}

const (
	// largeLogits is from how many bytes on logits are not made whole.
	largeLogits = 64 << 20
	// pieceRows is how many rows make a product that is as fast as one of more rows. For each piece
	// the gradient of the weights is read and written once more. A CPU needs fewer, and some of its
	// caches then hold more of a piece.
	pieceRows    = 2048
	pieceRowsCPU = 512
)

// gradient is what a node's gradient by another is, where the node is a scalar.
type gradient struct{ of, is *gorgonia.Node }

// head is a loss of a product of a and b, to which a bias may be added.
type head struct {
	loss       kernels.CrossEntropy
	a, b, bias *gorgonia.Node // the bias may be nil
	trans      bool           // of b
	labels     *gorgonia.Node
	rows       int
}

// InPieces gives outs with losses in pieces, where logits are large and nothing else reads them.
func (g *Graph) InPieces(p Pieces, kind device.Kind, outs []*gorgonia.Node) []*gorgonia.Node {
	if p.Bytes == 0 {
		p.Bytes = largeLogits
	}
	if p.Rows == 0 {
		p.Rows = pieceRows
		if kind == device.KindCPU {
			p.Rows = pieceRowsCPU
		}
	}
	reads, outs := g.readers(outs), slices.Clone(outs)
	for at := 0; at < len(g.order) && g.err == nil; at++ {
		whole, before := g.order[at], len(g.order)
		h, ok := g.headOf(whole, reads)
		if !ok || g.types[g.args[whole][0]].Bytes() < p.Bytes || h.rows <= p.Rows {
			continue
		}
		loss := g.inPieces(h, p.Rows)
		if g.err != nil {
			return nil
		}
		g.order = slices.Concat(g.order[:at], g.order[before:], g.order[at:before])
		at += len(g.order) - before
		for _, vs := range append(slices.Collect(maps.Values(g.args)), outs) {
			for k, v := range vs {
				if v == whole {
					vs[k] = loss
				}
			}
		}
	}
	return outs
}

// readers counts how often each node is read by what outs depend on, being one of them included.
func (g *Graph) readers(outs []*gorgonia.Node) map[*gorgonia.Node]int {
	reads := map[*gorgonia.Node]int{}
	for n := range g.Reachable(nil, outs) {
		for _, x := range g.args[n] {
			reads[x]++
		}
	}
	for _, n := range outs {
		reads[n]++
	}
	return reads
}

// headOf finds of what a node is the loss. What is between is read once.
func (g *Graph) headOf(n *gorgonia.Node, reads map[*gorgonia.Node]int) (h head, ok bool) {
	op, _ := n.Op().(*Op)
	if op == nil || reads[n] == 0 {
		return h, false
	}
	if h.loss, ok = op.Instr.(kernels.CrossEntropy); !ok || h.loss.Rows != 0 {
		return h, false
	}
	at := g.args[n][0]
	h.labels, h.rows = g.args[n][1], g.types[at].Shape[0]
	columns := g.types[at].Shape[1:]
	for reads[at] == 1 {
		op, _ := at.Op().(*Op)
		if op == nil {
			return h, false
		}
		in := g.args[at]
		switch i := op.Instr.(type) {
		case kernels.Reshape:
			at = in[0]
		case kernels.Binary:
			k := slices.IndexFunc(in, func(x *gorgonia.Node) bool { return g.types[x].Shape.Equal(columns) })
			if i.Fn != kernels.Add || k < 0 || h.bias != nil || !g.types[in[1-k]].Shape.Equal(op.Out.Shape) {
				return h, false
			}
			at, h.bias = in[1-k], in[k]
		case kernels.MatMul:
			h.a, h.b, h.trans = in[0], in[1], i.TransB
			if t, ok := h.b.Op().(*Op); ok && t.Instr.String() == (kernels.Transpose{Perm: []int{1, 0}}).String() {
				h.b, h.trans = g.args[h.b][0], !i.TransB
			}
			s := op.Out.Shape
			return h, !i.TransA && len(g.types[h.b].Shape) == 2 && s[len(s)-1] == columns[0]
		default:
			return h, false
		}
	}
	return h, false
}

// IsGradient says whether a node is a loss's gradient that the forward makes.
func (g *Graph) IsGradient(n *gorgonia.Node) bool {
	for _, ds := range g.known {
		if slices.ContainsFunc(ds, func(d gradient) bool { return d.is == n }) {
			return true
		}
	}
	return false
}

// pieceOf is how many of some rows each piece has, but the last: at most so many, as evenly as may
// be. Where that is a multiple of 16 so is each: a sum over its rows can then be in e4m3.
func pieceOf(rows, most int) int {
	n := (rows + most - 1) / most
	each := (rows + n - 1) / n
	if most%mostPad == 0 {
		each = (each + mostPad - 1) / mostPad * mostPad
	}
	return each
}

// inPieces is the loss, and what it notes of its gradients, from a few rows at a time.
func (g *Graph) inPieces(h head, most int) *gorgonia.Node {
	t := g.types[h.a]
	a := g.reshapeTo(h.a, device.Shape{h.rows, t.Shape[len(t.Shape)-1]})
	add := func(sum **gorgonia.Node, x *gorgonia.Node) {
		if *sum != nil {
			x = g.register(*sum, x)
		}
		*sum = x
	}
	var loss, db, dbias *gorgonia.Node
	var da []*gorgonia.Node
	each := pieceOf(h.rows, most)
	for k := 0; k < h.rows; k += each {
		i, to := h.loss, min(k+each, h.rows)
		i.First, i.Rows = k, h.rows
		share := float64(to-i.First) / float64(h.rows)
		x := g.Apply(kernels.Slice{Start: i.First, Stop: to}, a)
		y := g.Apply(kernels.MatMul{TransB: h.trans}, x, h.b)
		if h.bias != nil {
			y = g.register(y, h.bias)
		}
		add(&loss, g.scale(g.Apply(i, y, h.labels), share))
		dy := g.Apply(kernels.CrossEntropyGrad(i), y, h.labels, g.Apply(kernels.Fill{Type: kernels.Type{Dtype: t.Dtype}, C: share}))
		if h.trans {
			add(&db, g.Apply(kernels.MatMul{TransA: true}, dy, x))
		} else {
			add(&db, g.Apply(kernels.MatMul{TransA: true}, x, dy))
		}
		if h.bias != nil {
			add(&dbias, g.Apply(kernels.Reduce{Axes: []int{0}}, dy))
		}
		da = append(da, g.Apply(kernels.MatMul{TransB: !h.trans}, dy, h.b))
	}
	g.known[loss] = []gradient{{a, g.Apply(kernels.Concat{}, da...)}, {h.b, db}}
	if h.bias != nil {
		g.known[loss] = append(g.known[loss], gradient{h.bias, dbias})
	}
	return loss
}
