package program

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weft-project/weft/kernels"
)

// Dot draws the unit for Graphviz: a box for each instruction, an edge for each value that it
// reads, thicker the larger the value.
func (u *Unit) Dot(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n\tnode [shape=box, fontname=\"sans-serif\", style=filled, fillcolor=white]\n", u.Name)
	for _, v := range u.Given {
		fmt.Fprintf(&b, "\tv%d [label=%q, shape=ellipse]\n", v, u.names([]Value{v}, true))
	}
	makers := u.Makers()
	node := func(v Value) string {
		if k := makers[v]; k >= 0 {
			return fmt.Sprintf("i%d", k)
		}
		return fmt.Sprintf("v%d", v)
	}
	edge := func(v Value, to string) {
		width := 1
		for n := u.Types[v].Bytes(); n >= 1<<16 && width < 6; n >>= 4 {
			width++
		}
		fmt.Fprintf(&b, "\t%s -> %s [label=%q, penwidth=%d]\n", node(v), to, fmt.Sprintf("%%%d %v", v, u.Types[v].Shape), width)
	}
	for k, i := range u.Insts {
		c := u.cost(i)
		label := describe(i.Instr)
		if !alias(i) {
			label = strings.ReplaceAll(label, " + ", "\n+ ") + fmt.Sprintf("\n%s flops, %s", inUnits(c.Flops), inBytes(c.Bytes))
		}
		fmt.Fprintf(&b, "\ti%d [label=%q, fillcolor=%q]\n", k, label, colour(i.Instr))
		for n, v := range i.In {
			if slices.Index(i.In, v) == n {
				edge(v, fmt.Sprintf("i%d", k))
			}
		}
	}
	for k, v := range u.Results {
		fmt.Fprintf(&b, "\tr%d [label=\"result %d\", shape=ellipse]\n", k, k)
		edge(v, fmt.Sprintf("r%d", k))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Dot draws the program for Graphviz.
func (p *Program) Dot(w io.Writer) error { return p.unit.Dot(w) }

// colour tells products, maps and the rest apart.
func colour(i kernels.Instr) string {
	switch i := i.(type) {
	case kernels.Viewed:
		return colour(i.Of)
	case kernels.Narrow:
		return colour(i.Of)
	case kernels.MatMul, kernels.MatMulThen:
		return "lightsteelblue"
	case kernels.Map, kernels.Unary, kernels.Binary, kernels.Reduce:
		return "palegreen"
	case kernels.Reshape:
		return "white"
	}
	return "wheat"
}
