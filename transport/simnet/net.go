package simnet

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/mux"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Config describes a network. The zero value delivers at once and loses nothing.
type Config struct {
	Seed uint64
	// MinDelay and MaxDelay bound the random delay of every chunk, and of each way of a Dial. A
	// message of up to 32 KiB is one chunk.
	MinDelay, MaxDelay time.Duration
	// Delay, where given, is used in their place. It is called with locks held and must not use the
	// Net.
	Delay func(from, to string, r *rand.Rand) time.Duration
	// Drop says that a message is lost. As streams are in order, nothing that follows it on its
	// stream in that direction arrives, except a Reset where the peer knows the stream. It is
	// called while the message is sent, must not keep it, and must not use the Net.
	Drop func(from, to string, m *transport.Message) bool
	// Detect is after how long silence counts as loss, and for how long a Dial is tried; default
	// 2.4 s.
	Detect time.Duration
	// MaxStreams is how many unfinished streams each end of a link may have opened; default 1024.
	MaxStreams int
	Limits     transport.Limits
	// Logger hears of refused peers. nil means slog.Default().
	Logger *slog.Logger
}

// Net is a network. Its hosts come into being when they are named.
type Net struct {
	cfg    Config
	codec  *wire.Codec
	pieces *mux.Pieces
	bad    error // what is wrong with the configuration; all calls give it

	// mu guards all state of the network: links, streams, listeners.
	mu        sync.Mutex
	lives     map[string]int // how often a host was killed
	listeners map[string]*listener
	ports     map[string]int      // the last one picked, by host
	dials     map[way]uint64      // how often
	links     map[*end]struct{}   // the dialling ends of all links that are not gone at both ends
	cuts      map[way]*time.Timer // in name order
	refused   map[way]struct{}    // told to the logger
}

// way is an ordered pair of hosts.
type way struct{ from, to string }

// between is the same for both directions.
func between(a, b string) way { return way{min(a, b), max(a, b)} }

// New makes a network. What is wrong with cfg is told by the first Listen or Dial.
func New(cfg Config) *Net {
	cfg.Detect = cmp.Or(cfg.Detect, 2400*time.Millisecond)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 1024)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	n := &Net{
		cfg: cfg, pieces: mux.NewPieces(), lives: map[string]int{}, listeners: map[string]*listener{}, ports: map[string]int{}, dials: map[way]uint64{},
		links: map[*end]struct{}{}, cuts: map[way]*time.Timer{}, refused: map[way]struct{}{},
	}
	n.codec, n.bad = wire.NewCodec(cfg.Limits)
	if cfg.MinDelay < 0 || cfg.MaxDelay < 0 || cfg.MaxDelay > 0 && cfg.MinDelay > cfg.MaxDelay {
		n.bad = fmt.Errorf("simnet: delays from %v to %v; expected 0 ≤ MinDelay ≤ MaxDelay", cfg.MinDelay, cfg.MaxDelay)
	}
	return n
}

// Host is the network as seen by that host. All hosts made by Host are of one job. After
// [Net.Kill], Host makes the host anew; what it had before stays dead.
func (n *Net) Host(name string) transport.Network { return n.HostWithToken(name, "") }

// HostWithToken makes a host that links only with hosts of the same token.
func (n *Net) HostWithToken(name, token string) transport.Network {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &host{net: n, name: name, token: token, life: n.lives[name]}
}

// Cut stops everything between two hosts. What is under way waits; when the cut lasts for
// Config.Detect, their links are lost.
func (n *Net) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := between(a, b)
	if n.cuts[w] != nil {
		return
	}
	n.cuts[w] = time.AfterFunc(n.cfg.Detect, func() {
		for _, l := range n.severed(w) {
			l.End(l.lost("cut off", nil))
			l.other.End(l.other.lost("cut off", nil))
		}
	})
}

// severed gives the dialling ends of the links that a cut has lost: none where it was healed.
func (n *Net) severed(w way) (all []*end) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		if n.cuts[w] != nil && between(l.host, l.peer) == w {
			all = append(all, l)
		}
	}
	return all
}

// Heal undoes Cut: links that are not lost yet go on, with what waited.
func (n *Net) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := between(a, b)
	if t := n.cuts[w]; t != nil {
		t.Stop()
		delete(n.cuts, w)
	}
	for l := range n.links {
		if between(l.host, l.peer) == w {
			l.resumeLocked()
			l.other.resumeLocked()
		}
	}
}

// Kill ends a host as kill -9 would: nothing more comes from it or reaches it, and its peers' links
// are lost after Config.Detect. Its own ends fail at once with ErrClosed, so that its goroutines
// can end.
func (n *Net) Kill(name string) {
	for _, e := range n.killed(name) {
		e.End(&transport.Error{Op: "link with", Peer: e.addr, Err: transport.ErrClosed, Reason: "the host was killed"})
		survivor := e.other
		time.AfterFunc(n.cfg.Detect, func() { survivor.End(survivor.lost("nothing was heard of "+name, nil)) })
	}
}

// killed gives the ends that die with a host, from which nothing comes any more.
func (n *Net) killed(name string) (all []*end) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lives[name]++
	for _, l := range n.listeners {
		if l.host.name == name {
			l.closeLocked()
		}
	}
	for dialer := range n.links {
		for _, e := range []*end{dialer, dialer.other} {
			if e.host == name {
				e.dead = true
				all = append(all, e)
			}
		}
	}
	return all
}

// cutLocked says whether nothing passes between two hosts.
func (n *Net) cutLocked(a, b string) bool { return n.cuts[between(a, b)] != nil }

// delay draws the delay of the thing that is named by which, on its way from one host to another.
func (n *Net) delay(from, to, which string) time.Duration {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s>%s %s", from, to, which)
	r := rand.New(rand.NewPCG(n.cfg.Seed, h.Sum64()))
	if n.cfg.Delay != nil {
		return max(n.cfg.Delay(from, to, r), 0)
	}
	if n.cfg.MaxDelay <= n.cfg.MinDelay {
		return n.cfg.MinDelay
	}
	return n.cfg.MinDelay + time.Duration(r.Int64N(int64(n.cfg.MaxDelay-n.cfg.MinDelay)+1))
}

// bell wakes all who wait for a change of the network's state; its methods are called with Net.mu
// held.
type bell struct{ c chan struct{} }

// rung gives what the next ring closes.
func (b *bell) rung() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *bell) ring() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
