package collective

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/rpc"
)

// Compound is an operation that is made of others, its parts. When it fails on a member, its parts
// fail on all. Members may also tell each other what they need to agree on the parts. It is for
// packages above this one, such as tensors. Tell, Hear and End are called by one goroutine each.
type Compound struct {
	r    *run
	told int
	next []int  // by rank: the step to come
	last []bool // by rank: nothing follows

	parts int // that Part has given
}

// Compound begins the next operation under the context's scope, which is made of others. what
// describes it, and must be the same on all members.
func (g *Group) Compound(c context.Context, what string) (*Compound, error) {
	scope, _ := c.Value(scopeKey{}).(string)
	return g.compound(c, scope, what)
}

// Backward begins a backward of passes of all members, as a Compound. Backwards are numbered apart
// from other operations.
func (g *Group) Backward(c context.Context, what string) (*Compound, error) {
	scope, _ := c.Value(scopeKey{}).(string)
	return g.compound(c, scopeOfTalks+scope, what)
}

func (g *Group) compound(c context.Context, scope, what string) (*Compound, error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: %s: %w", what, err)
	}
	return g.compoundOf(c, scope, desk.Call{Kind: plan.AllGather, Algorithm: plan.Direct, Count: -1, For: what, Line: g.known.line()})
}

func (g *Group) compoundOf(c context.Context, scope string, call desk.Call) (*Compound, error) {
	b := &Compound{next: make([]int, g.Size()), last: make([]bool, g.Size())}
	b.r = &run{g: g, record: record{call: call, began: time.Now()}, has: map[plan.Slot]part{}, size: func(plan.Slot) int { return -1 }}
	if err := checkScope(strings.TrimPrefix(scope, scopeOfTalks)); err != nil {
		return nil, b.wrap(err)
	}
	if err := g.whole(c); err != nil {
		return nil, b.wrap(err)
	}
	if at, has := c.Deadline(); has {
		b.r.call.Left = max(time.Until(at), 1)
	}
	if err := b.r.register(c, scope, nil); err != nil {
		return nil, b.wrap(b.r.end(err))
	}
	return b, nil
}

// AbandonBackward fails the next backward on all members.
func (g *Group) AbandonBackward(c context.Context, cause error) {
	scope, _ := c.Value(scopeKey{}).(string)
	g.mu.Lock()
	k := place{}.number(g, scopeOfTalks+scope)
	g.mu.Unlock()
	g.giveUp(k, cause)
}

func (b *Compound) wrap(err error) error {
	if err != nil {
		err = fmt.Errorf("collective: operation %v in group %q: %w", b.r.key, b.r.g.name, err)
	}
	return err
}

// Tell says something to all other members. last says that nothing follows.
func (b *Compound) Tell(c context.Context, fact []byte, last bool) error {
	g, r := b.r.g, b.r
	said := plan.Raw(g.rank, b.told)
	mem := make([]byte, 1, 1+len(fact))
	if last {
		mem[0] = 1
	}
	r.has[said] = part{mem: append(mem, fact...)}
	var s plan.Step
	for _, m := range g.members {
		if m.Rank != g.rank {
			s.Send = append(s.Send, plan.Move{Peer: m.Rank, Slots: []plan.Slot{said}})
		}
	}
	err := r.step(c, r.whileSound(c), b.told, s)
	b.told++
	if err != nil {
		err = b.cause(err)
	}
	return b.wrap(err)
}

// cause is why the backward has failed: err, where it has not.
func (b *Compound) cause(err error) error {
	b.r.g.mu.Lock()
	defer b.r.g.mu.Unlock()
	if _, _, failed := b.r.g.desk.Take(b.r.key, desk.Mail{From: -1}); failed != nil {
		return failed
	}
	return err
}

// Hear waits for what another member tells, and gives it in that member's order.
func (b *Compound) Hear(c context.Context) (rank int, fact []byte, err error) {
	for {
		rank, a, err := b.take()
		if err == nil && a == nil {
			err = b.r.sleep(c)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return 0, nil, b.wrap(b.cause(err))
		}
		defer a.release()
		if len(a.parts) != 1 || len(a.parts[0].mem) == 0 {
			return 0, nil, b.wrap(fmt.Errorf("%w: rank %d says nothing", rpc.ErrProtocol, rank))
		}
		b.last[rank] = a.parts[0].mem[0] == 1
		return rank, append([]byte(nil), a.parts[0].mem[1:]...), nil
	}
}

// take gives what has come, nil for nothing.
func (b *Compound) take() (rank int, a *arrival, err error) {
	g := b.r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for rank := range g.members {
		if rank == g.rank || b.last[rank] {
			continue
		}
		a, ok, err := g.desk.Take(b.r.key, desk.Mail{From: rank, Step: b.next[rank]})
		if err != nil {
			return 0, nil, err
		}
		if ok {
			b.next[rank]++
			return rank, a, nil
		}
	}
	_, _, err = g.desk.Take(b.r.key, desk.Mail{From: -1})
	return 0, nil, err
}

// Turn is the context under which this member calls the operation of that number, once. line is
// where the user called what it is the backward of.
func (b *Compound) Turn(c context.Context, number int, what, line string) context.Context {
	key := b.r.key
	key.Part = number + 1
	return context.WithValue(c, placeKey{}, place{what: what, line: line, key: &key})
}

// Key names the operation, on all members alike.
func (b *Compound) Key() string { return b.r.key.Name() }

// Part is the context under which this member calls the next operation that is a part of this one,
// once. All members call the same parts in the same order. It is in the place of Turn.
func (b *Compound) Part(c context.Context) context.Context {
	b.parts++
	return b.Turn(c, b.parts-1, b.r.call.What(), b.r.call.Line)
}

// End ends this member's part, when it is in no operation any more. It fails on all members with a
// cause; without one the error is what it has failed with on another one.
func (b *Compound) End(cause error) error {
	err := b.r.end(cause)
	if cause != nil {
		return nil
	}
	return b.wrap(err)
}
