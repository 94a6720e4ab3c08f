package ctx

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx/passgraph"
)

// Graph gathers the graph of the pass that c carries from all workers that take part in it, for a
// picture: see package passgraph. roots are tensors of this worker that a backward is to begin at,
// which need not be of the pass; those of earlier backwards are marked too. A worker that is lost,
// or does not answer within ten seconds, is in the graph as lost. Every message that brought
// tensors is there, whether they want gradients or not, with their bytes, and those of the
// gradients that came back. Times are known of workers that trace.
func Graph(c context.Context, roots ...*autodiff.Tensor) (*passgraph.Graph, error) {
	p, ok := From(c)
	if !ok {
		return nil, ErrNoPass
	}
	mine, err := p.graphPart(autodiff.EdgesOf(roots...))
	if err != nil {
		return nil, p.err("graph", err)
	}
	g, err := passgraph.Merge(uint64(p.id), p.gather(c, mine)...)
	if err == nil {
		err = AsTimeout(context.Cause(c))
	}
	if err != nil {
		return nil, p.err("graph", err)
	}
	return g, nil
}

// graphTimeout bounds asking one worker; maxGraph how many are asked, maxAsking how many at a time.
const (
	graphTimeout = 10 * time.Second
	maxGraph     = 1024
	maxAsking    = 32
)

// gather asks the workers that this one knows in the pass for their parts, then those that they
// know, and so on; each once.
func (p *Pass) gather(c context.Context, mine passgraph.Worker) []passgraph.Worker {
	parts := []passgraph.Worker{mine}
	asked := map[int]bool{mine.Rank: true}
	for next := 0; next < len(parts); {
		var ask []WorkerID
		for _, part := range parts[next:] {
			for _, rank := range part.Peers {
				if !asked[rank] && len(asked) < maxGraph {
					asked[rank] = true
					ask = append(ask, WorkerID(rank))
				}
			}
		}
		next = len(parts)
		answers := make([]passgraph.Worker, len(ask))
		places := make(chan struct{}, maxAsking)
		var wg sync.WaitGroup
		for i, w := range ask {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				answers[i] = p.ask(c, w)
			})
		}
		wg.Wait()
		parts = append(parts, answers...)
	}
	return parts
}

// ask gets the part of one worker.
func (p *Pass) ask(c context.Context, w WorkerID) passgraph.Worker {
	p.mu.Lock()
	err := p.lost[w]
	p.mu.Unlock()
	var part passgraph.Worker
	if err == nil {
		c, cancel := context.WithTimeout(c, graphTimeout)
		defer cancel()
		part, err = p.ct.links.AskGraph(c, w, p.id)
	}
	if err == nil {
		err = part.Check()
	}
	if err == nil && part.Rank != int(w) {
		err = fmt.Errorf("%w: it is of rank %d", passgraph.ErrPart, part.Rank)
	}
	if err != nil {
		return passgraph.Lose(int(w), p.ct.links.Name(w), err)
	}
	return part
}

// GraphPart is this worker's part of a pass's graph, for a worker that gathers it.
func (ct *Container) GraphPart(id PassID) (passgraph.Worker, error) {
	p, err := ct.find(id, "graph")
	if err != nil {
		return passgraph.Worker{}, err
	}
	part, err := p.graphPart(nil)
	return part, p.err("graph", err)
}

// record is what a pass keeps for its graph alone.
type record struct {
	carried []passgraph.Node                 // the ends of messages that no gradients come back to; the last maxCarried
	dropped int                              // those before
	spent   []*sendFunction                  // whose graph a backward used up
	roots   []autodiff.Edge                  // of backwards
	times   map[*autodiff.Node]time.Duration // that the gradients took; where somebody observes
}

// maxCarried leaves room in a part for what was computed.
const maxCarried = passgraph.MaxNodes / 2

func (r *record) carry(n passgraph.Node) {
	if r.carried = append(r.carried, n); len(r.carried) > maxCarried {
		r.carried, r.dropped = r.carried[1:], r.dropped+1
	}
}

// uncarry takes back what was not sent after all.
func (r *record) uncarry(id MessageID) {
	r.carried = slices.DeleteFunc(r.carried, func(n passgraph.Node) bool { return n.Kind == passgraph.Send && n.Message == uint64(id) })
}

// began notes a backward of this worker. Only so many are kept, as of what it spent.
func (r *record) began(roots []autodiff.Edge) { r.roots = newest(append(r.roots, roots...)) }

func (r *record) spend(s *sendFunction) {
	if s != nil { // another backward was faster
		r.spent = newest(append(r.spent, s))
	}
}

// took notes how long the gradients of a function took; of as many functions as a part can have.
func (r *record) took(n *autodiff.Node, d time.Duration) {
	if r.times == nil {
		r.times = map[*autodiff.Node]time.Duration{}
	}
	if _, have := r.times[n]; have || len(r.times) < passgraph.MaxNodes {
		r.times[n] += d
	}
}

func newest[T any](of []T) []T { return of[max(0, len(of)-passgraph.MaxNodes):] }

// graphPart describes what this worker recorded: all that leads to what it sent, to roots, and to
// tensors of the pass; and before that the other tensors that it sent and got.
func (p *Pass) graphPart(roots []autodiff.Edge) (passgraph.Worker, error) {
	d := describer{place: map[*autodiff.Node]int{}, recvs: map[*autodiff.Node]*recvFunction{}, sends: map[*autodiff.Node]*sendFunction{}, back: map[*autodiff.Node]int64{}}
	p.mu.Lock()
	if p.left {
		p.mu.Unlock()
		return d.part, ErrLeft
	}
	sends := slices.Concat(p.shown.spent, slices.Collect(maps.Values(p.sends)))
	roots = slices.Concat(p.shown.roots, roots)
	for _, s := range sends {
		d.back[s.node] = s.back
	}
	d.part.Nodes, d.part.Omitted = slices.Clone(p.shown.carried), p.shown.dropped
	d.recvs, d.times = maps.Clone(p.recvs), maps.Clone(p.shown.times)
	for _, w := range p.known {
		d.part.Peers = append(d.part.Peers, int(w))
	}
	p.mu.Unlock()
	d.part.Rank, d.part.Name, d.part.Held = int(p.ct.me), p.ct.links.Name(p.ct.me), p.info().Bytes
	slices.Sort(d.part.Peers)
	slices.SortFunc(sends, func(a, b *sendFunction) int { return cmp.Compare(a.id, b.id) })
	for _, s := range sends {
		d.sends[s.node] = s
	}
	d.describe(sends, p.arena.Nodes(), roots)
	d.part.Bound()
	return d.part, nil
}

// describer makes a part of nodes of the tape.
type describer struct {
	part  passgraph.Worker
	place map[*autodiff.Node]int // in part.Nodes; −1: on its way there
	sends map[*autodiff.Node]*sendFunction
	recvs map[*autodiff.Node]*recvFunction
	times map[*autodiff.Node]time.Duration
	back  map[*autodiff.Node]int64 // of send functions
}

func (d *describer) describe(sends []*sendFunction, recorded []*autodiff.Node, roots []autodiff.Edge) {
	for _, s := range sends {
		d.visit(s.node)
	}
	for _, n := range recorded {
		d.visit(n)
	}
	for _, r := range slices.SortedFunc(maps.Values(d.recvs), func(a, b *recvFunction) int { return cmp.Compare(a.id, b.id) }) {
		d.visit(r.node) // which nothing read
	}
	for _, e := range roots {
		if e.Node != nil {
			d.visit(e.Node)
			d.part.Nodes[d.place[e.Node]].Root = true
		}
	}
}

// visit puts a node into the part, and before it all that it reads. It keeps its own stack: chains
// may be long.
func (d *describer) visit(n *autodiff.Node) {
	stack := []*autodiff.Node{n}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		at, seen := d.place[n]
		if !seen {
			d.place[n] = -1
			for _, e := range slices.Backward(n.Next()) {
				if _, seen := d.place[e.Node]; e.Node != nil && !seen {
					stack = append(stack, e.Node)
				}
			}
			continue
		}
		stack = stack[:len(stack)-1]
		if at < 0 {
			d.place[n] = len(d.part.Nodes)
			d.part.Nodes = append(d.part.Nodes, d.node(n))
		}
	}
}

func (d *describer) node(n *autodiff.Node) passgraph.Node {
	out := passgraph.Node{Kind: passgraph.Function, Name: n.Name(), Forward: n.Took(), Backward: d.times[n]}
	if s := d.sends[n]; s != nil {
		out.Kind, out.Name, out.Message, out.Peer = passgraph.Send, s.what, uint64(s.id), int(s.to)
		out.Backward, out.Back = 0, d.back[n] // it passes on
	} else if r := d.recvs[n]; r != nil {
		out.Kind, out.Name, out.Message, out.Peer = passgraph.Recv, "", uint64(r.id), int(r.from)
	} else if n.Leaf() != nil {
		out.Kind, out.Name = passgraph.Parameter, ""
	}
	if s := n.Site(); s != (autodiff.Site{}) {
		out.Site = fmt.Sprintf("%s:%d", filepath.Base(s.File), s.Line)
	}
	for _, t := range n.Results() {
		out.Results = append(out.Results, passgraph.Type{Dtype: t.Dtype, Shape: t.Shape})
	}
	for _, e := range n.Next() {
		if e.Node != nil {
			out.Inputs = append(out.Inputs, passgraph.Input{Node: d.place[e.Node], Slot: e.Slot})
		}
	}
	return out
}
