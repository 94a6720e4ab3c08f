package link

import (
	"net"
	"sync"

	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Acquainted is a [Network] that can be told where members of the job are. In a crowd of strangers
// their hosts have places of their own.
type Acquainted interface {
	wire.Network
	// Acquaint says that a member is at "host:port". It counts where host is an IP address.
	Acquaint(addr string)
}

// acquaintancesMost bounds how many hosts are remembered; further ones take the place of the
// oldest.
const acquaintancesMost = 1 << 12

// acquaintances are the hosts where members of the job were seen, or are said to be. It is safe for
// concurrent use.
type acquaintances struct {
	mu    sync.Mutex
	hosts map[string]struct{}
	order []string // in which they came; a ring once it is full
	next  int      // in order, when it is full
}

func newAcquaintances() *acquaintances { return &acquaintances{hosts: map[string]struct{}{}} }

func (a *acquaintances) has(host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.hosts[host]
	return ok
}

func (a *acquaintances) remember(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.hosts[host]; ok {
		return
	}
	a.hosts[host] = struct{}{}
	if len(a.order) < acquaintancesMost {
		a.order = append(a.order, host)
		return
	}
	delete(a.hosts, a.order[a.next])
	a.order[a.next] = host
	a.next = (a.next + 1) % acquaintancesMost
}

// Acquaint implements [Acquainted].
func (n *network) Acquaint(addr string) {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && !ip.IsUnspecified() {
		n.known.remember(places.AccountOf(&net.UDPAddr{IP: ip}))
	}
}
