package passgraph

import "slices"

// minFold is from how many on the same functions in a row are drawn as one.
const minFold = 3

// fold finds runs of the same function with the same results, each of which is read by the next
// alone, and that read no parameter. It gives the last node of each node's run.
func fold(g *Graph, links []Link) map[At]At {
	readers, next, trained := map[At]int{}, map[At]At{}, map[At]bool{}
	for _, l := range links {
		readers[l.From]++
		next[l.From] = l.To
		if g.node(l.From).Kind == Parameter {
			trained[l.To] = true
		}
	}
	group, length := map[At]At{}, map[At]int{}
	for wi := range g.Workers {
		for ni := len(g.Workers[wi].Nodes) - 1; ni >= 0; ni-- { // readers come before what they read
			at := At{wi, ni}
			n, to := g.node(at), next[at]
			last := at
			if readers[at] == 1 && !n.Root && n.Kind == Function && !trained[at] && !trained[to] && same(n, g.node(to)) {
				last = group[to]
			}
			group[at] = last
			length[last]++
		}
	}
	for at, last := range group {
		if length[last] < minFold {
			group[at] = at
		}
	}
	bundle(g, links, group)
	return group
}

// maxApart is how many parameters of one message have a box each.
const maxApart = 2

// bundle has the parameters that the same one function, or the same one message, reads share a box.
func bundle(g *Graph, links []Link, group map[At]At) {
	readers, of := map[At]int{}, map[At][]At{}
	for _, l := range links {
		readers[l.From]++
	}
	for _, l := range links {
		if g.node(l.From).Kind == Parameter && readers[l.From] == 1 {
			of[group[l.To]] = append(of[group[l.To]], l.From)
		}
	}
	for reader, params := range of {
		if g.node(reader).Kind != Function && len(params) <= maxApart {
			continue
		}
		for _, p := range params {
			group[p] = params[len(params)-1]
		}
	}
}

// parameters numbers those of each worker, from 1.
func parameters(g *Graph) map[At]int {
	number := map[At]int{}
	for wi := range g.Workers {
		n := 0
		for ni := range g.Workers[wi].Nodes {
			if at := (At{wi, ni}); g.node(at).Kind == Parameter {
				n++
				number[at] = n
			}
		}
	}
	return number
}

func same(a, b *Node) bool {
	return a.Kind == b.Kind && a.Name == b.Name && slices.EqualFunc(a.Results, b.Results, func(s, t Type) bool { return s.Dtype == t.Dtype && s.Shape.Equal(t.Shape) })
}
