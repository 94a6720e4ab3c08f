package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/program"
	"github.com/weft-project/weft/kernels"
)

// settle decides what the forward saves for the backward: of the nodes from before the backward those that it reads, but for what it
// can as well compute again from others that are kept.
func (c *compiled) settle(before int, gin, gout []*gorgonia.Node) {
	g := c.graph
	forward := g.order[:before]
	read := g.readBy(forward, gin, gout)
	bytes := func(n *gorgonia.Node) int { return g.types[n].Bytes() }
	input := map[*gorgonia.Node]bool{}
	for _, n := range c.in {
		input[n] = true
	}
	result := map[*gorgonia.Node]bool{}
	for _, n := range c.out {
		result[n] = true
	}
	sliced := map[*gorgonia.Node]int{} // bytes of what is read of a node in slices
	for n := range read {
		if op, ok := n.Op().(*Op); ok && isSlice(op.Instr) {
			sliced[g.operands(n)[0]] += bytes(n)
		}
	}
	for i := before - 1; i >= 0; i-- {
		n := forward[i]
		op, ok := n.Op().(*Op)
		if !ok || !read[n] || input[n] || result[n] {
			continue
		}
		in := g.operands(n)
		fresh := 0 // bytes to keep that are not kept yet
		for _, x := range in {
			if !read[x] {
				fresh += bytes(x)
			}
		}
		again := false
		switch op.Instr.(type) {
		case kernels.Reshape, kernels.Transpose, kernels.BroadcastTo, kernels.Fill:
			again = true
		case kernels.Slice:
			again = fresh <= sliced[in[0]]
		case kernels.Unary, kernels.Binary, kernels.Cast, kernels.Normalize, kernels.LayerNorm:
			again = fresh < bytes(n)
		}
		if !again {
			continue
		}
		delete(read, n)
		for _, x := range in {
			read[x] = true
		}
	}
	for i, n := range c.in {
		if read[n] {
			c.reads = append(c.reads, i)
		}
	}
	for _, n := range forward {
		if read[n] && !input[n] {
			c.kept = append(c.kept, n)
		}
	}
}

func isSlice(i kernels.Instr) bool {
	_, ok := i.(kernels.Slice)
	return ok
}

// readBy are the nodes of the forward that the backward reads, which leads from gin to gout.
func (g *Graph) readBy(forward, gin, gout []*gorgonia.Node) map[*gorgonia.Node]bool {
	stop := make(map[*gorgonia.Node]program.Value, len(forward))
	for _, n := range gin {
		if n != nil {
			stop[n] = 0
		}
	}
	for _, n := range forward {
		stop[n] = 0
	}
	read := map[*gorgonia.Node]bool{}
	for n := range g.reachable(stop, gout) {
		for _, x := range g.operands(n) {
			read[x] = true
		}
	}
	for _, n := range gin {
		delete(read, n)
	}
	for _, n := range gout { // a gradient may be a value of the forward itself
		if _, have := stop[n]; have {
			read[n] = true
		}
	}
	return read
}
