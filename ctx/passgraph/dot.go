package passgraph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteDOT writes the whole graph in Graphviz' language: dot -Tsvg makes a picture of it.
func (g *Graph) WriteDOT(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "digraph pass {\n\tlabel=%s;\n\tlabelloc=t;\n\tfontname=monospace;\n\tnode [shape=box, fontname=monospace, fontsize=10];\n\tedge [fontname=monospace, fontsize=9];\n", quote(title(g)))
	links := g.Links()
	for wi := range g.Workers {
		worker := &g.Workers[wi]
		style := "rounded"
		if worker.Lost != "" {
			style = "dashed"
		}
		fmt.Fprintf(w, "\tsubgraph cluster_%d {\n\t\tlabel=%s;\n\t\tstyle=%s;\n", wi, quote(strings.Join(heading(g, wi, links), "\n")), style)
		if len(worker.Nodes) == 0 { // or it would not be drawn
			fmt.Fprintf(w, "\t\tn%d [shape=plaintext, label=\"\"];\n", wi)
		}
		for ni := range worker.Nodes {
			fmt.Fprintf(w, "\t\t%s [%s];\n", dotName(At{wi, ni}), g.attributes(&worker.Nodes[ni]))
		}
		fmt.Fprintln(w, "\t}")
	}
	for _, l := range links {
		fmt.Fprintf(w, "\t%s -> %s", dotName(l.From), dotName(l.To))
		if l.Message != 0 {
			label := idText(l.Message) + "\n" + bytesText(l.Bytes)
			if l.Back > 0 {
				label += "\n" + bytesText(l.Back) + " back"
			}
			fmt.Fprintf(w, " [style=bold, color=blue, label=%s]", quote(label))
		}
		fmt.Fprintln(w, ";")
	}
	fmt.Fprintln(w, "}")
	return w.Flush()
}

func dotName(at At) string { return fmt.Sprintf("n%d_%d", at.Worker, at.Node) }

func (g *Graph) attributes(n *Node) string {
	types, size := allTypes(n.Results), bytesText(n.bytes())
	label := []string{shown(n.Name), types, size}
	shape := "style=filled, fillcolor=white"
	switch n.Kind {
	case Parameter:
		label[0], shape = "param", "style=\"filled,rounded\", fillcolor=\"#dafbe1\""
	case Send:
		label[0], shape = "send → "+peerName(g, n.Peer), "style=\"filled,rounded\", fillcolor=\"#fff8c5\""
	case Recv:
		label[0], shape = "recv ← "+peerName(g, n.Peer), "style=\"filled,rounded\", fillcolor=\"#ddf4ff\""
	}
	if times := timesText(n.Forward, n.Backward); times != "" {
		label = append(label, times)
	}
	if n.Root {
		shape += ", penwidth=3"
	}
	return shape + ", label=" + quote(strings.Join(label, "\n"))
}

// quote makes a string of Graphviz' language.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
