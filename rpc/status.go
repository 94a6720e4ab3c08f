package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// Status is what a worker says of itself and of its links, to whoever of the job asks: see
// [Observe].
type Status struct {
	Name    string       `cbor:"1,keyasint"`
	Rank    int          `cbor:"2,keyasint"`
	World   int          `cbor:"3,keyasint"`
	Peers   []PeerStatus `cbor:"4,keyasint"` // by rank, without itself
	Omitted int          `cbor:"5,keyasint"` // how many peers did not fit

	Groups        []GroupStatus `cbor:"6,keyasint"`
	GroupsOmitted int           `cbor:"7,keyasint"`
}

// PeerStatus is how a worker stands to another one.
type PeerStatus struct {
	Name    string `cbor:"1,keyasint"`
	Rank    int    `cbor:"2,keyasint"`
	Addr    string `cbor:"3,keyasint"`
	Calls   string `cbor:"4,keyasint"` // the lane of small calls; empty where there is no link
	Tensors string `cbor:"5,keyasint"` // the lane of large tensors
	Why     string `cbor:"6,keyasint"` // why those are not the best there are; empty where they are
	Gone    string `cbor:"7,keyasint"` // why the peer cannot be called any more; empty while it can
}

const (
	maxStatus      = 256 << 10 // bytes
	maxStatusPeers = 2048
	maxStatusText  = 300 // bytes of one text
	maxObservers   = 8   // at a time, at one worker
	maxStatusAsk   = 64  // bytes of a request
	maxLaneName    = 16
)

// statusOf is a worker's, as far as it fits.
func statusOf(name string, rank, world int, all []membership.Standing) Status {
	st := Status{Name: name, Rank: rank, World: world}
	size := 0
	for _, p := range all {
		if p.Rank == rank {
			continue
		}
		ps := PeerStatus{Name: p.Name, Rank: p.Rank, Addr: bounded(p.Addr, maxStatusText)}
		if p.Gone != nil {
			ps.Gone = bounded(p.Gone.Error(), maxStatusText)
		} else {
			l := lanesOf(p.Name, p.Link)
			ps.Calls, ps.Tensors, ps.Why = l.Calls, l.Tensors, l.whyNotBetter()
		}
		size += 64 + len(ps.Name) + len(ps.Addr) + len(ps.Why) + len(ps.Gone)
		if size > maxStatus || len(st.Peers) == maxStatusPeers {
			st.Omitted++
			continue
		}
		st.Peers = append(st.Peers, ps)
	}
	return st
}

// withGroups adds groups, as far as they fit.
func (st *Status) withGroups(all []GroupStatus) error {
	size := 0
	for _, g := range all {
		g.fit()
		b, err := wire.Encode(g)
		if err != nil {
			return err
		}
		if size += len(b); size > maxStatusGroups {
			st.GroupsOmitted++
			continue
		}
		st.Groups = append(st.Groups, g)
	}
	return nil
}

// whyNotBetter gives the reasons of the lanes that would be preferred to those in use.
func (l PeerLanes) whyNotBetter() string {
	var reasons []string
	var calls, tensors bool // their lanes are passed
	for _, s := range l.Lanes {
		calls, tensors = calls || s.Name == l.Calls, tensors || s.Name == l.Tensors
		if s.Why != "" && (s.Name == transport.LaneCUDA || !tensors || !calls && !transport.TensorsAlone(s.Name)) {
			reasons = append(reasons, s.Name+": "+s.Why)
		}
	}
	return bounded(strings.Join(reasons, "; "), maxStatusText)
}

// statusMode is for statuses, which list no more peers than fit, in printable text.
var statusMode = sync.OnceValue(func() cbor.DecMode {
	return wire.Decoding(cbor.DecOptions{MaxNestedLevels: 8, MaxArrayElements: maxStatusPeers, MaxMapPairs: 64})
})

// decodeStatus reads a status. What it says is printable, and its names are workers' names.
func decodeStatus(b []byte) (*Status, error) {
	if len(b) > maxStatus+maxStatus/2 {
		return nil, fmt.Errorf("%w: a status of %d bytes", ErrProtocol, len(b))
	}
	st := &Status{}
	if err := statusMode().Unmarshal(b, st); err != nil {
		return nil, fmt.Errorf("%w: status: %w", ErrProtocol, err)
	}
	if !membership.NameRule.MatchString(st.Name) || !isRank(st.Rank) || st.World < 0 || st.World > 1<<16 || st.Omitted < 0 || st.GroupsOmitted < 0 {
		return nil, fmt.Errorf("%w: a status of %q, rank %d of %d", ErrProtocol, bounded(st.Name, maxStatusText), st.Rank, st.World)
	}
	for i := range st.Peers {
		p := &st.Peers[i]
		if !membership.NameRule.MatchString(p.Name) || !isRank(p.Rank) || len(p.Calls) > maxLaneName || len(p.Tensors) > maxLaneName {
			return nil, fmt.Errorf("%w: the status of a peer %q, rank %d", ErrProtocol, bounded(p.Name, maxStatusText), p.Rank)
		}
		for _, text := range []*string{&p.Addr, &p.Calls, &p.Tensors, &p.Why, &p.Gone} {
			*text = printable.Text(*text, maxStatusText)
		}
	}
	for i := range st.Groups {
		if err := st.Groups[i].plausible(); err != nil {
			return nil, err
		}
	}
	return st, nil
}

func isRank(n int) bool { return n >= 0 && n < 1<<16 }

// observed answers a dialler that is of the job, but no member: it asked for the status first, and
// may ask nothing else. m is its first request, on s. The link lasts a while at most, and counts
// nowhere.
func (sv *serving) observed(link transport.Link, s transport.Stream, m *transport.Message) error {
	w := sv.w
	if sv.observers.Add(1) > maxObservers {
		sv.observers.Add(-1)
		return errors.Join(fmt.Errorf("%w: %s has %d observers already; ask again in some seconds", ErrBusy, w.name, maxObservers),
			sv.reply(s, &wire.ReplyHeader{}, nil, fmt.Errorf("%w: %d observers are here already; ask again in some seconds", ErrBusy, maxObservers)))
	}
	defer sv.observers.Add(-1)
	c, cancel := context.WithTimeout(w.life, membership.HelloTimeout)
	defer cancel()
	for {
		if err := sv.answerObserver(c, s, m); err != nil {
			return err
		}
		var err error
		if s, err = link.Accept(c); err != nil { // it has gone, or its time is over
			return link.Close("observed")
		}
		if m, err = s.Recv(c, wire.NoTensors); err != nil {
			s.Reset(err)
			return link.Close("observed")
		}
	}
}

// answerObserver ends the stream too.
func (sv *serving) answerObserver(c context.Context, s transport.Stream, m *transport.Message) error {
	w := sv.w
	defer s.Reset(nil)
	defer m.Release()
	var h wire.ReplyHeader
	var err error
	switch {
	case m.Kind != wire.KindStatus:
		err = fmt.Errorf("%w: an observer may ask for the status and nothing else; kind %d needs a member of the job", ErrRefused, m.Kind)
	case len(m.Header) > maxStatusAsk:
		err = fmt.Errorf("%w: a request for the status of %d bytes", ErrProtocol, len(m.Header))
	default:
		st := statusOf(w.name, w.rank, w.world, w.members.All())
		if err = st.withGroups(w.shown.list()); err == nil {
			h.Value, err = wire.Encode(st)
		}
	}
	if serr := sv.reply(s, &h, nil, err); serr != nil || err != nil {
		return errors.Join(err, serr)
	}
	if _, err = s.Recv(c, wire.NoTensors); err == nil { // the observer's end, so that nothing is reset under it
		return fmt.Errorf("%w: an observer said more than one thing", ErrProtocol)
	}
	return nil
}

// GroupStatus is what a worker says of a group of workers that it is in (package collective).
type GroupStatus struct {
	Name       string         `cbor:"1,keyasint"`
	Generation uint64         `cbor:"2,keyasint"`
	Rank       int            `cbor:"3,keyasint"`
	Size       int            `cbor:"4,keyasint"`
	Ended      string         `cbor:"5,keyasint"` // why; empty while it lives
	Pending    []GroupPending `cbor:"6,keyasint"` // what it waits in, the oldest first
	Omitted    int            `cbor:"7,keyasint"` // how many of those did not fit
	Totals     []GroupTotal   `cbor:"8,keyasint"` // by operation
}

// GroupPending is an operation of a group that has not ended.
type GroupPending struct {
	Key     string         `cbor:"1,keyasint"`
	Call    string         `cbor:"2,keyasint"`
	Line    string         `cbor:"3,keyasint"` // of the user's code
	Seconds float64        `cbor:"4,keyasint"` // for so long
	Waits   []GroupAwaited `cbor:"5,keyasint"`
}

// GroupAwaited is a worker that an operation waits for.
type GroupAwaited struct {
	Worker string `cbor:"1,keyasint"`
	Line   string `cbor:"2,keyasint"` // where it has called that; empty where it has not, as far as is known
}

// GroupTotal is what became of all operations of one kind.
type GroupTotal struct {
	Operation string  `cbor:"1,keyasint"`
	Done      uint64  `cbor:"2,keyasint"`
	Failed    uint64  `cbor:"3,keyasint"`
	Bytes     uint64  `cbor:"4,keyasint"` // of those that are done
	Seconds   float64 `cbor:"5,keyasint"`
}

const (
	maxStatusGroups  = 96 << 10 // bytes of all of them
	maxStatusPending = 16       // of a group
	maxStatusWaits   = 16       // of an operation
	maxStatusTotals  = 32
)

// groupsShown are the groups that a worker shows.
type groupsShown struct {
	mu  sync.Mutex
	all []*func() GroupStatus
}

// ShowGroup has a worker's status and metrics show a group, until hide is called. status is called
// by several goroutines, and does not wait. It is for packages above this one.
func ShowGroup(w *Worker, status func() GroupStatus) (hide func()) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	at := &status
	w.shown.all = append(w.shown.all, at)
	return func() {
		w.shown.mu.Lock()
		defer w.shown.mu.Unlock()
		w.shown.all = slices.DeleteFunc(w.shown.all, func(f *func() GroupStatus) bool { return f == at })
	}
}

// list asks all of them. Of one name the second is called name#2, and so on.
func (s *groupsShown) list() []GroupStatus {
	s.mu.Lock()
	fns := slices.Clone(s.all)
	s.mu.Unlock()
	var all []GroupStatus
	named := map[string]int{}
	for _, fn := range fns {
		st := (*fn)()
		st.Name = bounded(st.Name, maxStatusText)
		if named[st.Name]++; named[st.Name] > 1 {
			st.Name = fmt.Sprintf("%s#%d", st.Name, named[st.Name])
		}
		all = append(all, st)
	}
	return all
}

// fit shortens what a group says to what a status has room for.
func (g *GroupStatus) fit() {
	if more := len(g.Pending) - maxStatusPending; more > 0 {
		g.Pending, g.Omitted = g.Pending[:maxStatusPending], g.Omitted+more
	}
	g.Totals = g.Totals[:min(len(g.Totals), maxStatusTotals)]
	for i := range g.Pending {
		g.Pending[i].Waits = g.Pending[i].Waits[:min(len(g.Pending[i].Waits), maxStatusWaits)]
	}
	g.texts(bounded)
}

// texts goes over all texts of unknown length.
func (g *GroupStatus) texts(fn func(text string, most int) string) {
	g.Name, g.Ended = fn(g.Name, maxStatusText), fn(g.Ended, maxStatusText)
	for i := range g.Pending {
		p := &g.Pending[i]
		p.Key, p.Call, p.Line = fn(p.Key, maxStatusText), fn(p.Call, maxStatusText), fn(p.Line, maxStatusText)
		for k := range p.Waits {
			p.Waits[k].Line = fn(p.Waits[k].Line, maxStatusText)
		}
	}
	for i := range g.Totals {
		g.Totals[i].Operation = fn(g.Totals[i].Operation, maxStatusText)
	}
}

// plausible reads what another worker says, which may be anything.
func (g *GroupStatus) plausible() error {
	bad := !isRank(g.Rank) || !isRank(g.Size) || g.Omitted < 0 || len(g.Pending) > maxStatusPending || len(g.Totals) > maxStatusTotals
	for _, p := range g.Pending {
		bad = bad || len(p.Waits) > maxStatusWaits || !(p.Seconds >= 0)
		for _, a := range p.Waits {
			bad = bad || !membership.NameRule.MatchString(a.Worker)
		}
	}
	if bad {
		return fmt.Errorf("%w: the status of a group %q, rank %d of %d", ErrProtocol, bounded(g.Name, maxStatusText), g.Rank, g.Size)
	}
	g.texts(printable.Text)
	return nil
}
