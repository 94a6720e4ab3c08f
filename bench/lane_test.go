package bench

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// lanes are the ways for bytes to travel between the two workers, each forced at both ends.
var lanes = []string{transport.LaneLocal, transport.LaneQUIC, transport.LaneBulk}

// overLanes runs fn once per lane, as t/lane=…, with a job of two processes that ends with it. A
// lane that cannot be used here is skipped with its reason: figures of another lane never go under
// its name.
func overLanes[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, fn func(t T, w *rpc.Worker)) {
	t.Helper()
	for _, l := range lanes {
		t.Run("lane="+l, func(t T) { t.Helper(); fn(t, startLane(t, l).worker) })
	}
}

// startLane is startJob on a lane that serves.
func startLane(t testing.TB, lane string) *job {
	t.Helper()
	j := startJob(t, lane)
	if why := j.net.without(lane); why != "" {
		t.Skipf("lane %s is not used: %s", lane, why)
	}
	return j
}

// watched is a network of one lane that keeps its links, to ask them which lanes they have.
type watched struct {
	transport.Network

	mu    sync.Mutex
	links []transport.Link
}

func watch(token, lane string) (*watched, error) {
	id, err := transport.IdentityFromToken(token, "bench", "bench", time.Now)
	if err != nil {
		return nil, err
	}
	net, err := transport.New(transport.Config{Identity: id, Lanes: []string{lane}})
	return &watched{Network: net}, err
}

// without says why a link does not use the lane; empty when all do.
func (n *watched) without(lane string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		states := l.Lanes()
		i := slices.IndexFunc(states, func(s transport.LaneState) bool { return s.Name == lane })
		switch {
		case i < 0:
			return "the link does not know it"
		case states[i].Why != "":
			return states[i].Why
		}
	}
	return ""
}

func (n *watched) keep(l transport.Link, err error) (transport.Link, error) {
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.links = append(n.links, l)
	}
	return l, err
}

func (n *watched) Dial(c context.Context, addr string) (transport.Link, error) {
	return n.keep(n.Network.Dial(c, addr))
}

func (n *watched) Listen(c context.Context, addr string) (transport.Listener, error) {
	l, err := n.Network.Listen(c, addr)
	if err != nil {
		return nil, err
	}
	return watchedListener{l, n}, nil
}

type watchedListener struct {
	transport.Listener
	net *watched
}

func (l watchedListener) Accept(c context.Context) (transport.Link, error) {
	return l.net.keep(l.Listener.Accept(c))
}
