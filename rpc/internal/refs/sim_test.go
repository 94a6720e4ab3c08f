package refs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// sim is some workers, a network that loses, delays, repeats and reorders, and a view of all of it
// that no worker has. Every choice comes from the seed.
type sim struct {
	r     *rand.Rand
	now   time.Time
	live  []*node // by rank; nil where the worker is dead
	epoch uint64
	wires []*wire // what is under way, in no order
	cut   map[[2]Node]bool
	loss  float64
	talk  bool
	log   []string
	bad   []string // what the omniscient view objects to
	hurt  sabotage
	ran   int // handlers
	denied,
	freed int
}

// sabotage breaks a machine on purpose, to see that the simulation notices.
type sabotage struct {
	shared   func(m *Machine, to Node, s Share)          // after a share was given
	arrived  func(m *Machine, now time.Time, h Hold)     // after a share arrived unconfirmed
	receive  func(m *Machine, from Node, msgs []Message) // before control messages are received
	lose     func(m *Machine, n Node) bool               // before a loss; true: instead of it
	ignore   func(msg Message) bool                      // answers OK and does nothing
	deaf     bool                                        // failures of packets are not told
	eager    bool                                        // handlers do not wait
	stale    func(m *Machine, from Node, s Share)        // before a share arrives
	abandons bool                                        // abandoned calls are not told
	creation func(m *Machine, id ID)                     // when a creation timed out
}

type node struct {
	*Machine
	mine    []*handle
	waiting map[Hold][]*handle
}

// handle is a reference in a user's hands, and all that the omniscient view knows of it.
type handle struct {
	h         Hold
	id        ID
	parent    Node // who gave it; zero where nobody did
	confirmed bool
	failed    error
	released  bool
	creating  bool
	msg       *handler
}

// handler runs when all that its message brought is confirmed.
type handler struct {
	at    *node
	args  []*handle
	ended bool
}

// wire is one thing under way.
type wire struct {
	kind     string
	from, to Node
	packet   uint64
	msgs     []Message
	answers  []Answer
	shares   []Share
	ticket   uint64
	id       ID
	h        Hold
	ok       bool
	copy     bool  // it was delivered before
	gaveUp   *bool // the sender has given up
}

func newSim(seed uint64, workers int, hurt sabotage, talk bool) *sim {
	s := &sim{talk: talk, r: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(0, 0), live: make([]*node, workers), cut: map[[2]Node]bool{}, hurt: hurt}
	s.loss = s.r.Float64() * 0.5
	for rank := range workers {
		s.start(rank)
	}
	return s
}

func (s *sim) start(rank int) {
	s.epoch++
	n := &node{Machine: New(Node{rank, s.epoch}, 0), waiting: map[Hold][]*handle{}}
	s.live[rank] = n
	for _, o := range s.live {
		if o != nil && o != n {
			n.Meet(o.me)
			o.Meet(n.me)
		}
	}
	s.logf("start %v", n.me)
}

func (s *sim) logf(format string, args ...any) {
	if s.talk {
		s.log = append(s.log, fmt.Sprintf(format, args...))
	}
}

func (s *sim) object(format string, args ...any) {
	s.bad = append(s.bad, fmt.Sprintf(format, args...))
	s.logf("OBJECTION "+format, args...)
}

func (s *sim) at(n Node) *node {
	if o := s.live[n.Rank]; o != nil && o.me == n {
		return o
	}
	return nil
}

func pair(a, b Node) [2]Node {
	if a.compare(b) > 0 {
		a, b = b, a
	}
	return [2]Node{a, b}
}

// whole says that no link among the nodes was ever lost.
func (s *sim) whole(ns ...Node) bool {
	for i, a := range ns {
		if s.at(a) == nil {
			return false
		}
		for _, b := range ns[:i] {
			if s.cut[pair(a, b)] {
				return false
			}
		}
	}
	return true
}

// put sends something; it may be lost on the way where it is told so later.
func (s *sim) put(w *wire) { s.wires = append(s.wires, w) }

// do carries out what a machine asks for, and holds it against the omniscient view.
func (s *sim) do(n *node) {
	for _, a := range n.Machine.Actions() {
		switch a.Kind {
		case Send:
			s.logf("%v sends %v packet %d %v", n.me, a.To, a.Packet, a.Messages)
			msgs := slices.Clone(a.Messages)
			s.put(&wire{kind: "packet", from: n.me, to: a.To, packet: a.Packet, msgs: msgs})
			s.put(&wire{kind: "timeout", from: a.To, to: n.me, packet: a.Packet})
		case Freed:
			s.logf("%v frees %v", n.me, a.ID)
			s.freed++
			s.checkFreed(n, a.ID)
		case Confirmed, Denied:
			s.logf("%v hold %d: confirmed %v %v", n.me, a.Hold, a.Kind == Confirmed, a.Err)
			for _, h := range n.waiting[a.Hold] {
				h.confirmed, h.failed = a.Kind == Confirmed, a.Err
				if a.Kind == Denied {
					s.denied++
				}
				if a.Kind == Denied && s.whole(n.me, h.id.Owner, h.parent) {
					s.object("%v was denied %v from %v, though no link was lost: %v", n.me, h.id, h.parent, a.Err)
				}
				s.advance(h.msg)
			}
			delete(n.waiting, a.Hold)
		}
	}
}

// checkFreed objects where anybody still can reach the value.
func (s *sim) checkFreed(owner *node, id ID) {
	for _, n := range s.live {
		if n == nil {
			continue
		}
		for _, h := range n.mine {
			if h.id != id || h.released || h.failed != nil || h.creating || !s.whole(n.me, owner.me) {
				continue
			}
			if h.confirmed || s.whole(n.me, owner.me, h.parent) {
				s.object("%v was freed while %v holds it", id, n.me)
			}
		}
	}
}

// advance runs a handler when its arguments are there.
func (s *sim) advance(f *handler) {
	if f == nil || f.ended {
		return
	}
	for _, h := range f.args {
		if !h.confirmed && h.failed == nil && !s.hurt.eager {
			return
		}
	}
	f.ended, s.ran = true, s.ran+1
	for _, h := range f.args {
		if h.failed != nil {
			continue
		}
		if !h.confirmed {
			s.object("%v runs before %v is confirmed", f.at.me, h.id)
		}
		if owner := s.at(h.id.Owner); owner != nil && s.whole(f.at.me, h.id.Owner) && !owner.Has(h.id) {
			s.object("%v runs with %v, which is gone", f.at.me, h.id)
		}
	}
}

// usable lists what a worker can share.
func (n *node) usable() (hs []*handle) {
	for _, h := range n.mine {
		if h.confirmed && !h.released && h.failed == nil {
			hs = append(hs, h)
		}
	}
	return hs
}

func (s *sim) pick() *node {
	for {
		if n := s.live[s.r.IntN(len(s.live))]; n != nil {
			return n
		}
	}
}

// step is one thing that a user does, or that happens.
func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.r.IntN(30)) * time.Millisecond)
	switch x := s.r.IntN(100); {
	case x < 5:
		s.create(s.pick(), s.pick())
	case x < 8:
		n := s.pick()
		h, id := n.Own()
		s.logf("%v owns %v as hold %d", n.me, id, h)
		n.mine = append(n.mine, &handle{h: h, id: id, confirmed: true})
	case x < 22:
		s.send(s.pick(), s.pick())
	case x < 28:
		s.request(s.pick(), s.pick())
	case x < 42:
		n := s.pick()
		if len(n.mine) > 0 {
			s.release(n, s.r.IntN(len(n.mine)))
		}
	case x < 43 && s.r.IntN(4) == 0:
		s.kill(s.pick())
	case x < 44 && s.r.IntN(6) == 0:
		s.sever(s.pick(), s.pick())
	case x < 46:
		s.tick()
	default:
		s.deliver()
	}
}

func (s *sim) tick() {
	for _, n := range s.live {
		if n != nil {
			n.Tick(s.now)
			s.do(n)
		}
	}
}

func (s *sim) release(n *node, i int) {
	h := n.mine[i]
	n.mine = slices.Delete(n.mine, i, i+1)
	h.released = true
	if h.msg != nil {
		h.msg.ended = true // where it waits still, the call is cancelled
	}
	s.logf("%v releases hold %d of %v", n.me, h.h, h.id)
	n.Release(s.now, h.h)
	s.do(n)
}

func (s *sim) create(n, owner *node) {
	if !s.whole(n.me, owner.me) {
		return
	}
	h, id, err := n.Create(owner.me)
	if err != nil {
		return // it has not lost it, but is about to
	}
	s.logf("%v creates %v as hold %d", n.me, id, h)
	n.mine = append(n.mine, &handle{h: h, id: id, creating: true})
	gaveUp := new(bool)
	s.put(&wire{kind: "create", from: n.me, to: owner.me, id: id, h: h, gaveUp: gaveUp})
	s.put(&wire{kind: "created", from: owner.me, to: n.me, id: id, h: h, gaveUp: gaveUp}) // the time-out
}

// share puts some of n's references into a message.
func (s *sim) share(n *node, to Node, ticket uint64) (shares []Share) {
	have := n.usable()
	for range min(len(have), s.r.IntN(3)) {
		h := have[s.r.IntN(len(have))]
		got, err := n.Share(h.h, to, ticket)
		if err != nil {
			if !errors.Is(err, ErrLost) && s.whole(n.me, h.id.Owner) {
				s.object("%v cannot share %v: %v", n.me, h.id, err)
			}
			continue
		}
		s.logf("%v gives %v of hold %d to %v", n.me, got, h.h, to)
		if s.hurt.shared != nil {
			s.hurt.shared(n.Machine, to, got)
		}
		shares = append(shares, got)
	}
	return shares
}

func (s *sim) send(n, to *node) {
	if shares := s.share(n, to.me, 0); len(shares) > 0 {
		gaveUp := new(bool)
		s.put(&wire{kind: "args", from: n.me, to: to.me, shares: shares, gaveUp: gaveUp})
		if s.r.IntN(3) == 0 { // the call times out, at the latest when all is delivered
			s.put(&wire{kind: "gaveup", from: to.me, to: n.me, shares: shares, gaveUp: gaveUp})
		}
	}
}

func (s *sim) request(n, to *node) {
	if k := n.Ticket(to.me); k != 0 {
		s.logf("%v calls %v with ticket %d", n.me, to.me, k)
		gaveUp := new(bool)
		s.put(&wire{kind: "request", from: n.me, to: to.me, ticket: k, gaveUp: gaveUp})
		s.put(&wire{kind: "abandon", from: to.me, to: n.me, ticket: k, gaveUp: gaveUp}) // the time-out
	}
}

func (s *sim) kill(n *node) {
	s.logf("kill %v", n.me)
	s.live[n.me.Rank] = nil
	for _, o := range s.live {
		if o != nil && o.peers[n.me] != nil {
			s.cut[pair(o.me, n.me)] = true
			s.put(&wire{kind: "lose", from: n.me, to: o.me})
		}
	}
	s.start(n.me.Rank)
}

func (s *sim) sever(a, b *node) {
	if a == b || s.cut[pair(a.me, b.me)] {
		return
	}
	s.logf("sever %v %v", a.me, b.me)
	s.cut[pair(a.me, b.me)] = true
	s.put(&wire{kind: "lose", from: a.me, to: b.me})
	s.put(&wire{kind: "lose", from: b.me, to: a.me})
}

// deliver lets one thing that is under way arrive, or get lost.
func (s *sim) deliver() {
	if len(s.wires) == 0 {
		return
	}
	i := s.r.IntN(len(s.wires))
	w := s.wires[i]
	lossy := slices.Contains([]string{"packet", "answers", "args", "request", "answer", "create"}, w.kind)
	if lossy && s.r.IntN(6) == 0 { // it arrives once more later
		c := *w
		w.copy = true
		s.wires = append(s.wires, w)
		w = &c
		s.wires[i] = s.wires[len(s.wires)-1]
		s.wires = s.wires[:len(s.wires)-1]
	} else {
		s.wires[i] = s.wires[len(s.wires)-1]
		s.wires = s.wires[:len(s.wires)-1]
	}
	n := s.at(w.to)
	if n == nil {
		return
	}
	if lossy && s.r.Float64() < s.loss {
		s.logf("lost: %s %v to %v packet %d %v", w.kind, w.from, w.to, w.packet, w.shares)
		if w.kind == "args" && !w.copy {
			s.put(&wire{kind: "gaveup", from: w.to, to: w.from, shares: w.shares, gaveUp: w.gaveUp})
		}
		return
	}
	s.arrive(n, w)
	s.do(n)
}

func (s *sim) arrive(n *node, w *wire) {
	s.logf("%v gets %s of %v: packet %d %v %v %v ticket %d %v", n.me, w.kind, w.from, w.packet, w.msgs, w.answers, w.shares, w.ticket, w.id)
	switch w.kind {
	case "packet":
		s.packet(n, w)
	case "answers":
		n.Answered(s.now, w.from, w.packet, w.answers)
	case "timeout":
		if !s.hurt.deaf {
			n.Failed(s.now, w.from, w.packet)
		}
	case "args":
		s.take(n, w)
	case "gaveup":
		*w.gaveUp = true
		for _, sh := range w.shares {
			n.Recall(s.now, w.from, sh)
		}
	case "request":
		if n.peers[w.from] == nil || n.Answer(w.from, w.ticket) != nil {
			return
		}
		s.put(&wire{kind: "answer", from: n.me, to: w.from, ticket: w.ticket, shares: s.share(n, w.from, w.ticket), gaveUp: w.gaveUp})
	case "answer":
		if !*w.gaveUp && !w.copy {
			*w.gaveUp = true // it needs no abandoning any more
			s.take(n, w)
		}
	case "abandon":
		if !*w.gaveUp && !s.hurt.abandons {
			*w.gaveUp = true
			n.Abandon(s.now, w.from, w.ticket)
		}
	case "create":
		if err := n.Serve(w.from, w.id); err == nil {
			s.put(&wire{kind: "made", from: w.from, to: n.me, id: w.id, h: w.h, gaveUp: w.gaveUp})
		} else if !w.copy && !*w.gaveUp && s.whole(n.me, w.from) && !errors.Is(err, ErrAbandoned) {
			s.object("%v does not serve %v: %v", n.me, w.id, err)
		}
	case "made":
		ok := s.r.IntN(4) > 0
		n.Made(w.id, ok)
		s.put(&wire{kind: "created", from: n.me, to: w.from, id: w.id, h: w.h, ok: ok, gaveUp: w.gaveUp})
	case "created":
		s.created(n, w)
	case "lose":
		if s.hurt.lose == nil || !s.hurt.lose(n.Machine, w.from) {
			n.Lose(s.now, w.from)
		}
	}
}

func (s *sim) packet(n *node, w *wire) {
	if s.hurt.receive != nil {
		s.hurt.receive(n.Machine, w.from, w.msgs)
	}
	msgs := w.msgs
	if s.hurt.ignore != nil {
		msgs = slices.DeleteFunc(slices.Clone(msgs), s.hurt.ignore)
	}
	answers, err := n.Receive(s.now, w.from, msgs)
	if err == nil {
		for len(answers) < len(w.msgs) {
			answers = append(answers, OK)
		}
		s.put(&wire{kind: "answers", from: n.me, to: w.from, packet: w.packet, answers: answers})
	}
}

func (s *sim) created(n *node, w *wire) {
	if *w.gaveUp {
		return // told already
	}
	*w.gaveUp = true
	if s.hurt.creation != nil && !w.ok {
		s.hurt.creation(n.Machine, w.id)
	}
	n.Created(s.now, w.h, w.ok)
	for _, h := range n.mine {
		if h.h == w.h && h.creating {
			h.creating, h.confirmed = false, w.ok
			if !w.ok {
				h.failed = ErrGone
			}
		}
	}
}

// take unpacks a message with references and starts its handler.
func (s *sim) take(n *node, w *wire) {
	f := &handler{at: n}
	for _, sh := range w.shares {
		if s.hurt.stale != nil {
			s.hurt.stale(n.Machine, w.from, sh)
		}
		h, ok, err := n.Arrive(s.now, w.from, sh)
		if err != nil {
			s.logf("%v does not take %v: %v", n.me, sh, err)
			if !w.copy && !*w.gaveUp && s.whole(n.me, w.from, sh.ID.Owner) {
				s.object("%v does not take %v from %v: %v", n.me, sh, w.from, err)
			}
			continue
		}
		if w.from == n.me && !ok {
			s.object("%v asks anybody for what it has", n.me)
		}
		u := &handle{h: h, id: sh.ID, parent: w.from, confirmed: ok, msg: f}
		f.args = append(f.args, u)
		n.mine = append(n.mine, u)
		if !ok {
			n.waiting[h] = append(n.waiting[h], u)
			if s.hurt.arrived != nil {
				s.hurt.arrived(n.Machine, s.now, h)
			}
		}
	}
	s.advance(f)
}

// quiet releases everything and lets the network come to rest.
func (s *sim) quiet() {
	for _, n := range s.live {
		for len(n.mine) > 0 {
			s.release(n, len(n.mine)-1)
		}
	}
	for i := range 100_000 {
		s.now = s.now.Add(10 * time.Millisecond)
		if i%16 == 0 || len(s.wires) == 0 {
			s.tick()
		}
		s.deliver()
		for _, n := range s.live {
			for len(n.mine) > 0 {
				s.release(n, len(n.mine)-1)
			}
		}
		if len(s.wires) == 0 && !slices.ContainsFunc(s.live, func(n *node) bool { _, more := n.Next(); return more }) {
			break
		}
	}
	for _, n := range s.live {
		if left := n.leftover(s); left != "" {
			s.object("%v is left with %s", n.me, left)
		}
	}
}

// leftover says what a machine keeps, where it should keep nothing.
func (n *node) leftover(s *sim) string {
	var b strings.Builder
	if st := n.Stats(); st != (Stats{}) {
		fmt.Fprintf(&b, "%+v", st)
	}
	if at, more := n.Next(); more {
		fmt.Fprintf(&b, " a timer at %v", at)
	}
	for _, p := range n.sorted() {
		if len(p.asked)+len(p.given)+len(p.arrived)+len(p.counted)+len(p.out.queue)+len(p.out.flying) > 0 {
			fmt.Fprintf(&b, " %v: asked %v given %v arrived %v counted %v queue %v flying %v", p.node, p.asked, p.given, p.arrived, p.counted, p.out.queue, p.out.flying)
		}
		if s.at(p.node) == nil || s.cut[pair(p.node, n.me)] {
			fmt.Fprintf(&b, " a lost peer %v", p.node)
		}
		if len(p.used) > 1 || len(p.seen) > 1 || len(p.answered) > 1 {
			fmt.Fprintf(&b, " %v: gaps: used %v seen %v answered %v", p.node, p.used, p.seen, p.answered)
		}
	}
	return b.String()
}

// run is a whole schedule of a number of steps.
func run(seed uint64, steps int, hurt sabotage, talk bool) *sim {
	r := rand.New(rand.NewPCG(seed, 1))
	s := newSim(seed, 2+r.IntN(4), hurt, talk)
	for range steps {
		s.step()
		if len(s.bad) > 0 {
			return s
		}
	}
	s.quiet()
	return s
}

// shrink finds the shortest schedule of a seed that goes wrong.
func shrink(seed uint64, steps int, hurt sabotage) *sim {
	for n := range steps {
		if s := run(seed, n, hurt, true); len(s.bad) > 0 {
			return s
		}
	}
	return run(seed, steps, hurt, true)
}
