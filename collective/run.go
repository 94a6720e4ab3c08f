package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/nvtx"
	"github.com/weft-project/weft/rpc"
)

// run is an operation that a goroutine of this member is in.
type run struct {
	g *Group
	record
	wait  *wait
	on    []plan.Move // what it waits for; the group's lock guards it
	ahead map[int]int // by member: bytes sent to it before it was known to have begun; so does it here
	has   map[plan.Slot]part
	size  func(s plan.Slot) int                       // bytes of a slot; −1: any
	into  func(piece int) []byte                      // where sums go that nobody else is sent; nil: to memory of their own
	fold  func(dst []byte, piece int, from ...[]byte) // nil: as the call says
	keeps arrival                                     // what is held until the end
	sends sync.WaitGroup
	done  []func() // is called when nothing is sent any more
}

type scopeKey struct{}

// Scope gives the operations that are called under the context a numbering of their own. Members
// match them by name and number, whatever else is under way. A scope's operations are called one
// after another. A name has 256 bytes at most.
func Scope(c context.Context, name string) context.Context {
	return context.WithValue(c, scopeKey{}, name)
}

// Subscope is Scope inside the scope that the context has: a part of a program numbers its
// operations apart, and need not know in which scope it is called. The names and what is between
// them have 256 bytes at most together.
func Subscope(c context.Context, name string) context.Context {
	if outer, _ := c.Value(scopeKey{}).(string); outer != "" {
		name = outer + "/" + name
	}
	return Scope(c, name)
}

// do runs an operation. r has the call, the slots that this member brings, and what is known of
// sizes. out gets the parts of the result, in their order; they are valid until it returns.
func (g *Group) do(c context.Context, r *run, out func(parts []part) error) (err error) {
	if nvtx.On() {
		defer nvtx.Begin(fmt.Sprintf("%v in group %q", r.call.Kind, g.name)).End()
	}
	scope, _ := c.Value(scopeKey{}).(string)
	r.g, r.record = g, record{call: r.call, began: time.Now()}
	r.call.Line = g.known.line()
	placeIn(c).describe(&r.call)
	call := r.call
	for _, p := range r.has {
		r.bytes += len(p.mem)
	}
	defer func() {
		if err != nil {
			what := fmt.Sprint(call.Kind)
			if r.wait != nil { // it has a number
				what += " " + r.key.String()
			}
			err = fmt.Errorf("collective: %s in group %q: %w", what, g.name, err)
		}
	}()
	if err := checkScope(scope); err != nil {
		return err
	}
	if call.Root < 0 || call.Root >= len(g.members) {
		err = fmt.Errorf("%w: root %d; the group has ranks 0 to %d", ErrArguments, call.Root, len(g.members)-1)
		g.Abandon(c, err)
		return err
	}
	if at, has := c.Deadline(); has {
		r.call.Left = max(time.Until(at), 1)
	}
	p, sound := g.known.plan(call, len(g.members), g.rank, g.layout), r.whileSound(c)
	err = r.register(c, scope, p.Steps)
	for i := 0; err == nil && i < len(p.Steps); i++ {
		err = r.step(c, sound, i, p.Steps[i])
	}
	if err == nil {
		err = out(r.parts(p.Out))
	}
	return r.end(err)
}

// register takes a place at the desk, under the next number of the scope.
func (r *run) register(c context.Context, scope string, steps []plan.Step) error {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	r.key = placeIn(c).number(g, scope)
	r.wait = g.waits[r.key]
	if r.wait == nil {
		r.wait = newWait()
		g.waits[r.key] = r.wait
	}
	r.wait.run = r
	if at, has := c.Deadline(); has {
		r.wait.bound(at, g.rank)
	}
	err := g.desk.Begin(g.rank, r.key, r.call, steps...)
	if err == nil {
		g.answerAll(r.key)
	}
	return err
}

func newWait() *wait { return &wait{wake: make(chan struct{}, 1), by: -1} }

// bound keeps the earliest deadline.
func (w *wait) bound(at time.Time, by int) {
	if w.ends.IsZero() || at.Before(w.ends) {
		w.ends, w.by = at, by
	}
}

// step sends, while the group is sound, receives and folds.
func (r *run) step(c, sound context.Context, i int, s plan.Step) error {
	for _, m := range s.Send {
		if err := r.send(sound, i, m); err != nil {
			if errors.Is(c.Err(), context.DeadlineExceeded) {
				return r.late(r.g.rank)
			}
			if c.Err() != nil {
				return context.Cause(c)
			}
			return err
		}
	}
	if err := r.receive(c, i, s.Recv); err != nil {
		return err
	}
	for _, piece := range s.Sum {
		if err := r.sum(piece); err != nil {
			return err
		}
	}
	return nil
}

// whileSound is [Group.whileSound] for what the operation sends.
func (r *run) whileSound(c context.Context) context.Context {
	sound, done := r.g.whileSound(c)
	r.done = append(r.done, done)
	return sound
}

// parts are those of slots that are there.
func (r *run) parts(slots []plan.Slot) []part {
	all := make([]part, len(slots))
	for i, s := range slots {
		all[i] = r.has[s]
	}
	return all
}

// send posts a message. What is large and does not go through shared memory is sent beside the
// others.
func (r *run) send(c context.Context, step int, m plan.Move) error {
	g := r.g
	near := g.near[m.Peer]
	parts := r.parts(m.Slots)
	at, small, tensors, keep, copied, err := letter(parts, near)
	g.moved.Add(2 * int64(copied))
	if err != nil {
		return err
	}
	if !small {
		parts = nil
	}
	n := note{Scope: r.key.Scope, N: r.key.N, Part: r.key.Part, Call: packCall(r.call), Step: step, Slots: at, inline: parts}
	post := func() error {
		defer keep.release()
		err := g.post(c, m.Peer, &n, tensors...)
		if errors.Is(err, rpc.ErrPeerLost) || errors.Is(err, rpc.ErrPeerLeft) {
			g.lose(g.members[m.Peer], err)
		}
		return err
	}
	if near || len(tensors) == 0 {
		return post()
	}
	r.sends.Go(func() {
		if !r.mayGo(m.Peer, tensors) {
			keep.release()
		} else if err := post(); err != nil {
			g.fail(r.key, err)
		}
	})
	return nil
}

// receive waits for the messages of a step.
func (r *run) receive(c context.Context, step int, from []plan.Move) error {
	left := append([]plan.Move(nil), from...)
	for {
		var err error
		if left, err = r.take(step, left); err != nil || len(left) == 0 {
			return err
		}
		if err = r.sleep(c); err != nil {
			return err
		}
	}
}

// take takes what has arrived, and gives those that are still awaited.
func (r *run) take(step int, from []plan.Move) (left []plan.Move, err error) {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	left = from[:0]
	for _, m := range from {
		a, ok, err := g.desk.Take(r.key, desk.Mail{From: m.Peer, Step: step})
		if err != nil {
			return nil, err
		}
		if !ok {
			left = append(left, m)
			continue
		}
		r.keeps.buffers = append(r.keeps.buffers, a.buffers...)
		if err := checkParts(a, m, r.size); err != nil {
			return nil, fmt.Errorf("rank %d, %s: %w", m.Peer, g.members[m.Peer].Worker, err)
		}
		for i, s := range m.Slots {
			r.has[s] = a.parts[i]
		}
	}
	r.on = left
	if len(left) == 0 {
		if _, _, err := g.desk.Take(r.key, desk.Mail{From: -1}); err != nil { // it failed though all is here
			return nil, err
		}
	}
	return left, nil
}

// sleep waits until something has changed, the earliest deadline has passed, or c has ended.
func (r *run) sleep(c context.Context) error {
	g := r.g
	g.mu.Lock()
	ends, by := r.wait.ends, r.wait.by
	g.mu.Unlock()
	var late <-chan time.Time
	if !ends.IsZero() {
		t := time.NewTimer(time.Until(ends))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-r.wait.wake:
		return nil
	case <-late:
		return r.late(by)
	case <-c.Done():
		if errors.Is(c.Err(), context.DeadlineExceeded) {
			return r.late(g.rank)
		}
		return context.Cause(c)
	}
}

// asking is for how long members are asked whether they have called, once it is too late.
const asking = 100 * time.Millisecond

// late is the error of a deadline. An algorithm does not let all members hear of all, so those that
// have said nothing yet are asked.
func (r *run) late(by int) error {
	g := r.g
	c, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	for _, rank := range g.silent(r.key) {
		g.runs.Go(func() { _ = g.post(c, rank, &note{Scope: r.key.Scope, N: r.key.N, Part: r.key.Part, Ask: true}) }) // who cannot be reached is missing
	}
	for len(g.silent(r.key)) > 0 && c.Err() == nil {
		select {
		case <-r.wait.wake:
		case <-c.Done():
		}
	}
	e := &LateError{By: g.members[by].Worker}
	for _, rank := range g.silent(r.key) {
		e.Missing = append(e.Missing, g.members[rank].Worker)
	}
	return e
}

// silent are the members that have not said what they call.
func (g *Group) silent(k desk.Key) []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.desk.Waiting(g.rank, len(g.members))[k]
}

// sum folds a piece of all members.
func (r *run) sum(piece int) error {
	from := make([][]byte, len(r.g.members))
	for rank := range from {
		from[rank] = r.has[plan.Raw(rank, piece)].mem
	}
	r.g.moved.Add(int64((len(from) + 1) * len(from[0])))
	if r.fold == nil {
		r.fold = func(dst []byte, _ int, from ...[]byte) { fold.Into(dst, r.call.Op, r.call.Dtype, from...) }
	}
	if r.into != nil {
		mem := r.into(piece)
		r.fold(mem, piece, from...)
		r.has[plan.Sum(piece)] = part{mem: mem}
		return nil
	}
	buf, err := device.Host().Alloc(len(from[0]))
	if err != nil {
		return err
	}
	r.keeps.buffers = append(r.keeps.buffers, buf)
	mem, err := buf.Host()
	if err != nil {
		return err
	}
	r.fold(mem, piece, from...)
	r.has[plan.Sum(piece)] = part{mem: mem, buf: buf}
	return nil
}

// missed adds what another member called and gave up, where this one came too late. The group's
// lock is held.
func (r *run) missed(err error) error {
	var late *LateError
	if !errors.As(err, &late) || !slices.Contains(late.Missing, r.g.w.Name()) {
		return err
	}
	for _, m := range r.g.members {
		if said, ok := r.g.desk.Said(r.key, m.Rank); ok && m.Rank != r.g.rank {
			return fmt.Errorf("this member came too late, or left a call out: rank %d, %s, called %v: %w", m.Rank, m.Worker, said, err)
		}
	}
	return err
}

// end leaves the desk, and tells the others where the operation has failed here first. The error is
// the operation's: what it failed with first.
func (r *run) end(err error) error {
	g := r.g
	if err != nil {
		g.fail(r.key, err)
	}
	r.sends.Wait()
	for _, done := range r.done {
		done()
	}
	g.mu.Lock()
	if _, _, failed := g.desk.Take(r.key, desk.Mail{From: -1}); failed != nil && (err != nil || g.desk.Broken() == nil) {
		err = failed
	}
	err = r.missed(err)
	rest := g.desk.End(r.key)
	g.forgetWaits(r.key)
	r.settle()
	g.finish(&r.record, err)
	g.mu.Unlock()
	for _, a := range rest {
		a.release()
	}
	r.keeps.release()
	return err
}
