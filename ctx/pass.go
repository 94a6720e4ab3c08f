package ctx

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/device"
)

// Pass is one worker's part of a distributed pass.
type Pass struct {
	ct    *Container
	id    PassID
	arena *autodiff.Arena
	life  context.Context // ends with the pass
	end   context.CancelCauseFunc
	stop  context.CancelCauseFunc // of the context that Open gave

	// parent will tell this worker when the pass is left: its opener if it called here, otherwise
	// the first caller. Guarded by Container.mu.
	parent WorkerID
	heard  time.Time // when the opener last was known to have the pass; likewise

	mu        sync.Mutex
	left      bool               // no further backward begins, none that is under way succeeds
	known     []WorkerID         // that this one exchanged messages with, in order
	lost      map[WorkerID]error // who is gone. Maps are made when something is put into them: most passes are small
	sends     map[MessageID]*sendFunction
	recvs     map[*autodiff.Node]*recvFunction
	arrived   map[MessageID]*recvFunction // the same
	shared    map[*autodiff.Node]*Shared  // operations of groups that no backward has used up
	past      lineage
	backwards map[BackwardID]*backward
	ended     []ended                               // the last few, so that stragglers are told from first comers
	sum       autodiff.Gradients                    // of backwards that ended before those; nobody has seen it
	revoked   *Failure                              // gradients were taken back that a backward had found
	told      bool                                  // revoked has been returned
	broken    error                                 // a sum could not be made: the gradients would lack something
	grads     map[*autodiff.Tensor]*autodiff.Tensor // what was read: belongs to the arena
	shown     record
}

// newPass makes a pass; outer is the one inside whose function it is opened, or nil.
func newPass(ct *Container, id PassID, outer *Pass) *Pass {
	var around *autodiff.Arena
	if outer != nil {
		around = outer.arena
	}
	life, end := context.WithCancelCause(context.Background())
	return &Pass{ct: ct, id: id, arena: autodiff.NewPassArena(id.String(), around), life: life, end: end}
}

// put adds to a map, which it makes where there is none.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

type passKey struct{}

// scope is what a context says of the pass.
type scope struct {
	pass   *Pass
	noGrad bool
	called bool // by a function that was called in the pass
}

// context derives a context that carries the pass and ends with it. The pass of another worker or
// an outer pass is hidden. explain makes its cause of why the pass has ended; nil for nothing but
// that.
func (p *Pass) context(c context.Context, called bool, explain func(error) error) (context.Context, context.CancelCauseFunc) {
	old, _ := c.Value(passKey{}).(scope)
	c, cancel := context.WithCancelCause(context.WithValue(c, passKey{}, scope{p, old.noGrad, called}))
	unhook := context.AfterFunc(p.life, func() {
		why := context.Cause(p.life)
		if explain != nil {
			why = explain(why)
		}
		cancel(why)
	})
	return c, func(cause error) { unhook(); cancel(cause) }
}

// From is the pass that c carries.
func From(c context.Context) (*Pass, bool) {
	s, ok := c.Value(passKey{}).(scope)
	return s.pass, ok && s.pass != nil
}

// NoGrad derives a context in which calls are not recorded: no send and recv functions are
// attached, here or further on. Mathematics on this worker takes no context, and is recorded where
// its inputs require gradients; [autodiff.Tensor.Detach] stops that.
func NoGrad(c context.Context) context.Context {
	s, _ := c.Value(passKey{}).(scope)
	s.noGrad = true
	return context.WithValue(c, passKey{}, s)
}

// Recording says whether calls under c are recorded.
func Recording(c context.Context) bool {
	s, ok := c.Value(passKey{}).(scope)
	return ok && s.pass != nil && !s.noGrad
}

// Called says whether c is that of a function that was called in its pass, and not of who has
// opened the pass.
func Called(c context.Context) bool {
	s, _ := c.Value(passKey{}).(scope)
	return s.called
}

// ID is the pass's number, the same on every worker.
func (p *Pass) ID() PassID { return p.id }

// Life ends with the pass on this worker, and its cause says why. It is for what a call sets up and
// outlives it, such as a hook.
func (p *Pass) Life() context.Context { return p.life }

// Arena owns the tensors that this worker makes in the pass.
func (p *Pass) Arena() *autodiff.Arena { return p.arena }

// Own gives a tensor of nobody's to the pass that c carries, so that it, and what is computed from
// it, is freed with the pass. Use it for a batch's input. Only the tensor's maker may call it. What
// is another pass's or an arena's must be copied first ([autodiff.Tensor.Copy]).
func Own(c context.Context, t *autodiff.Tensor) *autodiff.Tensor {
	p, ok := From(c)
	if !ok {
		return autodiff.Failed(ErrNoPass)
	}
	if err := p.arena.Adopt(t); err != nil {
		return autodiff.Failed(err)
	}
	return t
}

// Known lists the workers that this one exchanged messages with in the pass, in order.
func (p *Pass) Known() []WorkerID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.known)
}

// Meet notes that a message of the pass goes to a worker, so that it is told when the pass is left.
// A pass that was left already has told its workers; this one is told now, before or after the
// message.
func (p *Pass) Meet(w WorkerID) {
	if p.meet(w) && w != p.ct.me {
		p.ct.clean(p.id, []WorkerID{w})
	}
}

// meet says whether the pass was left.
func (p *Pass) meet(w WorkerID) (left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := slices.BinarySearch(p.known, w); !known {
		p.known = slices.Insert(p.known, at, w)
	}
	return p.left
}

// others lists the known workers without this one and from.
func (p *Pass) others(from WorkerID) []WorkerID {
	return slices.DeleteFunc(p.Known(), func(w WorkerID) bool { return w == from || w == p.ct.me })
}

func (p *Pass) info() PassInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes := p.arena.Bytes() + p.sum.Bytes()
	for i := range p.ended {
		if g := p.ended[i].grads; g != nil {
			bytes += g.Bytes()
		}
	}
	return PassInfo{ID: p.id, Sends: len(p.sends), Recvs: len(p.recvs), Backwards: len(p.backwards), Bytes: bytes}
}

// Leave ends the pass: everything it made here is freed before Leave returns, and the other workers
// are told, without waiting for them ([Container.Settle] does). On a worker that did not open the
// pass it ends this worker's part, and the parts of those that it brought into the pass.
// Idempotent.
func (p *Pass) Leave() {
	if p.ct.remove(p.id, p.ct.me, nil) == nil {
		return
	}
	p.release(p.ct.me, ErrLeft)
	p.ct.clean(p.id, p.others(p.ct.me))
}

// release frees what this worker holds of the pass, because of what worker by has done.
func (p *Pass) release(by WorkerID, cause error) {
	p.end(&EndError{p.ct.links.Name(by), cause})
	p.mu.Lock()
	p.left = true
	p.sends, p.recvs, p.arrived, p.shared, p.grads, p.shown = nil, nil, nil, nil, nil, record{}
	for i := range p.ended {
		p.ended[i].free()
	}
	p.sum.Free()
	p.mu.Unlock()
	p.fail(cause)
	p.arena.Free()
	if p.stop != nil {
		p.stop(cause)
	}
}

// lose ends what needs a worker that is gone, now and later. In FAST mode that is everything, if
// the worker is known in the pass.
func (p *Pass) lose(w WorkerID, cause error) {
	p.mu.Lock()
	put(&p.lost, w, cause)
	_, known := slices.BinarySearch(p.known, w)
	running := slices.Collect(maps.Values(p.backwards))
	p.mu.Unlock()
	for _, b := range running {
		if b.mode == Fast && known || b.id.creator() == w || len(b.plan.of(w)) > 0 {
			b.abort(cause)
		}
	}
}

// fail ends the backwards that are under way here.
func (p *Pass) fail(cause error) {
	p.mu.Lock()
	running := slices.Collect(maps.Values(p.backwards))
	p.mu.Unlock()
	for _, b := range running {
		b.abort(cause)
	}
}

// err dresses an error with the worker and the pass, once.
func (p *Pass) err(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{p.ct.links.Name(p.ct.me), p.id, op, err}
}

// sendFunction is the end of an edge between workers from which gradients enter this worker.
type sendFunction struct {
	id      MessageID
	to      WorkerID
	what    string // it was for
	node    *autodiff.Node
	devices []device.ID // where the tensors lie, and their gradients must
	back    int64       // bytes of gradients that came; guarded by the pass's lock
}

// recvFunction is the end at which gradients leave this worker.
type recvFunction struct {
	id      MessageID
	from    WorkerID
	node    *autodiff.Node
	origins []device.ID // where the tensors lay at the sender
}

// NextMessage draws a message id for a call or a response.
func (p *Pass) NextMessage() MessageID { return MessageID(p.ct.nextID()) }

// AttachSend records that tensors leave for a worker in a message; what says with what, for errors.
// A send function is attached only where one of them requires a gradient. What it gives must travel
// with the message, for [Pass.AttachRecv].
func (p *Pass) AttachSend(id MessageID, to WorkerID, what string, tensors []*autodiff.Tensor) (Lineage, error) {
	if p.meet(to) {
		return Lineage{}, p.err("send", ErrLeft)
	}
	if !slices.ContainsFunc(tensors, (*autodiff.Tensor).RequiresGrad) {
		p.NoteSend(id, to, what, tensors)
		return Lineage{}, nil
	}
	parents := p.reached(autodiff.EdgesOf(tensors...))
	s := &sendFunction{id: id, to: to, what: what, node: autodiff.NewSource(p.label("send ", id, " to ", to, what), tensors)}
	s.devices = make([]device.ID, len(tensors))
	for i, t := range tensors {
		s.devices[i] = t.Device()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return Lineage{}, p.err("send", ErrLeft)
	}
	put(&p.sends, id, s)
	parents = p.past.reduce(parents)
	p.past.add(id, parents)
	return p.past.summarize(to, parents), nil
}

// reached lists the messages whose tensors those of the edges were computed from here.
func (p *Pass) reached(from []autodiff.Edge) []MessageID {
	var sinks []*autodiff.Node
	autodiff.Walk(from, func(n *autodiff.Node) {
		if len(n.Next()) == 0 && n.Leaf() == nil {
			sinks = append(sinks, n)
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []MessageID
	for _, n := range sinks {
		if r := p.recvs[n]; r != nil {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// label is what a send or recv function is called: "send 0.2 to worker1 (add)".
func (p *Pass) label(kind string, id MessageID, way string, peer WorkerID, what string) string {
	var space [96]byte
	b := append(appendID(append(space[:0], kind...), uint64(id)), way...)
	b = append(b, p.ct.links.Name(peer)...)
	if what != "" {
		b = append(append(append(b, " ("...), what...), ')')
	}
	return string(b)
}

// DropSend forgets the send function of a message that could not be sent.
func (p *Pass) DropSend(id MessageID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sends, id)
	p.shown.uncarry(id)
}

// NoteSend notes for [Graph] that tensors leave in a message to which no gradients will come back.
// [Pass.AttachSend] does it where no tensor requires one.
func (p *Pass) NoteSend(id MessageID, to WorkerID, what string, tensors []*autodiff.Tensor) {
	p.note(passgraph.Node{Kind: passgraph.Send, Name: what, Message: uint64(id), Peer: int(to)}, tensors)
}

// NoteRecv notes the other end of such a message, as [Pass.AttachRecv] does.
func (p *Pass) NoteRecv(id MessageID, from WorkerID, tensors []*autodiff.Tensor) {
	p.note(passgraph.Node{Kind: passgraph.Recv, Message: uint64(id), Peer: int(from)}, tensors)
}

func (p *Pass) note(n passgraph.Node, tensors []*autodiff.Tensor) {
	if len(tensors) == 0 {
		return
	}
	for _, t := range tensors {
		n.Results = append(n.Results, passgraph.Type{Dtype: t.Dtype(), Shape: t.Type().Shape})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.left {
		p.shown.carry(n)
	}
}

// AttachRecv records that tensors arrived from a worker in a message. requires says which of them
// required a gradient at the sender, and still do; origins where they lay there, and past what the
// sender said of where they come from.
func (p *Pass) AttachRecv(id MessageID, from WorkerID, tensors []*autodiff.Tensor, requires []bool, origins []device.ID, past Lineage) error {
	if p.meet(from) {
		return p.err("receive", ErrLeft)
	}
	if !slices.Contains(requires, true) {
		p.NoteRecv(id, from, tensors)
		return nil
	}
	r := &recvFunction{id: id, from: from, origins: origins}
	name := p.label("recv ", id, " from ", from, "")
	r.node = autodiff.NewSink(name, tensors, requires, func([]*autodiff.Tensor) error {
		return fmt.Errorf("%s: this tensor came from another worker; use ctx.Backward with the pass's context", name)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return p.err("receive", ErrLeft)
	}
	if err := p.past.learn(from, id, past); err != nil {
		return p.err("receive", err)
	}
	put(&p.recvs, r.node, r)
	put(&p.arrived, id, r)
	return nil
}

// Edge describes a send or recv function, for inspection.
type Edge struct {
	Message MessageID
	Peer    WorkerID
	Node    *autodiff.Node
}

// SendFunctions lists the send functions attached here, by message, that no backward has used up.
func (p *Pass) SendFunctions() []Edge {
	p.mu.Lock()
	defer p.mu.Unlock()
	var es []Edge
	for _, s := range p.sends {
		es = append(es, Edge{s.id, s.to, s.node})
	}
	slices.SortFunc(es, func(a, b Edge) int { return cmp.Compare(a.Message, b.Message) })
	return es
}

// RecvFunctions lists the recv functions attached here, by message.
func (p *Pass) RecvFunctions() []Edge {
	p.mu.Lock()
	defer p.mu.Unlock()
	var es []Edge
	for _, r := range p.recvs {
		es = append(es, Edge{r.id, r.from, r.node})
	}
	slices.SortFunc(es, func(a, b Edge) int { return cmp.Compare(a.Message, b.Message) })
	return es
}
