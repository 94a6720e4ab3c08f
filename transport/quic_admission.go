package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	handshakesMany = 48      // under way: strangers must first show that they receive what is sent to their address
	handshakesMost = 256     // under way: further ones are refused
	hostBurst      = 192     // handshakes of one host at once: a job's workers on one host all dial at the same time
	hostPerSecond  = 32      // and in the long run
	hostsMost      = 1 << 10 // hosts whose handshakes are counted; further ones share one account
)

var errCrowd = errors.New("too many handshakes")

// admission decides which handshakes may begin. It is pure: now comes in.
type admission struct {
	under  int
	hosts  map[string]*account
	others account // of hosts that found no room in hosts
}

// account is what a host may still begin.
type account struct {
	left float64
	at   time.Time
}

func newAdmission() *admission {
	return &admission{hosts: map[string]*account{}, others: account{left: hostBurst}}
}

// many says whether strangers are to be checked first.
func (a *admission) many() bool { return a.under >= handshakesMany }

// admit says whether a handshake may begin, and counts it.
func (a *admission) admit(now time.Time, host string) bool {
	if a.under >= handshakesMost {
		return false
	}
	acc := a.account(now, host)
	acc.fill(now)
	if acc.left < 1 {
		return false
	}
	acc.left--
	a.under++
	return true
}

func (a *admission) over() { a.under-- }

func (a *admission) account(now time.Time, host string) *account {
	if acc := a.hosts[host]; acc != nil {
		return acc
	}
	if len(a.hosts) >= hostsMost {
		for name, acc := range a.hosts {
			if acc.fill(now); acc.left >= hostBurst {
				delete(a.hosts, name)
			}
		}
	}
	if len(a.hosts) >= hostsMost {
		return &a.others
	}
	acc := &account{left: hostBurst, at: now}
	a.hosts[host] = acc
	return acc
}

func (a *account) fill(now time.Time) {
	if d := now.Sub(a.at); d > 0 {
		a.left = min(hostBurst, a.left+hostPerSecond*d.Seconds())
		a.at = now
	}
}

// gate is the admission of one listener. It is safe for concurrent use.
type gate struct {
	next func(context.Context, *quic.ClientInfo) (context.Context, error)

	mu sync.Mutex
	a  *admission
}

func newGate(next func(context.Context, *quic.ClientInfo) (context.Context, error)) *gate {
	return &gate{next: next, a: newAdmission()}
}

func (g *gate) verify(net.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.a.many()
}

type handshakeKey struct{}

// connContext lets a handshake begin, or not. It is over when its connection was accepted, or is gone.
func (g *gate) connContext(c context.Context, info *quic.ClientInfo) (context.Context, error) {
	host := hostOf(info.RemoteAddr)
	g.mu.Lock()
	ok := g.a.admit(time.Now(), host)
	g.mu.Unlock()
	if !ok {
		return nil, errCrowd
	}
	over := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.a.over()
	})
	context.AfterFunc(c, over)
	return g.next(context.WithValue(c, handshakeKey{}, over), info)
}

// accepted says that a connection's handshake is over.
func (g *gate) accepted(conn *quic.Conn) {
	if over, ok := conn.Context().Value(handshakeKey{}).(func()); ok {
		over()
	}
}

// hostOf is an address without its port.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}
