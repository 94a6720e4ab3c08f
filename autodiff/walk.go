package autodiff

import "slices"

// Walk visits every node that gradients reach which enter the graph at these edges, once each, in a
// fixed order.
func Walk(from []Edge, visit func(*Node)) {
	var few [16]*Node
	seen, many := few[:0], map[*Node]struct{}(nil)
	enter := func(n *Node) {
		if n == nil {
			return
		}
		if many == nil && slices.Contains(seen, n) {
			return
		}
		if many == nil && len(seen) == cap(few[:]) {
			many = make(map[*Node]struct{}, 4*len(few))
			for _, m := range seen {
				many[m] = struct{}{}
			}
		}
		if many != nil {
			if _, twice := many[n]; twice {
				return
			}
			many[n] = struct{}{}
		}
		seen = append(seen, n)
	}
	for _, e := range from {
		enter(e.Node)
	}
	for i := 0; i < len(seen); i++ {
		visit(seen[i])
		for _, e := range seen[i].Next() {
			enter(e.Node)
		}
	}
}

// EdgesOf is where gradients of these tensors go, one edge per tensor.
func EdgesOf(tensors ...*Tensor) []Edge {
	es := make([]Edge, len(tensors))
	for i, t := range tensors {
		if t != nil {
			es[i] = t.edge
		}
	}
	return es
}
