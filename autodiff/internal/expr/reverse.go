package expr

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// pullback applies the rule of one node: the gradients of its operands, of exactly their types; nil
// where there is none or it is not needed. Broadcasting is undone here, for all ops.
func (g *Graph) pullback(op *Op, in []*gorgonia.Node, y, gy *gorgonia.Node, need []bool) (gorgonia.Nodes, error) {
	grads := make(gorgonia.Nodes, len(in))
	r := ruleOf(op.Instr)
	if r == nil {
		return nil, fmt.Errorf("%w: %v has no gradient rule", ErrGradient, op.Instr)
	}
	d := r(&vjp{Graph: g, in: in, y: y, gy: gy, need: need, result: op.Result})
	for j, x := range in {
		if !need[j] || j >= len(d) || d[j] == nil {
			continue
		}
		grads[j] = g.unbroadcast(d[j], g.types[x].Shape)
		if g.err == nil && g.types[grads[j]].String() != g.types[x].String() {
			return nil, fmt.Errorf("%w: the rule of %v gives %v for operand %d, which is %v", ErrGradient, op.Instr, g.types[grads[j]], j, g.types[x])
		}
	}
	return grads, g.err
}

// Reverse adds the vector-Jacobian product to the graph: given the gradients gouts of outs (nil:
// none), it returns the gradient of each node of wrt, nil where outs do not depend on it. It may be
// called many times on one graph; nothing is kept in nodes.
func (g *Graph) Reverse(outs, gouts, wrt []*gorgonia.Node) ([]*gorgonia.Node, error) {
	if g.aside == nil {
		g.aside = gorgonia.NewGraph()
		defer func() { g.aside = nil }()
	}
	nodes := g.order[:len(g.order):len(g.order)] // what the rules add lies beyond
	need := g.Dependents(nodes, wrt)
	grad := map[*gorgonia.Node]*gorgonia.Node{}
	accumulate := func(n, d *gorgonia.Node) {
		if have := grad[n]; have != nil {
			d = g.register(have, d)
		}
		grad[n] = d
	}
	for i, o := range outs {
		if gouts[i] != nil && need[o] {
			accumulate(o, gouts[i])
		}
	}
	for i := len(nodes) - 1; i >= 0 && g.err == nil; i-- {
		n := nodes[i]
		op, ok := n.Op().(*Op)
		if !ok || grad[n] == nil || !need[n] {
			continue
		}
		if ds := g.known[n]; ds != nil {
			for _, d := range ds {
				if need[d.of] {
					d = g.unpadded(d)
					accumulate(d.of, g.mul(grad[n], d.is))
				}
			}
			continue
		}
		in := g.Operands(n)
		wanted, some := op.DiffWRT(len(in)), false
		for j, x := range in {
			wanted[j] = wanted[j] && need[x]
			some = some || wanted[j]
		}
		if !some {
			continue
		}
		ds, err := g.pullback(op, in, n, grad[n], wanted)
		if err != nil {
			return nil, fmt.Errorf("gradient of %v: %w", op, err)
		}
		for j, d := range ds {
			if d != nil {
				accumulate(in[j], d)
			}
		}
	}
	found := make([]*gorgonia.Node, len(wrt))
	for i, w := range wrt {
		found[i] = grad[w]
	}
	return found, g.err
}

// Dependents marks the nodes through which a gradient can reach one of wrt.
func (g *Graph) Dependents(nodes, wrt []*gorgonia.Node) map[*gorgonia.Node]bool {
	need := map[*gorgonia.Node]bool{}
	for _, w := range wrt {
		need[w] = true
	}
	for _, n := range nodes {
		op, ok := n.Op().(*Op)
		if !ok || need[n] {
			continue
		}
		in := g.Operands(n)
		for j, d := range op.DiffWRT(len(in)) {
			if d && need[in[j]] {
				need[n] = true
				break
			}
		}
	}
	return need
}
