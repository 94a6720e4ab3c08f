package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/refs"
	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/transport"
)

// meshUpTo is how large a world may be in which all link with all at once.
const meshUpTo = 8

// laterBy is how long a worker waits for one that is expected to dial: on a machine that is busy
// with the joining of many, long.
const laterBy = 3 * time.Second

// What can go wrong with peers.
var (
	errUnknownWorker = errors.New("no such worker")
	errPeerLeft      = errors.New("peer has left")
	errLeft          = errors.New("this worker has left")
	errRankTaken     = errors.New("rank is taken")
	errNameTaken     = errors.New("worker name is taken")
	errWorldSize     = errors.New("world sizes differ")
	errRefused       = errors.New("refused by the peer")
	errBusy          = errors.New("too busy")
)

// members are the workers of the job, as one of them knows them, and its links with them.
type members struct {
	me       roster.Member // what the others are told
	log      *slog.Logger
	net      transport.Network
	listener transport.Listener
	registry *registry
	shell    shell
	ready    chan struct{}   // closed when this worker knows the others, and hears who links with it
	life     context.Context // ends with the worker
	work     *sync.WaitGroup // goroutines of the worker

	mu       sync.Mutex
	roster   *roster.Roster
	peers    map[int]*peer // by rank, the latest life there; this worker is one of them
	byName   map[string]*peer
	watchers map[*watcher]struct{}
	patience time.Time     // until when a dial that fails is no loss
	changed  chan struct{} // closed when a peer's state changes; made by who waits
	closed   bool
	graves   []roster.Member // the lost that were heard of since, whose claims are to be marked
}

// shell is what the worker does for its members. met is called with members.mu held.
type shell interface {
	met(p *peer)                       // there is a worker
	ended(p *peer)                     // a life is over
	serve(p *peer, s transport.Stream) // a peer asks for something
	reply(s transport.Stream, value []byte, err error) error
	observed(link transport.Link, s transport.Stream, m *transport.Message) error
	askOn(c context.Context, link transport.Link, kind uint8, header any) (value []byte, err error)
	tell(c context.Context, p *peer, news wire.NewsHeader) (refused bool, err error)
}

func newMembers(me roster.Member, log *slog.Logger, net transport.Network, g *registry, life context.Context, work *sync.WaitGroup, sh shell) *members {
	return &members{
		me: me, log: log, net: net, registry: g, shell: sh, life: life, work: work, ready: make(chan struct{}),
		peers: map[int]*peer{}, byName: map[string]*peer{}, watchers: map[*watcher]struct{}{},
	}
}

// become gives this worker its place, before anybody else can see it.
func (ms *members) become(me roster.Member) {
	ms.me = me
	ms.roster = roster.New(me, meshUpTo)
	self := ms.newPeer(me)
	ms.peers[me.Rank], ms.byName[me.Name] = self, self
}

// run runs work that the worker waits for when it closes; false where it has closed.
func (ms *members) run(work func()) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed {
		return false
	}
	ms.work.Go(work)
	return true
}

// standing is how this worker stands to a peer.
type standing struct {
	*peer
	link    transport.Link // nil where there is none
	gone    error
	leaving bool
}

// all lists the peers by rank, this worker included.
func (ms *members) all() (list []standing) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, p := range ms.sortedLocked() {
		list = append(list, standing{p, p.link, p.gone, p.leaving})
	}
	return list
}

// awaitLeaving waits until all others have come to leave, or are lost; else it names who has not.
func (ms *members) awaitLeaving(c context.Context) (staying []string, err error) {
	err = ms.await(c, func() bool {
		staying = nil
		for _, p := range ms.sortedLocked() {
			if p.rank != ms.me.Rank && !p.leaving && p.gone == nil && ms.me.World > 0 {
				staying = append(staying, p.name)
			}
		}
		return len(staying) == 0
	})
	return staying, err
}

// awaitTold waits until whoever hears news through this worker has it.
func (ms *members) awaitTold(c context.Context) error {
	return ms.await(c, func() bool {
		for _, p := range ms.peers {
			if p.telling && p.gone == nil {
				return false
			}
		}
		return true
	})
}

// close begins nothing more.
func (ms *members) close() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.closed = true
	ms.changedLocked()
}

// closeLinks ends the links, and takes no more.
func (ms *members) closeLinks() error {
	ms.mu.Lock()
	peers := ms.sortedLocked()
	ms.mu.Unlock()
	var errs []error
	for _, p := range peers {
		for _, l := range p.links() {
			errs = append(errs, l.Close("left"))
		}
	}
	if ms.listener != nil {
		errs = append(errs, ms.listener.Close())
	}
	return errors.Join(errs...)
}

// event tells the roster what happened, and does what it says.
func (ms *members) event(happened func(r *roster.Roster)) {
	ms.mu.Lock()
	happened(ms.roster)
	over := ms.applyLocked()
	ms.mu.Unlock()
	ms.mourn(over)
}

// applyLocked does what the roster asks for. The caller holds ms.mu, and has mourn called with the
// result when it does not any more.
func (ms *members) applyLocked() (over []*peer) {
	for _, a := range ms.roster.Actions() {
		switch a.Kind {
		case roster.Changed:
			p := ms.turnLocked(a)
			if a.State >= roster.Left {
				over = append(over, p)
			}
		case roster.Dial:
			ms.dialLocked(ms.peers[a.Member.Rank], a.Later)
		case roster.Tell:
			ms.tellLocked(ms.peers[a.To], a.News)
		case roster.Bury:
			if ms.closed { // serveLink does it
				ms.graves = append(ms.graves, a.Member)
			} else {
				ms.work.Go(func() { ms.registry.bury(a.Member, ms.me.Name) })
			}
		}
	}
	return over
}

// turnLocked notes what has become of a member.
func (ms *members) turnLocked(a roster.Action) *peer {
	p := ms.peers[a.Member.Rank]
	switch a.State {
	case roster.Known:
		p = ms.newPeer(a.Member)
		ms.peers[p.rank], ms.byName[p.name] = p, p
		ms.shell.met(p)
		if n, ok := ms.net.(transport.Acquainted); ok {
			n.Acquaint(p.addr)
		}
	case roster.Leaving:
		p.leaving = true
	case roster.Left:
		p.gone = fmt.Errorf("%w: %s: %w", errPeerLeft, p.name, a.Cause)
	case roster.Lost:
		p.gone = fmt.Errorf("%w: %s: %w", ctx.ErrPeerLost, p.name, a.Cause)
		if !ms.closed && !p.leaving {
			ms.log.Warn("lost a worker", "worker", ms.me.Name, "peer", p.name, "err", a.Cause)
		}
	}
	ms.changedLocked()
	ms.notifyLocked(p, a.State, a.Cause)
	return p
}

func (ms *members) newPeer(m roster.Member) *peer {
	p := &peer{of: ms, name: m.Name, rank: m.Rank, node: refs.Node{Rank: m.Rank, Epoch: m.Incarnation}, addr: m.Addr}
	p.there, p.back = ms.me.Maps[m.Name], m.Maps[ms.me.Name].Reverse()
	return p
}

// mourn ends what depends on lives that are over.
func (ms *members) mourn(over []*peer) {
	for _, p := range over {
		for _, l := range p.links() {
			_ = l.Close("the life of this link is over") // mostly it is gone already
		}
		ms.shell.ended(p)
	}
}

// dialLocked links with a peer, now or when it has had the time to do so itself.
func (ms *members) dialLocked(p *peer, later bool) {
	switch {
	case ms.closed:
	case !later:
		p.attemptLocked()
	default:
		ms.work.Go(func() {
			c, cancel := context.WithTimeout(ms.life, laterBy)
			defer cancel()
			_ = ms.await(c, func() bool { return p.link != nil || p.gone != nil }) // or the time is up
			ms.mu.Lock()
			defer ms.mu.Unlock()
			if p.link == nil && p.gone == nil && !ms.closed {
				p.attemptLocked()
			}
		})
	}
}

// dialInTurn links with the older of some peers, one after the other: a host on which many workers
// join has so much to do for each link that all at once would take longer than any of them may. The
// younger are expected to dial.
func (ms *members) dialInTurn(peers []*peer) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var mine []*peer
	for _, p := range peers {
		if p.node.Epoch < ms.me.Incarnation {
			mine = append(mine, p)
		} else {
			ms.dialLocked(p, true)
		}
	}
	if ms.closed {
		return
	}
	ms.work.Go(func() {
		for _, p := range mine {
			_, _ = p.connection(ms.life) // where it fails, the roster knows
		}
	})
}

// maxNews is how much news goes into one message.
const maxNews = 128

// tellLocked queues news for a peer. What comes while a message is under way goes into the next.
func (ms *members) tellLocked(p *peer, news ...roster.News) {
	if ms.closed || p.gone != nil {
		return
	}
	p.outbox = append(p.outbox, news...)
	if !p.telling {
		p.telling = true
		ms.work.Go(func() { ms.deliver(p) })
	}
}

// deliver sends what is queued for a peer, in order.
func (ms *members) deliver(p *peer) {
	for {
		ms.mu.Lock()
		if len(p.outbox) == 0 || p.gone != nil || ms.closed {
			p.outbox, p.telling = nil, false
			ms.changedLocked()
			ms.mu.Unlock()
			return
		}
		batch := p.outbox[:min(len(p.outbox), maxNews)]
		p.outbox = p.outbox[len(batch):]
		ms.mu.Unlock()
		c, cancel := context.WithTimeout(ms.life, helloTimeout)
		refused, err := ms.shell.tell(c, p, wire.NewsHeader{News: batch})
		cancel()
		if refused && errors.Is(err, errLeft) {
			ms.log.Debug("a worker that leaves takes no news", "worker", ms.me.Name, "peer", p.name, "err", err)
		} else if refused {
			ms.log.Warn("a worker does not take news", "worker", ms.me.Name, "peer", p.name, "err", err)
		} else if err != nil && p.lost() == nil { // it may be slow; a link that is gone makes it gone
			ms.mu.Lock()
			p.outbox = append(slices.Clone(batch), p.outbox...)
			ms.mu.Unlock()
			_ = pause(ms.life, pollEvery) // or the worker ends
		}
	}
}

// serveNews takes news from a peer.
func (ms *members) serveNews(p *peer, m *transport.Message) error {
	var h wire.NewsHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return err
	}
	for i := range h.News {
		about := &h.News[i].Member
		if err := checkMember(about); err != nil {
			return err
		}
		if about.World != ms.me.World {
			return fmt.Errorf("%w: news of %s, in a world of %d", errWorldSize, about.Name, about.World)
		}
	}
	c, cancel := context.WithTimeout(ms.life, lookupTimeout)
	defer cancel()
	for _, n := range h.News {
		if err := ms.proven(c, &n.Member); err != nil { // it may be over by now, which is no fault of who tells
			ms.log.Warn("does not believe news", "worker", ms.me.Name, "from", p.name, "err", err)
			continue
		}
		ms.event(func(r *roster.Roster) { r.Gossip(p.rank, n) })
	}
	return nil
}

// peerAt is the present life at a rank, nil where there is none.
func (ms *members) peerAt(rank int) *peer {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.peers[rank]
}

// lookup finds a peer by name. In a dynamic world one that is not known yet may be in the store.
func (ms *members) lookup(c context.Context, name string) (*peer, error) {
	p, err := ms.find(name)
	if err == nil || ms.me.World != 0 {
		return p, err
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	rank, ok := rankOf(name)
	if !ok {
		have, perr := ms.registry.peek(c, nameKey(name))
		if perr != nil || have == "" {
			return nil, err
		}
		if rank, _, _, perr = parseNameClaim(strings.TrimPrefix(have, lostMark)); perr != nil {
			return nil, err
		}
	}
	if ms.seek(c, rank) == nil {
		return nil, err
	}
	return ms.find(name)
}

// lookupTimeout bounds asking the store for a worker: the store may be gone.
const lookupTimeout = 2 * time.Second

// seek is the peer at a rank; in a dynamic world one that is not known yet may be in the store. nil
// where there is none.
func (ms *members) seek(c context.Context, rank int) *peer {
	if p := ms.peerAt(rank); p != nil || ms.me.World != 0 || rank < 0 {
		return p
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	if r, err := ms.registry.recordOf(c, rank); err == nil && r.Member != nil && r.World == 0 {
		m := *r.Member
		ms.event(func(r *roster.Roster) { _ = r.Hear(m) }) // where it is of a life that is over, there is nobody
	}
	return ms.peerAt(rank)
}

// find is the peer of that name, or of that Rank.
func (ms *members) find(name string) (*peer, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if p := ms.byName[name]; p != nil {
		return p, nil
	}
	if n, ok := rankOf(name); ok {
		if p := ms.peers[n]; p != nil {
			return p, nil
		}
		if ms.me.World == 0 {
			return nil, fmt.Errorf("%w: rank %d", errUnknownWorker, n)
		}
		return nil, fmt.Errorf("%w: rank %d in a world of %d", errUnknownWorker, n, ms.me.World)
	}
	var names []string
	for _, p := range ms.sortedLocked() {
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("%w: %q; there are %v", errUnknownWorker, name, names)
}

func (ms *members) nameOf(rank int) string {
	if p := ms.peerAt(rank); p != nil {
		return p.name
	}
	return fmt.Sprintf("worker %d", rank)
}

// rankOf reads what Rank gives.
func rankOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, rankMark)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// changedLocked wakes whoever waits for a state. The caller holds ms.mu.
func (ms *members) changedLocked() {
	if ms.changed != nil {
		close(ms.changed)
		ms.changed = nil
	}
}

// await waits until ok says so; ok is called with ms.mu held.
func (ms *members) await(c context.Context, ok func() bool) error {
	for {
		ms.mu.Lock()
		if ms.changed == nil {
			ms.changed = make(chan struct{})
		}
		done, changed := ok(), ms.changed
		ms.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-c.Done():
			return ctx.AsTimeout(context.Cause(c))
		}
	}
}
