package collective

import (
	"context"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/transport"
)

// aheadWindow is how many bytes of large arrays a member sends to another one of operations that
// it does not know that one to have begun. What is beyond waits until that one says so. A member
// that is slow holds so much for each other one at most, beside headers, of which desk.Ahead bounds
// the number. Nobody waits here for anything but that a member comes to this very operation, which
// all of them wait for anyway.
const aheadWindow = 64 << 20

// mayGo waits until a member may be sent tensors; false where the operation has failed before.
func (r *run) mayGo(peer int, tensors []transport.Tensor) bool {
	g, bytes := r.g, 0
	for _, t := range tensors {
		bytes += t.Buf.Len()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for asked := false; !g.desk.Over(r.key); g.heardOf.Wait() {
		if _, said := g.desk.Said(r.key, peer); said {
			return true
		}
		if g.ahead[peer]+bytes <= g.window {
			g.ahead[peer] += bytes
			if r.ahead == nil {
				r.ahead = map[int]int{}
			}
			r.ahead[peer] += bytes
			return true
		}
		if !asked {
			asked = true
			g.send(note{Scope: r.key.Scope, N: r.key.N, Part: r.key.Part, Ask: true}, peer)
		}
	}
	return false
}

// present notes that a member is known to have begun an operation. The group's lock is held.
func (g *Group) present(w *wait, peer int) {
	if w == nil || w.run == nil {
		return
	}
	g.ahead[peer] -= w.run.ahead[peer]
	delete(w.run.ahead, peer)
	g.heardOf.Broadcast()
}

// settle ends an operation's part of what was sent ahead: all members have begun it, or are told
// that it has failed. The group's lock is held.
func (r *run) settle() {
	for peer, bytes := range r.ahead {
		r.g.ahead[peer] -= bytes
	}
	if r.ahead != nil {
		r.g.heardOf.Broadcast()
	}
	r.ahead = nil
}

// weight is how much of this member's memory a message takes. Tensors of a member on this host lie
// in that one's; until it is known who that is, headers alone count. The group's lock is held.
func (g *Group) weight(from int, n *note, tensors []transport.Tensor) int {
	bytes := len(n.body)
	if len(g.near) > from && !g.near[from] {
		for _, t := range tensors {
			bytes += t.Buf.Len()
		}
	}
	return bytes
}

// answer says what this member has called, at once or when it does.
func (g *Group) answer(k desk.Key, to int) {
	g.mu.Lock()
	call, ok := g.desk.Ask(k, to)
	g.mu.Unlock()
	if ok {
		g.sayCalled(k, call, to)
	}
}

// answerAll tells those who have asked that this member has begun. The group's lock is held.
func (g *Group) answerAll(k desk.Key) {
	for _, to := range g.desk.Asked(k) {
		if call, ok := g.desk.Called(k); ok {
			g.sayCalled(k, call, to)
		}
	}
}

func (g *Group) sayCalled(k desk.Key, call desk.Call, to int) {
	g.runs.Go(func() {
		c, cancel := context.WithTimeout(g.life, patience)
		defer cancel()
		_ = g.post(c, to, &note{Scope: k.Scope, N: k.N, Part: k.Part, Call: packCall(call), Step: saying}) // who cannot be reached is lost
	})
}
