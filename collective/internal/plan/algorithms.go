package plan

import "fmt"

// Algorithm is a way to do operations. The numbers travel between members.
type Algorithm uint8

// The algorithms. α is the cost of a message, β of a byte; p members bring S bytes each.
const (
	// Direct: everything goes from who brings it to who needs it; pieces to be summed go to one
	// member each, and their sums to all. AllReduce: 2(p−1) messages a member, 2(p−1)/p·S bytes.
	Direct Algorithm = iota + 1
	// Spread: all get the raw arrays of all, by doubling what they know (Bruck, Ho, Kipnis, Upfal
	// and Weathersby, 1997), and sum them alone. ⌈log₂p⌉ messages a member, (p−1)·S bytes.
	Spread
	// Ring: what all need goes from neighbour to neighbour. An AllGather has p−1 messages a member,
	// each to one and the same neighbour; sums are made as by Direct.
	Ring
	// Tree: a binomial tree from or to the root. ⌈log₂p⌉ steps; a broadcast's inner member sends S
	// bytes in each of its steps, and what is gathered grows on the way to the root.
	Tree
	// Hosts does as Direct, but what several members of a host need comes to the host once, and is
	// passed on there. Of p members on G hosts, a slot that all need crosses between hosts G−1 times
	// in place of p−p/G.
	Hosts
)

var algorithms = [...]string{"direct", "spread", "ring", "tree", "hosts"}

// Known says whether it is one of the algorithms.
func (a Algorithm) Known() bool { return a >= Direct && a <= Hosts }

func (a Algorithm) String() string {
	if !a.Known() {
		return fmt.Sprintf("Algorithm(%d)", uint8(a))
	}
	return algorithms[a-1]
}

// Does says whether the algorithm does operations of that kind.
func (a Algorithm) Does(kind Kind) bool {
	switch a {
	case Direct:
		return kind.Known()
	case Spread:
		return kind == AllReduce || kind == AllGather || kind == Barrier
	case Ring:
		return kind == AllReduce || kind == AllGather || kind == Broadcast
	case Hosts:
		return kind == AllReduce || kind == AllGather || kind == Broadcast
	case Tree:
		return kind == Reduce || kind == Broadcast || kind == Gather || kind == Scatter
	}
	return false
}

// New is a member's plan. The algorithm must do the kind; rank and root are below size. Root counts
// only where the operation has one. layout says for each member on which host it is, for Hosts;
// without it all are on one.
func New(kind Kind, a Algorithm, size, rank, root int, layout ...int) Plan {
	p := Plan{Out: gets(kind, size, rank, root)}
	switch a {
	case Direct:
		p.Steps = direct(kind, size, rank, root)
	case Spread:
		p.Steps = spread(kind, size, rank)
	case Ring:
		p.Steps = ring(kind, size, rank, root)
	case Hosts:
		p.Steps = hosts(kind, size, rank, root, layout)
	case Tree:
		p.Steps = tree(kind, size, rank, root)
	}
	return p
}

// exchange is the step in which every member sends what another needs of what it has. has and needs
// say what a member has before the step and after it.
func exchange(size, rank int, has, needs func(rank int) []Slot) Step {
	var s Step
	for d := 1; d < size; d++ { // every member begins with another one
		to, from := (rank+d)%size, (rank+size-d)%size
		if out := common(has(rank), needs(to)); len(out) > 0 {
			s.Send = append(s.Send, Move{to, out})
		}
		if in := common(has(from), needs(rank)); len(in) > 0 {
			s.Recv = append(s.Recv, Move{from, in})
		}
	}
	return s
}

// common lists the slots of a that b has, too.
func common(a, b []Slot) []Slot {
	in := make(map[Slot]bool, len(b))
	for _, s := range b {
		in[s] = true
	}
	var both []Slot
	for _, s := range a {
		if in[s] {
			both = append(both, s)
		}
	}
	return both
}

func direct(kind Kind, size, rank, root int) []Step {
	bring := func(r int) []Slot { return brings(kind, size, r, root) }
	get := func(r int) []Slot { return gets(kind, size, r, root) }
	if kind == Barrier {
		get = func(int) []Slot { return own(size) }
	}
	if kind.Rooted() {
		return toAndFrom(kind, size, rank, root)
	}
	if !kind.Sums() {
		return []Step{exchange(size, rank, bring, get)}
	}
	steps := []Step{summing(size, rank)}
	if kind != ReduceScatter {
		steps = append(steps, exchange(size, rank, summed, get))
	}
	return steps
}

// toAndFrom is an operation with a root, done directly. Root and others exchange at once what they
// have for each other, if only a word: members that each take another one for the root, or
// themselves, would else wait for ever. At last the root confirms that it has heard of all, so that
// nobody is done while somebody calls something else.
func toAndFrom(kind Kind, size, rank, root int) []Step {
	up := func(r int) []Slot { // what r sends to the root
		if kind == Reduce || kind == Gather {
			return brings(kind, size, r, root)
		}
		return nil
	}
	down := func(r int) []Slot {
		if kind == Broadcast || kind == Scatter {
			return gets(kind, size, r, root)
		}
		return nil
	}
	if rank != root {
		return []Step{{Send: []Move{{root, up(rank)}}, Recv: []Move{{root, down(rank)}}}, {Recv: []Move{{Peer: root}}}}
	}
	var all, confirm Step
	for d := 1; d < size; d++ {
		r := (root + d) % size
		all.Send = append(all.Send, Move{r, down(r)})
		all.Recv = append(all.Recv, Move{r, up(r)})
		confirm.Send = append(confirm.Send, Move{Peer: r})
	}
	if kind == Reduce {
		all.Sum = everyPiece(size)
	}
	return []Step{all, confirm}
}

func everyPiece(size int) []int {
	all := make([]int, size)
	for i := range all {
		all[i] = i
	}
	return all
}

// summing brings the pieces of number r to member r, which sums them.
func summing(size, rank int) Step {
	s := exchange(size, rank, func(r int) []Slot { return pieces(r, size) }, func(r int) []Slot { return gets(AllToAll, size, r, 0) })
	s.Sum = []int{rank}
	return s
}

func summed(r int) []Slot { return []Slot{Sum(r)} }

func spread(kind Kind, size, rank int) []Step {
	of := func(member int) []Slot { return brings(kind, size, member%size, 0) }
	var steps []Step
	for known := 1; known < size; known *= 2 { // raw of this member and those after it
		var s Step
		to, from := Move{Peer: (rank + size - known) % size}, Move{Peer: (rank + known) % size}
		for k := range min(known, size-known) {
			to.Slots = append(to.Slots, of(rank+k)...)
			from.Slots = append(from.Slots, of(rank+known+k)...)
		}
		s.Send, s.Recv = []Move{to}, []Move{from}
		steps = append(steps, s)
	}
	if kind == AllReduce {
		if len(steps) == 0 {
			steps = []Step{{}}
		}
		steps[len(steps)-1].Sum = everyPiece(size)
	}
	return steps
}

func ring(kind Kind, size, rank, root int) []Step {
	var steps []Step
	slot := func(r int) Slot { return Raw((r+size)%size, (r+size)%size) }
	switch kind {
	case AllReduce:
		steps = []Step{summing(size, rank)}
		slot = func(r int) Slot { return Sum((r + size) % size) }
	case Broadcast: // pieces to their members, and round
		steps = toAndFrom(Scatter, size, rank, root)
		slot = func(r int) Slot { return Raw(root, (r+size)%size) }
	}
	next, before := (rank+1)%size, (rank+size-1)%size
	for k := range size - 1 {
		var s Step
		if kind != Broadcast || next != root { // who has all already
			s.Send = []Move{{next, []Slot{slot(rank - k)}}}
		}
		if kind != Broadcast || rank != root {
			s.Recv = []Move{{before, []Slot{slot(before - k)}}}
		}
		steps = append(steps, s)
	}
	return steps
}

// tree is binomial, with ranks counted from the root: the parent of v is v without its lowest bit,
// and the subtree of v has as many members as that bit says. It begins with a word on every edge,
// both ways (see toAndFrom). Then a sweep goes up and one down; one has the data, and the other
// says that all is well.
func tree(kind Kind, size, rank, root int) []Step {
	t := branch{kind, size, rank, root}
	up, down := t.sweep(t.upward), t.sweep(t.downward)
	for i, k := 0, len(down)-1; i < k; i, k = i+1, k-1 { // the longest edges first
		down[i], down[k] = down[k], down[i]
	}
	for i, s := range down {
		down[i] = Step{Send: s.Recv, Recv: s.Send}
	}
	if kind == Reduce && rank == root {
		if len(up) == 0 {
			up = []Step{{}}
		}
		up[len(up)-1].Sum = everyPiece(size)
	}
	var hello Step
	for _, s := range t.sweep(func(int, int) []Slot { return nil }) {
		hello.Send = append(hello.Send, append(s.Send, s.Recv...)...)
	}
	hello.Recv = hello.Send
	return append(append([]Step{hello}, up...), down...)
}

// branch is a member's place in a tree.
type branch struct {
	kind             Kind
	size, rank, root int
}

func (t branch) at(v int) int { return (v + t.root) % t.size }

// sweep goes up. along says what goes along the edge above v, whose subtree has span members.
func (t branch) sweep(along func(v, span int) []Slot) []Step {
	v := (t.rank - t.root + t.size) % t.size
	var steps []Step
	for bit := 1; bit < t.size; bit *= 2 {
		var s Step
		switch {
		case v&(bit-1) != 0: // has nothing to do with edges of this length
		case v&bit != 0:
			s.Send = []Move{{t.at(v - bit), along(v, bit)}}
		case v+bit < t.size:
			s.Recv = []Move{{t.at(v + bit), along(v+bit, bit)}}
		}
		steps = append(steps, s)
	}
	return steps
}

func (t branch) upward(v, span int) (all []Slot) {
	for u := v; u < min(v+span, t.size) && (t.kind == Reduce || t.kind == Gather); u++ {
		all = append(all, brings(t.kind, t.size, t.at(u), t.root)...)
	}
	return all
}

func (t branch) downward(v, span int) (all []Slot) {
	if t.kind == Broadcast {
		return pieces(t.root, t.size)
	}
	for u := v; u < min(v+span, t.size) && t.kind == Scatter; u++ {
		all = append(all, Raw(t.root, t.at(u)))
	}
	return all
}
