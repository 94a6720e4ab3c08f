package ctx

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/weft-project/weft/autodiff"
)

// Meeting is a group of workers that do operations together, each in a pass of its own. Package
// collective/tensors implements it. Two that are equal are one group.
type Meeting interface {
	Rank() int
	Size() int
	// Backward begins a backward of the operations that passes of all members share. It matches the
	// other members' next one under such a context; where theirs is not called the same, all fail.
	Backward(c context.Context, what string) (Talk, error)
	// Abandon fails the backward that would be next on all members.
	Abandon(c context.Context, cause error)
}

// Talk is what the members of a group tell each other in one backward.
type Talk interface {
	// Tell says something to all other members; last says that nothing follows.
	Tell(c context.Context, fact []byte, last bool) error
	// Hear gives what a member has told, in its order, or what the backward has failed with there.
	Hear(c context.Context) (rank int, fact []byte, err error)
	// Turn is the context for one of the operations that take part, in the order of their keys.
	// what names it; line is where the user called it.
	Turn(c context.Context, op int, what, line string) context.Context
	// End ends the backward on this member. With a cause it fails on all; else the error is what it
	// has failed with on another member.
	End(cause error) error
}

// Shared is an operation of a group in this worker's pass: one node on each member's tape.
type Shared struct {
	Group Meeting
	Key   string // the same on all members, another one for each operation of any group
	Name  string
	// Pull computes the gradients of the inputs together with the other members, which call theirs.
	// Where the backward does not reach a result here its gradient is nil.
	Pull func(c context.Context, grads []*autodiff.Tensor) ([]*autodiff.Tensor, error)

	node  *autodiff.Node
	wants bool // an input requires a gradient
}

// ErrShared says that the backward of a group's operation cannot run alone.
var ErrShared = errors.New("the gradients of a group's operation are computed by all members: each calls ctx.Backward, once, with the context of the pass in which it called the operation")

// Share records an operation of a group: results come from the inputs of all members. Its results
// require gradients.
func (p *Pass) Share(s *Shared, inputs, results []*autodiff.Tensor) error {
	s.wants = slices.ContainsFunc(inputs, (*autodiff.Tensor).RequiresGrad)
	s.node = autodiff.NewShared(s.Name, inputs, results, ErrShared)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return p.err("share", ErrLeft)
	}
	put(&p.shared, s.node, s)
	return nil
}

// abandon fails the backward on all members of the groups that the pass has operations of.
func (p *Pass) abandon(c context.Context, cause error) {
	p.mu.Lock()
	groups := map[Meeting]bool{}
	for _, s := range p.shared {
		groups[s.Group] = true
	}
	p.mu.Unlock()
	for g := range groups {
		g.Abandon(c, cause)
	}
}

// joint is the shared operations that take part in one backward. A nil one has none.
type joint struct {
	talks map[Meeting]Talk
	live  map[*autodiff.Node]turn
	order []*autodiff.Node // those that live, by key
	all   map[*autodiff.Node]*Shared

	heard   chan news
	over    context.Context
	stop    context.CancelFunc
	hearing sync.WaitGroup
}

// turn is the place of an operation among those of its group that take part.
type turn struct {
	*Shared
	n int
}

// survey is the work of finding out what takes part: the state of all groups.
type survey struct {
	groups  map[Meeting]*surveyed
	all     map[*autodiff.Node]*Shared
	reached map[*autodiff.Node]bool      // from the roots
	by      map[*autodiff.Node][]*Shared // the operations from which another one is reached, where the roots do not reach them
}

type surveyed struct {
	*table
	group   Meeting
	shared  []*Shared // by key
	place   map[*Shared]int
	live    []bool
	decided bool
	told    []byte
	last    bool
}

// takePart finds out with the other members of all groups which operations take part in a backward
// from these edges.
func (p *Pass) takePart(c context.Context, mode Mode, from []autodiff.Edge) (*joint, error) {
	s, err := p.survey(mode, from)
	if err != nil {
		p.abandon(c, err)
	}
	if err != nil || s == nil {
		return nil, err
	}
	j := &joint{talks: map[Meeting]Talk{}, live: map[*autodiff.Node]turn{}, all: s.all, heard: make(chan news)}
	if err := s.ask(c, j); err != nil {
		_ = j.finish(err) // it has failed
		return nil, err
	}
	for _, g := range s.groups {
		n := 0
		for i, op := range g.shared {
			if g.live[i] {
				j.live[op.node], j.order = turn{op, n}, append(j.order, op.node)
				n++
			}
		}
	}
	slices.SortFunc(j.order, func(a, b *autodiff.Node) int { return cmp.Compare(j.live[a].Key, j.live[b].Key) })
	return j, nil
}

// edges are where gradients go on from the operations that take part.
func (j *joint) edges() (es []autodiff.Edge) {
	if j != nil {
		for _, n := range j.order {
			es = append(es, n.Next()...)
		}
	}
	return es
}

// sources are the operations that take part although nothing leads to them here.
func (j *joint) sources(from []autodiff.Edge) (ns []*autodiff.Node) {
	if j == nil {
		return nil
	}
	led := map[*autodiff.Node]bool{}
	autodiff.Walk(append(j.edges(), from...), func(n *autodiff.Node) { led[n] = true })
	for _, n := range j.order {
		if !led[n] {
			ns = append(ns, n)
		}
	}
	return ns
}

// has says whether a node is one of a group's.
func (j *joint) has(n *autodiff.Node) bool { return j != nil && j.all[n] != nil }

// takesPart says whether one of them takes part.
func (j *joint) takesPart(n *autodiff.Node) bool { _, ok := j.live[n]; return ok }

// pull computes the gradients of an operation together with the other members.
func (j *joint) pull(c context.Context, n *autodiff.Node, grads []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
	t, ok := j.live[n]
	if !ok {
		return nil, ErrShared
	}
	return t.Pull(j.talks[t.Group].Turn(c, t.n, "the gradients of "+t.Name, n.Site().String()), grads)
}

// spendLocked forgets the operations that took part. The caller holds the pass's lock.
func (j *joint) spendLocked(p *Pass) {
	if j != nil {
		for n := range j.live {
			delete(p.shared, n)
		}
	}
}

// watch ends the backward here when it fails on another member.
func (j *joint) watch(b *backward) {
	if j == nil {
		return
	}
	j.hearing.Go(func() {
		for {
			select {
			case n := <-j.heard:
				if n.err != nil {
					b.abort(n.err)
				}
			case <-j.over.Done():
				return
			}
		}
	})
}

// finish ends the backward on this member; with a cause, it fails on all.
func (j *joint) finish(cause error) error {
	if j == nil {
		return nil
	}
	j.stop()
	j.hearing.Wait()
	var errs []error
	for _, t := range j.talks {
		errs = append(errs, t.End(cause))
	}
	return errors.Join(errs...)
}

// survey begins to find out what takes part; nil where nothing is shared.
func (p *Pass) survey(mode Mode, from []autodiff.Edge) (s *survey, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.shared) == 0 {
		return nil, nil
	}
	s = &survey{groups: map[Meeting]*surveyed{}, all: maps.Clone(p.shared), by: map[*autodiff.Node][]*Shared{}}
	from = slices.Clone(from)
	if mode == Fast { // all gradients come that can
		for _, s := range p.sends {
			from = append(from, s.node.Next()...)
		}
	}
	if s.reached, err = p.led(from, nil); err != nil {
		return nil, err
	}
	for n, op := range s.all {
		g := s.groups[op.Group]
		if g == nil {
			g = &surveyed{group: op.Group, place: map[*Shared]int{}}
			s.groups[op.Group] = g
		}
		g.shared = append(g.shared, op)
		if s.reached[n] {
			continue
		}
		led, err := p.led(slices.Clone(n.Next()), s.all)
		if err != nil {
			return nil, err
		}
		for to := range led {
			if s.all[to] != nil {
				s.by[to] = append(s.by[to], op)
			}
		}
	}
	for _, g := range s.groups {
		slices.SortFunc(g.shared, func(a, b *Shared) int { return cmp.Compare(a.Key, b.Key) })
		for i, op := range g.shared {
			g.place[op] = i
		}
		g.table = newTable(len(g.shared), g.group.Size())
	}
	return s, nil
}

// led is all nodes of this worker that gradients reach which enter its graph at these edges, also
// by way of other workers. It does not look beyond what stops it.
func (p *Pass) led(from []autodiff.Edge, stop map[*autodiff.Node]*Shared) (map[*autodiff.Node]bool, error) {
	seen, sent := map[*autodiff.Node]bool{}, map[MessageID]bool{}
	for next := from; len(next) > 0; {
		var gone []MessageID // whose gradients leave
		for len(next) > 0 {
			n := next[len(next)-1].Node
			next = next[:len(next)-1]
			if n == nil || seen[n] {
				continue
			}
			seen[n] = true
			if r := p.recvs[n]; r != nil {
				gone = append(gone, r.id)
			}
			if stop[n] == nil {
				next = append(next, n.Next()...)
			}
		}
		plan, err := p.past.plan(gone)
		if err != nil {
			return nil, err
		}
		for _, id := range plan.of(p.ct.me) {
			if s := p.sends[id]; s != nil && !sent[id] {
				sent[id] = true
				next = append(next, s.node.Next()...)
			}
		}
	}
	return seen, nil
}

// what names the backward of a group, by the operations that the pass has of it.
func (g *surveyed) what() string {
	h := sha256.New()
	for _, op := range g.shared {
		fmt.Fprintf(h, "%s %s\n", op.Key, op.Name)
	}
	return fmt.Sprintf("a backward over %d operations, the first %s (%s), digest %.4x", len(g.shared), g.shared[0].Key, g.shared[0].Name, h.Sum(nil))
}

// facts are what this member knows of a group's operations now.
func (s *survey) facts(g *surveyed) (facts []fact, last bool) {
	last = true
	for _, op := range g.shared {
		f := fact{wants: op.wants, yes: s.reached[op.node]}
		for _, by := range s.by[op.node] {
			of := s.groups[by.Group]
			switch {
			case f.yes:
			case of == g:
				f.when = append(f.when, g.place[by])
			case !of.decided:
				f.open = true
			case of.live[of.place[by]]:
				f.yes = true
			}
		}
		if f.yes {
			f.open, f.when = false, nil
		}
		last = last && !f.open
		slices.Sort(f.when)
		facts = append(facts, f)
	}
	return facts, last
}

// news is what a member of a group has told.
type news struct {
	g    *surveyed
	rank int
	fact []byte
	err  error
}

// ask talks with all groups until what takes part is known.
func (s *survey) ask(c context.Context, j *joint) (err error) {
	c, cancel := context.WithCancel(c)
	over, stop := context.WithCancel(context.Background())
	j.over, j.stop = over, func() { stop(); cancel() }
	for _, g := range s.groups {
		if err != nil {
			g.group.Abandon(c, err)
			continue
		}
		var t Talk
		if t, err = g.group.Backward(c, g.what()); err == nil {
			j.talks[g.group] = t
			j.hearing.Go(func() { hear(c, j.over, g, t, j.heard) })
		}
	}
	if err != nil {
		return err
	}
	for {
		if err := s.tell(c, j); err != nil {
			return err
		}
		if s.over() {
			return nil
		}
		n := <-j.heard // also when c ends
		if n.err != nil {
			return n.err
		}
		if n.g.facts[n.rank], err = parseFacts(n.fact, n.g.ops); err != nil {
			return err
		}
	}
}

// hear passes on what members tell, until the backward is over.
func hear(c, over context.Context, g *surveyed, t Talk, to chan<- news) {
	for {
		n := news{g: g}
		n.rank, n.fact, n.err = t.Hear(c)
		select {
		case to <- n:
		case <-over.Done():
			return
		}
		if n.err != nil {
			return
		}
	}
}

// tell decides what can be decided, and tells what is new.
func (s *survey) tell(c context.Context, j *joint) error {
	for again := true; again; {
		again = false
		for _, g := range s.groups {
			facts, last := s.facts(g)
			g.facts[g.group.Rank()] = facts
			if !g.decided {
				g.live, g.decided = g.decide()
				again = again || g.decided
			}
			said := appendFacts(nil, facts)
			if g.last || g.told != nil && slices.Equal(said, g.told) {
				continue
			}
			g.told, g.last = said, last
			if err := j.talks[g.group].Tell(c, said, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// over says that all is decided.
func (s *survey) over() bool {
	for _, g := range s.groups {
		if !g.decided {
			return false
		}
	}
	return true
}
