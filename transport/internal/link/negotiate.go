package link

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/mux"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// laneNames are the lanes beside QUIC, in order of preference.
func laneNames() []string {
	all := wire.LaneNames()
	return all[:len(all)-1]
}

// servedLane is a lane at a listener, or why it is not served there.
type servedLane struct {
	name   string
	server lane.Server
	why    string
}

func (s servedLane) discard() {
	if s.server != nil {
		s.server.Close()
	}
}

// maker finds the maker of a lane, or says why there is none.
func (n *network) maker(name string) (lane.Maker, string) {
	for _, m := range n.makers {
		if m.Lane() == name {
			return m, ""
		}
	}
	if n.cfg.Lanes != nil && !slices.Contains(n.cfg.Lanes, name) {
		return nil, "it was not asked for"
	}
	if name == wire.LaneCUDA && len(n.cfg.Devices) == 0 {
		return nil, "this worker has no accelerator"
	}
	return nil, "it is not to be had on this system"
}

// serveLanes starts what the lanes need at a listener.
func (n *network) serveLanes(at net.Addr) []servedLane {
	var served []servedLane
	for _, name := range laneNames() {
		s := servedLane{name: name}
		var m lane.Maker
		if m, s.why = n.maker(name); m != nil {
			var err error
			if s.server, err = m.Serve(at); err != nil {
				s.server, s.why = nil, err.Error()
			}
			if at, ok := s.server.(lane.Refusing); ok {
				at.TellTo(n.refusals)
			}
		}
		served = append(served, s)
	}
	return served
}

// setUp is a link's set-up, at one end.
type setUp struct {
	net  *network
	conn *quic.Conn
	kept *quic.Stream
	ends map[string]*lane.End // that are up here, by name
	said []wire.LaneState     // of all lanes but QUIC
}

// exchange bounds the words of a set-up by c, and runs them.
func (u *setUp) exchange(c context.Context, words func(c context.Context) error) error {
	c, cancel := context.WithTimeout(c, lane.SetUpTimeout)
	defer cancel()
	stop := context.AfterFunc(c, func() { _ = u.conn.CloseWithError(quicstream.CodeClosed, "the link was not set up") })
	err := words(c)
	if !stop() && err == nil {
		err = c.Err()
	}
	if err == nil {
		return nil
	}
	for _, end := range u.ends {
		end.Drop()
	}
	if c.Err() != nil {
		return c.Err()
	}
	return err
}

func (u *setUp) say(d *descriptor) error {
	_, err := u.kept.Write(d.append(nil))
	return err
}

func (u *setUp) mine() *descriptor { return &descriptor{streams: uint32(u.net.cfg.MaxStreams)} }

// link makes the link, when both ends have agreed. It is to be started.
func (u *setUp) link(dialler bool, peer string, theirs descriptor) *Link {
	cfg := mux.Config{
		Codec: u.net.codec, Pieces: u.net.pieces, Dialler: dialler, Peer: peer, Accepts: uint64(u.net.cfg.MaxStreams), Opens: uint64(theirs.streams), Calls: u.net.calls,
	}
	said := u.said
	if _, why := u.net.maker(wire.LaneCUDA); why != "" && !slices.Contains(u.net.cfg.Lanes, wire.LaneCUDA) {
		said = slices.DeleteFunc(said, func(s wire.LaneState) bool { return s.Name == wire.LaneCUDA }) // not worth a word where there is no GPU
	}
	l := newLink(u.conn, u.kept, cfg, said, u.ends)
	l.id = u.net.cfg.Identity
	return l
}

// setUpDialled sets up a link at the dialler. That the acceptor answers says that it took this
// end's certificate: in TLS 1.3 the dialler's handshake is complete before the peer has looked at
// it.
func (n *network) setUpDialled(c context.Context, s *socket, conn *quic.Conn, addr string) (*Link, error) {
	u := &setUp{net: n, conn: conn, ends: map[string]*lane.End{}}
	var theirs descriptor
	err := u.exchange(c, func(c context.Context) (err error) {
		if u.kept, err = conn.OpenStreamSync(c); err != nil {
			return err
		}
		u.kept.SetPriority(quicstream.FrameUrgency, true)
		mine := u.mine()
		makers := map[string]lane.Maker{}
		for _, name := range laneNames() {
			w := laneWord{code: wire.LaneCode(name)}
			m, why := n.maker(name)
			if w.why = why; m != nil {
				makers[name] = m
				if w.offer, err = m.Offer(); err != nil {
					w.offer, w.why = nil, err.Error()
				} else if w.offer == nil {
					w.offer = []byte{}
				}
			}
			mine.lanes = append(mine.lanes, w)
		}
		if err := u.say(mine); err != nil {
			return err
		}
		if theirs, err = readDescriptor(u.kept); err != nil {
			return err
		}
		return u.joinLanes(c, makers, mine, &theirs)
	})
	if err != nil {
		return nil, err
	}
	l := u.link(true, addr, theirs)
	l.Data.Dial = func(c context.Context) (*quic.Conn, error) { return n.dialData(c, s, conn) }
	l.Start()
	return l, nil
}

// joinLanes joins the lanes that both ends offer, all at once, tells the acceptor, and hears from
// it.
func (u *setUp) joinLanes(c context.Context, makers map[string]lane.Maker, mine, theirs *descriptor) error {
	var wg sync.WaitGroup
	words := make([]laneWord, len(mine.lanes))
	ends := make([]*lane.End, len(mine.lanes))
	both := false
	for i, name := range laneNames() {
		own, other := mine.lanes[i], theirs.of(name)
		words[i] = laneWord{code: own.code}
		switch {
		case own.offer == nil:
			words[i].why = own.why
		case other.offer == nil:
			words[i].why = "the peer says: " + other.why
		default:
			both = true
			wg.Go(func() {
				end, err := u.joinLane(c, makers[name], other.offer)
				if err != nil {
					words[i].why = err.Error()
					return
				}
				ends[i], words[i].offer = end, []byte{}
			})
		}
	}
	wg.Wait()
	var agreed descriptor
	var err error
	for i, name := range laneNames() {
		if ends[i] != nil {
			u.ends[name] = ends[i]
		}
	}
	if both {
		verdict := &descriptor{streams: mine.streams, lanes: words}
		if err = u.say(verdict); err == nil {
			agreed, err = readDescriptor(u.kept)
		}
		if err != nil {
			return err
		}
	}
	for i, name := range laneNames() {
		state := wire.LaneState{Name: name, Why: words[i].why}
		if end := ends[i]; end != nil {
			if w := agreed.of(name); w.offer == nil {
				state.Why = "the peer says: " + w.why
				end.Drop()
				delete(u.ends, name)
			}
		}
		u.said = append(u.said, state)
	}
	return nil
}

func (u *setUp) joinLane(c context.Context, m lane.Maker, answer []byte) (*lane.End, error) {
	c, cancel := context.WithTimeout(c, lane.JoinTimeout)
	defer cancel()
	with, err := lane.ExportSecret(u.conn, m.Lane())
	if err != nil {
		return nil, err
	}
	return m.Join(c, with, answer)
}
