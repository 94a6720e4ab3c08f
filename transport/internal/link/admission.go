package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/quicstream"
)

const (
	handshakesMany = 48  // under way: from now on strangers must first show that they receive what is sent to their address
	handshakesMost = 256 // under way, of strangers; and as many of members' hosts
	listenTimeout  = 2500 * time.Millisecond
)

var errCrowd = errors.New("too many handshakes are not finished")

var (
	// unprovedTerms are for all whose address may be forged, together.
	unprovedTerms = places.Terms{Most: handshakesMost, Burst: 192, PerSecond: 32}
	// unmarkedTerms are the same where members' dials have marks: beyond these a member's dial is
	// still answered, and no other one.
	unmarkedTerms = places.Terms{Most: handshakesMost, Burst: handshakesMany, PerSecond: 8}
	// strangerTerms: a job's workers on one host all dial at the same time, and once the first has
	// proved itself they are no strangers.
	strangerTerms = places.Terms{Most: handshakesMost, Burst: 192, PerSecond: 32, BurstAll: 256, PerSecondAll: 64}
	memberTerms   = places.Terms{Most: handshakesMost, Burst: 512, PerSecond: 256}
)

// admission decides which handshakes may begin. It is pure: now comes in. Strangers have an account
// for each host that has shown that its address is its own; the others share one. Members' hosts
// have places of their own.
type admission struct{ unproved, strangers, members *places.Places }

func newAdmission(unproved places.Terms) *admission {
	return &admission{places.New(unproved), places.New(strangerTerms), places.New(memberTerms)}
}

// crowded says whether strangers are to show first that their address is theirs.
func (a *admission) crowded(now time.Time) bool {
	return len(a.unproved.Under)+len(a.strangers.Under)+len(a.members.Under) >= handshakesMany || !a.unproved.Affords(now, "")
}

// spent says whether a host of strangers, which has shown that its address is its own, may begin no
// handshake for now.
func (a *admission) spent(now time.Time, host string) bool {
	return a.strangers.Accounts[host] != nil && !a.strangers.Affords(now, host)
}

// enter gives a place to a handshake, perhaps another's: see package places. proved says that the
// host has shown that its address is its own, known that members of the job are there.
func (a *admission) enter(now time.Time, host string, proved, known bool) (mine, gone *places.Place) {
	switch {
	case !proved:
		return a.unproved.Enter(now, "")
	case known:
		return a.members.Enter(now, host)
	}
	return a.strangers.Enter(now, host)
}

// gate is the admission of one listener. It is safe for concurrent use.
type gate struct {
	next    func(context.Context, *quic.ClientInfo) (context.Context, error)
	known   *acquaintances
	marks   identity.Marks
	crowded func() // is called for each that was refused, or had to go, or was not heeded: its address may be forged

	mu sync.Mutex
	a  *admission
}

func newGate(next func(context.Context, *quic.ClientInfo) (context.Context, error), known *acquaintances, m identity.Marks, crowded func()) *gate {
	unproved := unprovedTerms
	if m.Made() {
		unproved = unmarkedTerms
	}
	return &gate{next: next, known: known, marks: m, crowded: crowded, a: newAdmission(unproved)}
}

func (g *gate) verify(net.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.a.crowded(time.Now())
}

// heeds keeps from quic-go, in a crowd, the dials that no member makes. Where that cannot be seen
// it keeps back those of hosts that may begin no handshake for now: quic-go would refuse them after
// it had asked for a proof of the address. A dialler that is not heeded asks again after some time,
// and one whose handshake is under way goes on with it.
func (g *gate) heeds(datagram []byte, from net.Addr) bool {
	by, ok := dials(datagram)
	if !ok || !g.wary(from) || g.marks.On(by) {
		return true
	}
	g.crowded()
	return false
}

// wary says whether a dial from there is heeded for its mark alone.
func (g *gate) wary(from net.Addr) bool {
	host, now := places.AccountOf(from), time.Now()
	member := g.known.has(host)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.a.crowded(now) && (g.marks.Made() || !member && g.a.spent(now, host))
}

// handshake is one that has begun.
type handshake struct {
	place *places.Place // guarded by the gate's mu
	leave func()
}

type handshakeKey struct{}

// connContext lets a handshake begin, or not. It is over when its connection has proved itself, or
// is gone.
func (g *gate) connContext(c context.Context, info *quic.ClientInfo) (context.Context, error) {
	host := places.AccountOf(info.RemoteAddr)
	now := time.Now()
	known := g.known.has(host)
	g.mu.Lock()
	mine, gone := g.a.enter(now, host, info.AddrVerified, known)
	var end func()
	if gone != nil {
		end = gone.End
	}
	g.mu.Unlock()
	if end != nil {
		end()
	}
	if mine == nil {
		g.crowded()
		return nil, errCrowd
	}
	h := &handshake{place: mine}
	h.leave = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		h.place.Leave()
	})
	context.AfterFunc(c, h.leave)
	return g.next(context.WithValue(c, handshakeKey{}, h), info)
}

// prove waits until a connection has shown its certificate, and says whether it has. From when its
// first words have come it can be evicted at once; who has not even said these is gone soon.
func (g *gate) prove(c context.Context, conn *quic.Conn) bool {
	h, ok := conn.Context().Value(handshakeKey{}).(*handshake)
	if !ok {
		return false
	}
	end := sync.OnceFunc(func() {
		g.crowded()
		go func() { _ = conn.CloseWithError(quicstream.CodeBusy, errCrowd.Error()) }() // it waits for the connection's goroutine
	})
	g.mu.Lock()
	h.place.End = end
	evicted := h.place.Evicted
	g.mu.Unlock()
	if evicted {
		end()
	}
	select {
	case <-conn.HandshakeComplete():
		g.known.remember(places.AccountOf(conn.RemoteAddr()))
		h.leave()
		return true
	case <-conn.Context().Done():
	case <-c.Done():
		_ = conn.CloseWithError(quicstream.CodeClosed, "the listener was closed")
	}
	return false
}
