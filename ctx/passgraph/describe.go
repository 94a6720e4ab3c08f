package passgraph

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// longest is the longest time of any one node.
func longest(g *Graph) (most time.Duration) {
	for wi := range g.Workers {
		for _, n := range g.Workers[wi].Nodes {
			most = max(most, n.Forward+n.Backward)
		}
	}
	return most
}

// maxColumns bounds the text of a box.
const maxColumns = 28

// describe writes what a box says of its nodes, the last of which gives its results.
func (b *box) describe(g *Graph, nodes []At, params map[At]int, long time.Duration) {
	if b.kind == Parameter {
		b.describeParameters(g, nodes, params)
		return
	}
	last := g.node(nodes[len(nodes)-1])
	name := shown(last.Name)
	var forward, backward time.Duration
	for _, at := range nodes {
		forward += g.node(at).Forward
		backward += g.node(at).Backward
	}
	if long > 0 {
		b.share = min(1, float64(forward+backward)/float64(long))
	}
	types, size, times := typesText(last.Results), bytesText(last.bytes()), timesText(forward, backward)
	switch b.kind {
	case Send:
		b.text = []string{"send → " + peerName(g, last.Peer)}
		if name != "" {
			b.text = append(b.text, name)
		}
		b.text = append(b.text, types+dot+size)
		name = fmt.Sprintf("send %s to %s: %s", idText(last.Message), peerName(g, last.Peer), name)
	case Recv:
		b.text = []string{"recv ← " + peerName(g, last.Peer)}
		name = fmt.Sprintf("recv %s from %s", idText(last.Message), peerName(g, last.Peer))
	default:
		b.text = []string{short(name), types + dot + size}
		if len(nodes) > 1 {
			many := fmt.Sprintf(" ×%d", len(nodes))
			b.text[0] = cut(short(name), maxColumns-columns(many)) + many
			name += many
		}
	}
	hint := []string{name, allTypes(last.Results), size}
	if times != "" {
		b.text = append(b.text, times)
		hint = append(hint, times)
	}
	if last.Site != "" {
		hint = append(hint, "called at "+shown(last.Site))
	}
	if b.root {
		hint = append(hint, "a backward begins here")
	}
	for i := range b.text {
		b.text[i] = cut(b.text[i], maxColumns+4*min(i, 1)) // what follows the first is smaller
	}
	b.hint = strings.Join(hint, "\n")
}

// short is a function's name without its parameters, which the hint has.
func short(name string) string {
	if at := strings.IndexByte(name, '('); at > 0 {
		return name[:at]
	}
	return name
}

// maxListed is how many parameters a box lists.
const maxListed = 4

func (b *box) describeParameters(g *Graph, nodes []At, number map[At]int) {
	var types []Type
	var size int64
	for _, at := range nodes {
		types = append(types, g.node(at).Results...)
		size += g.node(at).bytes()
	}
	first, last := number[nodes[0]], number[nodes[len(nodes)-1]]
	b.text = []string{fmt.Sprintf("param %d", first)}
	switch {
	case len(nodes) == 1:
	case last-first == len(nodes)-1:
		b.text[0] = fmt.Sprintf("params %d–%d", first, last)
	default:
		b.text[0] = plural(len(nodes), "param")
	}
	for i, t := range types {
		if i == maxListed-1 && len(types) > maxListed {
			b.text = append(b.text, fmt.Sprintf("and %d more", len(types)-i))
			break
		}
		b.text = append(b.text, cut(t.String()+dot+bytesText(t.bytes()), maxColumns+4))
	}
	b.hint = b.text[0] + "\n" + allTypes(types) + "\n" + bytesText(size)
}

// maxHint is how many types a hint lists.
const maxHint = 8

func allTypes(ts []Type) string {
	var out []string
	for i, t := range ts {
		if i == maxHint {
			out = append(out, fmt.Sprintf("and %d more", len(ts)-i))
			break
		}
		out = append(out, t.String())
	}
	return strings.Join(out, ", ")
}

func linkHint(g *Graph, l Link) string {
	from, to := g.node(l.From), g.node(l.To)
	if l.Message == 0 {
		return bytesText(l.Bytes)
	}
	hint := fmt.Sprintf("message %s, %s → %s\n%s, %s", idText(l.Message), peerName(g, to.Peer), peerName(g, from.Peer), allTypes(from.Results), bytesText(l.Bytes))
	if l.Back > 0 {
		hint += "\n" + gradientsText(l.Back) + " back"
	}
	return hint
}

// peerName is a worker's name, or its rank where it has no part in the graph.
func peerName(g *Graph, rank int) string {
	i, ok := slices.BinarySearchFunc(g.Workers, rank, func(w Worker, rank int) int { return w.Rank - rank })
	if ok && g.Workers[i].Name != "" {
		return shown(g.Workers[i].Name)
	}
	return fmt.Sprintf("rank %d", rank)
}

// heading says of a worker what a split that is wrong shows by: its functions, times, memory and
// messages.
func heading(g *Graph, wi int, links []Link) []string {
	w := &g.Workers[wi]
	head := []string{cut(peerName(g, w.Rank), maxColumns)}
	if w.Lost != "" {
		return append(head, cut("lost: "+shown(w.Lost), maxColumns+4))
	}
	functions, params := 0, 0
	var weights int64
	var forward, backward time.Duration
	for i := range w.Nodes {
		n := &w.Nodes[i]
		forward, backward = forward+n.Forward, backward+n.Backward
		switch n.Kind {
		case Function:
			functions++
		case Parameter:
			params++
			weights += n.bytes()
		}
	}
	head = append(head, plural(functions, "function"))
	if params > 0 {
		head = append(head, plural(params, "param")+dot+bytesText(weights))
	}
	if times := timesText(forward, backward); times != "" {
		head = append(head, times)
	}
	if w.Held > 0 {
		head = append(head, "holds "+bytesText(w.Held))
	}
	sent, got := trafficOf(links, func(l Link) bool { return l.From.Worker == wi }), trafficOf(links, func(l Link) bool { return l.To.Worker == wi })
	if sent.messages > 0 {
		head = append(head, fmt.Sprintf("%d sent%s%s", sent.messages, dot, bytesText(sent.bytes)))
	}
	if got.messages > 0 {
		head = append(head, fmt.Sprintf("%d received%s%s", got.messages, dot, bytesText(got.bytes)))
	}
	if got.back > 0 {
		head = append(head, gradientsText(got.back)+" sent")
	}
	if sent.back > 0 {
		head = append(head, gradientsText(sent.back)+" received")
	}
	if w.Omitted > 0 {
		head = append(head, fmt.Sprintf("%d nodes left out", w.Omitted))
	}
	return head
}

// traffic is messages, what they carried, and the gradients that came back.
type traffic struct {
	messages    int
	bytes, back int64
}

// trafficOf counts those of some links.
func trafficOf(links []Link, of func(Link) bool) (t traffic) {
	for _, l := range links {
		if l.Message != 0 && of(l) {
			t.messages++
			t.bytes += l.Bytes
			t.back += l.Back
		}
	}
	return t
}

func gradientsText(bytes int64) string { return "gradients" + dot + bytesText(bytes) }
