package rpc

import (
	"context"
	"errors"
	"fmt"
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

// whyNotBetter gives the reasons of the lanes that would be preferred to those in use.
func (l PeerLanes) whyNotBetter() string {
	var reasons []string
	var calls, tensors bool // their lanes are passed
	for _, s := range l.Lanes {
		calls, tensors = calls || s.Name == l.Calls, tensors || s.Name == l.Tensors
		if s.Why != "" && (s.Name == transport.LaneCUDA || !tensors || !calls && s.Name != transport.LaneBulk) { // which moves tensors alone
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
	if !membership.NameRule.MatchString(st.Name) || !isRank(st.Rank) || st.World < 0 || st.World > 1<<16 || st.Omitted < 0 {
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
		h.Value, err = wire.Encode(statusOf(w.name, w.rank, w.world, w.members.All()))
	}
	if serr := sv.reply(s, &h, nil, err); serr != nil || err != nil {
		return errors.Join(err, serr)
	}
	if _, err = s.Recv(c, wire.NoTensors); err == nil { // the observer's end, so that nothing is reset under it
		return fmt.Errorf("%w: an observer said more than one thing", ErrProtocol)
	}
	return nil
}
