package membership

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
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// meshUpTo is how large a world may be in which all link with all at once.
const meshUpTo = 8

// laterBy is how long a worker waits for one that is expected to dial: on a machine that is busy
// with the joining of many, long.
const laterBy = 3 * time.Second

// What can go wrong with peers.
var (
	ErrUnknownWorker = errors.New("no such worker")
	ErrPeerLeft      = errors.New("peer has left")
	ErrLeft          = errors.New("this worker has left")
	ErrRankTaken     = errors.New("rank is taken")
	ErrNameTaken     = errors.New("worker name is taken")
	ErrWorldSize     = errors.New("world sizes differ")
	ErrRefused       = errors.New("refused by the peer")
	ErrBusy          = errors.New("too busy")
)

// Members are the workers of the job, as one of them knows them, and its links with them.
type Members struct {
	Me       roster.Member // what the others are told
	log      *slog.Logger
	net      transport.Network
	Listener transport.Listener
	Registry *Registry
	shell    Shell
	ready    chan struct{}   // closed when this worker knows the others, and hears who links with it
	life     context.Context // ends with the worker
	work     *sync.WaitGroup // goroutines of the worker

	mu       sync.Mutex
	roster   *roster.Roster
	peers    map[int]*Peer // by rank, the latest life there; this worker is one of them
	byName   map[string]*Peer
	watchers map[*watcher]struct{}
	patience time.Time     // until when a dial that fails is no loss
	changed  chan struct{} // closed when a peer's state changes; made by who waits
	closed   bool
	graves   []roster.Member // the lost that were heard of since, whose claims are to be marked
}

// Shell is what the worker does for its members. Met is called with Members.mu held.
type Shell interface {
	Met(p *Peer)                                               // there is a worker
	Ended(p *Peer)                                             // a life is over
	Serve(p *Peer, s transport.Stream, kind uint8, whole bool) // a peer asks for something; as [transport.Link]
	Reply(s transport.Stream, value []byte, err error) error
	Observed(link transport.Link, s transport.Stream, m *transport.Message) error
	AskOn(c context.Context, link transport.Link, kind uint8, header any) (value []byte, err error)
	Tell(c context.Context, p *Peer, news wire.NewsHeader) (refused bool, err error)
}

// New makes the members of a worker that knows only itself; Become and a Join follow.
func New(life context.Context, me roster.Member, log *slog.Logger, net transport.Network, g *Registry, work *sync.WaitGroup, sh Shell) *Members {
	return &Members{
		Me: me, log: log, net: net, Registry: g, shell: sh, life: life, work: work, ready: make(chan struct{}),
		peers: map[int]*Peer{}, byName: map[string]*Peer{}, watchers: map[*watcher]struct{}{},
	}
}

// Become gives this worker its place, before anybody else can see it.
func (ms *Members) Become(me roster.Member) {
	ms.Me = me
	ms.roster = roster.New(me, meshUpTo)
	self := ms.newPeer(me)
	ms.peers[me.Rank], ms.byName[me.Name] = self, self
}

// Known is what this worker could tell of the others.
func (ms *Members) Known() []roster.News {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.roster.All()
}

// Run runs work that the worker waits for when it closes; false where it has closed.
func (ms *Members) Run(work func()) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed {
		return false
	}
	ms.work.Go(work)
	return true
}

// Standing is how this worker stands to a peer.
type Standing struct {
	*Peer
	Link    transport.Link // nil where there is none
	Gone    error
	leaving bool
}

// All lists the peers by rank, this worker included.
func (ms *Members) All() (list []Standing) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, p := range ms.sortedLocked() {
		list = append(list, Standing{p, p.link, p.gone, p.leaving})
	}
	return list
}

// AwaitLeaving waits until all others have come to leave, or are lost; else it names who has not.
func (ms *Members) AwaitLeaving(c context.Context) (staying []string, err error) {
	err = ms.await(c, func() bool {
		staying = nil
		for _, p := range ms.sortedLocked() {
			if p.Rank != ms.Me.Rank && !p.leaving && p.gone == nil && ms.Me.World > 0 {
				staying = append(staying, p.Name)
			}
		}
		return len(staying) == 0
	})
	return staying, err
}

// AwaitTold waits until whoever hears news through this worker has it.
func (ms *Members) AwaitTold(c context.Context) error {
	return ms.await(c, func() bool {
		for _, p := range ms.peers {
			if p.telling && p.gone == nil {
				return false
			}
		}
		return true
	})
}

// Close begins nothing more.
func (ms *Members) Close() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.closed = true
	ms.changedLocked()
}

// CloseLinks ends the links, and takes no more.
func (ms *Members) CloseLinks() error {
	ms.mu.Lock()
	peers := ms.sortedLocked()
	ms.mu.Unlock()
	var errs []error
	for _, p := range peers {
		for _, l := range p.links() {
			errs = append(errs, l.Close("left"))
		}
	}
	if ms.Listener != nil {
		errs = append(errs, ms.Listener.Close())
	}
	return errors.Join(errs...)
}

// Event tells the roster what happened, and does what it says.
func (ms *Members) Event(happened func(r *roster.Roster)) {
	ms.mu.Lock()
	happened(ms.roster)
	over := ms.applyLocked()
	ms.mu.Unlock()
	ms.mourn(over)
}

// applyLocked does what the roster asks for. The caller holds ms.mu, and has mourn called with the
// result when it does not any more.
func (ms *Members) applyLocked() (over []*Peer) {
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
				ms.work.Go(func() { ms.Registry.bury(a.Member, ms.Me.Name) })
			}
		}
	}
	return over
}

// turnLocked notes what has become of a member.
func (ms *Members) turnLocked(a roster.Action) *Peer {
	p := ms.peers[a.Member.Rank]
	switch a.State {
	case roster.Known:
		p = ms.newPeer(a.Member)
		ms.peers[p.Rank], ms.byName[p.Name] = p, p
		ms.shell.Met(p)
		if n, ok := ms.net.(transport.Acquainted); ok {
			n.Acquaint(p.Addr)
		}
	case roster.Leaving:
		p.leaving = true
	case roster.Left:
		p.gone = fmt.Errorf("%w: %s: %w", ErrPeerLeft, p.Name, a.Cause)
	case roster.Lost:
		p.gone = fmt.Errorf("%w: %s: %w", ctx.ErrPeerLost, p.Name, a.Cause)
		if !ms.closed && !p.leaving {
			ms.log.Warn("lost a worker", "worker", ms.Me.Name, "peer", p.Name, "err", a.Cause)
		}
	}
	ms.changedLocked()
	ms.notifyLocked(p, a.State, a.Cause)
	return p
}

func (ms *Members) newPeer(m roster.Member) *Peer {
	p := &Peer{of: ms, Name: m.Name, Rank: m.Rank, Node: refs.Node{Rank: m.Rank, Epoch: m.Incarnation}, Addr: m.Addr}
	p.There, p.Back = ms.Me.Maps[m.Name], m.Maps[ms.Me.Name].Reverse()
	return p
}

// mourn ends what depends on lives that are over.
func (ms *Members) mourn(over []*Peer) {
	for _, p := range over {
		for _, l := range p.links() {
			_ = l.Close("the life of this link is over") // mostly it is gone already
		}
		ms.shell.Ended(p)
	}
}

// dialLocked links with a peer, now or when it has had the time to do so itself.
func (ms *Members) dialLocked(p *Peer, later bool) {
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
func (ms *Members) dialInTurn(peers []*Peer) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var mine []*Peer
	for _, p := range peers {
		if p.Node.Epoch < ms.Me.Incarnation {
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
			_, _ = p.Connection(ms.life) // where it fails, the roster knows
		}
	})
}

// maxNews is how much news goes into one message.
const maxNews = 128

// tellLocked queues news for a peer. What comes while a message is under way goes into the next.
func (ms *Members) tellLocked(p *Peer, news ...roster.News) {
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
func (ms *Members) deliver(p *Peer) {
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
		c, cancel := context.WithTimeout(ms.life, HelloTimeout)
		refused, err := ms.shell.Tell(c, p, wire.NewsHeader{News: batch})
		cancel()
		if refused && errors.Is(err, ErrLeft) {
			ms.log.Debug("a worker that leaves takes no news", "worker", ms.Me.Name, "peer", p.Name, "err", err)
		} else if refused {
			ms.log.Warn("a worker does not take news", "worker", ms.Me.Name, "peer", p.Name, "err", err)
		} else if err != nil && p.Lost() == nil { // it may be slow; a link that is gone makes it gone
			ms.mu.Lock()
			p.outbox = append(slices.Clone(batch), p.outbox...)
			ms.mu.Unlock()
			_ = pause(ms.life, pollEvery) // or the worker ends
		}
	}
}

// ServeNews takes news from a peer.
func (ms *Members) ServeNews(p *Peer, m *transport.Message) error {
	var h wire.NewsHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return err
	}
	for i := range h.News {
		about := &h.News[i].Member
		if err := checkMember(about); err != nil {
			return err
		}
		if about.World != ms.Me.World {
			return fmt.Errorf("%w: news of %s, in a world of %d", ErrWorldSize, about.Name, about.World)
		}
	}
	c, cancel := context.WithTimeout(ms.life, lookupTimeout)
	defer cancel()
	for _, n := range h.News {
		if err := ms.Proven(c, &n.Member); err != nil { // it may be over by now, which is no fault of who tells
			ms.log.Warn("does not believe news", "worker", ms.Me.Name, "from", p.Name, "err", err)
			continue
		}
		ms.Event(func(r *roster.Roster) { r.Gossip(p.Rank, n) })
	}
	return nil
}

// PeerAt is the present life at a rank, nil where there is none.
func (ms *Members) PeerAt(rank int) *Peer {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.peers[rank]
}

// Lookup finds a peer by name. In a dynamic world one that is not known yet may be in the store.
func (ms *Members) Lookup(c context.Context, name string) (*Peer, error) {
	p, err := ms.find(name)
	if err == nil || ms.Me.World != 0 {
		return p, err
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	rank, ok := rankOf(name)
	if !ok {
		have, perr := ms.Registry.peek(c, nameKey(name))
		if perr != nil || have == "" {
			return nil, err
		}
		if rank, _, _, perr = parseNameClaim(strings.TrimPrefix(have, LostMark)); perr != nil {
			return nil, err
		}
	}
	if ms.Seek(c, rank) == nil {
		return nil, err
	}
	return ms.find(name)
}

// lookupTimeout bounds asking the store for a worker: the store may be gone.
const lookupTimeout = 2 * time.Second

// Seek is the peer at a rank; in a dynamic world one that is not known yet may be in the store. nil
// where there is none.
func (ms *Members) Seek(c context.Context, rank int) *Peer {
	if p := ms.PeerAt(rank); p != nil || ms.Me.World != 0 || rank < 0 {
		return p
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	if r, err := ms.Registry.recordOf(c, rank); err == nil && r.Member != nil && r.World == 0 {
		m := *r.Member
		ms.Event(func(r *roster.Roster) { _ = r.Hear(m) }) // where it is of a life that is over, there is nobody
	}
	return ms.PeerAt(rank)
}

// find is the peer of that name, or of that Rank.
func (ms *Members) find(name string) (*Peer, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if p := ms.byName[name]; p != nil {
		return p, nil
	}
	if n, ok := rankOf(name); ok {
		if p := ms.peers[n]; p != nil {
			return p, nil
		}
		if ms.Me.World == 0 {
			return nil, fmt.Errorf("%w: rank %d", ErrUnknownWorker, n)
		}
		return nil, fmt.Errorf("%w: rank %d in a world of %d", ErrUnknownWorker, n, ms.Me.World)
	}
	var names []string
	for _, p := range ms.sortedLocked() {
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("%w: %q; there are %v", ErrUnknownWorker, name, names)
}

// NameOf names the worker of a rank, also where there is none.
func (ms *Members) NameOf(rank int) string {
	if p := ms.PeerAt(rank); p != nil {
		return p.Name
	}
	return fmt.Sprintf("worker %d", rank)
}

// rankMark begins a name that stands for a rank; no other name may.
const rankMark = "#"

// NameOfRank stands for whoever has a rank.
func NameOfRank(n int) string { return rankMark + strconv.Itoa(n) }

// rankOf reads what NameOfRank gives.
func rankOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, rankMark)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// changedLocked wakes whoever waits for a state. The caller holds ms.mu.
func (ms *Members) changedLocked() {
	if ms.changed != nil {
		close(ms.changed)
		ms.changed = nil
	}
}

// await waits until ok says so; ok is called with ms.mu held.
func (ms *Members) await(c context.Context, ok func() bool) error {
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
