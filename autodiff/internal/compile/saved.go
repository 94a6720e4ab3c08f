package compile

import (
	"fmt"
	"math"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/kernels"
)

// chooseSaved decides what the forward saves for the backward: of the nodes from before the
// backward those that it reads, but for what it can as well compute again from others that are
// kept.
func (c *Function) chooseSaved(before int, gin, gout []*gorgonia.Node) {
	s := saving{g: c.graph, fixed: map[*gorgonia.Node]bool{}, work: map[*gorgonia.Node]int{}}
	forward := c.graph.Nodes()[:before]
	s.keep = readBy(c.graph, forward, gin, gout)
	for _, ns := range [2][]*gorgonia.Node{c.in, c.out} {
		for _, n := range ns {
			s.fixed[n] = true
		}
	}
	s.unmoved(forward)
	s.unsliced(forward)
	for _, n := range forward {
		if work, price := s.again(n); s.keep[n] && !s.fixed[n] && s.pays(n, work, price) {
			s.replace(n)
			s.work[n] = work
		}
	}
	isInput := map[*gorgonia.Node]bool{}
	for i, n := range c.in {
		isInput[n] = true
		if s.keep[n] {
			c.Reads = append(c.Reads, i)
		}
	}
	for _, n := range forward {
		if s.keep[n] && !isInput[n] {
			c.kept = append(c.kept, n)
		}
	}
	if c.Home.Narrows {
		c.narrow = s.narrow(forward, c.kept)
		c.roundOnce(&s, s.factors(c.in, c.out, before, gin, gout))
	}
}

// saving is the choice under way.
type saving struct {
	g     *expr.Graph
	keep  map[*gorgonia.Node]bool
	fixed map[*gorgonia.Node]bool // inputs and results: there without being computed again
	work  map[*gorgonia.Node]int  // of nodes that are computed again, in additions
}

const (
	// maxWork is how many additions a byte is worth that need not be kept: for each element of
	// float32 a few of them, a normalisation or an exponential, but not GELU, nor a chain.
	maxWork = 2
	// never is the work of what is not computed again. Sums of it do not overflow.
	never = math.MaxInt / 1024
)

func (s *saving) bytes(n *gorgonia.Node) int { return s.g.Type(n).Bytes() }

// pays says whether to compute n again, by so much work, from what is kept and price bytes more.
func (s *saving) pays(n *gorgonia.Node, work, price int) bool {
	saved := s.bytes(n) - price
	return saved > 0 && work <= maxWork*saved
}

// unmoved keeps what a move shows instead of what it makes.
func (s *saving) unmoved(forward []*gorgonia.Node) {
	for i := len(forward) - 1; i >= 0; i-- {
		n := forward[i]
		if op, ok := n.Op().(*expr.Op); ok && s.keep[n] && !s.fixed[n] && isMove(op.Instr) && !s.copied(op, n) {
			s.replace(n)
		}
	}
}

// unsliced keeps a whole instead of slices that make it up.
func (s *saving) unsliced(forward []*gorgonia.Node) {
	of := map[*gorgonia.Node]int{}
	for _, n := range forward {
		if op, ok := n.Op().(*expr.Op); ok && s.keep[n] {
			if _, slice := op.Instr.(kernels.Slice); slice {
				of[s.g.Operands(n)[0]] += s.bytes(n)
			}
		}
	}
	for whole, bytes := range of {
		if bytes >= s.bytes(whole) {
			s.keep[whole] = true
		}
	}
}

// copied says that n is a reshape of a transpose: no view shows that, so the copy that the forward
// makes is worth keeping.
func (s *saving) copied(op *expr.Op, n *gorgonia.Node) bool {
	if _, reshape := op.Instr.(kernels.Reshape); !reshape {
		return false
	}
	of, ok := s.g.Operands(n)[0].Op().(*expr.Op)
	if !ok {
		return false
	}
	_, transpose := of.Instr.(kernels.Transpose)
	return transpose
}

// isMove says whether a result shows its operand whole, and isReorder whether each element once.
func isMove(i kernels.Instr) bool {
	switch i.(type) {
	case kernels.BroadcastTo, kernels.Fill:
		return true
	}
	return isReorder(i)
}

func isReorder(i kernels.Instr) bool {
	switch i.(type) {
	case kernels.Reshape, kernels.Transpose:
		return true
	}
	return false
}

// workFor is what n costs, all of it.
func (s *saving) workFor(n *gorgonia.Node, i kernels.Instr) int {
	t := s.g.Type(n)
	w, ok := kernels.Again(i, t.Dtype)
	if !ok {
		return never
	}
	return w * t.Shape.Elems()
}

// again is the work of computing n once more, and the bytes that have to be kept for it and are not
// yet.
func (s *saving) again(n *gorgonia.Node) (work, price int) {
	op, ok := n.Op().(*expr.Op)
	if !ok {
		return never, 0
	}
	if work = s.workFor(n, op.Instr); work == never {
		return never, 0
	}
	for _, x := range s.g.Operands(n) {
		w, p := s.have(x)
		work, price = min(work+w, never), price+p
	}
	return work, price
}

// have is what it costs to have x: nothing where it is kept, and otherwise the cheaper of keeping
// it and of computing it again.
func (s *saving) have(x *gorgonia.Node) (work, price int) {
	if s.keep[x] {
		return 0, 0
	}
	if w, known := s.work[x]; known {
		return w, 0
	}
	if !s.fixed[x] {
		if w, p := s.againOnce(x); s.pays(x, w, p) {
			return w, p
		}
	}
	return 0, s.bytes(x)
}

// againOnce is again for an operand of an operand, where whatever is not there has to be kept: so
// that no search goes deep.
func (s *saving) againOnce(n *gorgonia.Node) (work, price int) {
	op, ok := n.Op().(*expr.Op)
	if !ok {
		return never, 0
	}
	work = s.workFor(n, op.Instr)
	for _, x := range s.g.Operands(n) {
		if w, known := s.work[x]; known {
			work = min(work+w, never)
		} else if !s.keep[x] {
			price += s.bytes(x)
		}
	}
	return work, price
}

// replace lets n be computed again: what it reads is kept, or computed again itself.
func (s *saving) replace(n *gorgonia.Node) {
	delete(s.keep, n)
	for _, x := range s.g.Operands(n) {
		w, p := s.have(x)
		switch {
		case s.keep[x]:
		case w == 0 && p == s.bytes(x):
			s.keep[x] = true
		default:
			if _, known := s.work[x]; !known {
				s.work[x] = w
				s.replace(x)
			}
		}
	}
}

// readBy are the nodes of the forward that the backward reads, which leads from gin to gout.
func readBy(g *expr.Graph, forward, gin, gout []*gorgonia.Node) map[*gorgonia.Node]bool {
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
	for n := range g.Reachable(stop, gout) {
		for _, x := range g.Operands(n) {
			read[x] = true
		}
	}
	for _, n := range gout { // a gradient may be a value of the forward itself
		if _, have := stop[n]; have {
			read[n] = true
		}
	}
	for _, n := range gin {
		delete(read, n)
	}
	return read
}

// Saves lists what the forward keeps for the backward: inputs by their place, which cost nothing,
// and the values that it has computed.
func (c *Function) Saves() string {
	var names []string
	for _, i := range c.Reads {
		names = append(names, fmt.Sprintf("input %d", i))
	}
	bytes, shared := 0, 0
	for k, t := range c.Forward.Types()[len(c.out):] {
		if bytes += t.Bytes(); k >= len(c.kept)-len(c.Factors) {
			shared += t.Bytes()
		}
	}
	if bytes > 0 {
		names = append(names, c.Forward.Results(len(c.out)))
	}
	if len(names) == 0 {
		return "nothing"
	}
	text := fmt.Sprintf("%s; %.1f KiB beside the inputs", strings.Join(names, ", "), float64(bytes)/1024)
	if shared > 0 {
		text += fmt.Sprintf(", of which calls that wait for their backward share %.1f KiB, their weights as bfloat16", float64(shared)/1024)
	}
	return text
}
