package simnet

import (
	"math"

	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/mux"
)

// end is one end of a link: a session of package mux over a conduit that the network simulates.
type end struct {
	*mux.Session
	net     *Net
	name    string // the same at both ends: what delays are drawn from
	host    string
	peer    string
	addr    string // what RemoteAddr says
	other   *end
	dialer  bool
	conduit *conduit

	// guarded by Net.mu
	gone bool // its session has ended
	dead bool // its host was killed
}

// start begins the end's session. Both ends are made.
func (e *end) start() {
	most := uint64(e.net.cfg.MaxStreams)
	e.conduit = newConduit(e)
	e.Session = mux.New(mux.Config{
		Codec: e.net.codec, Pieces: e.net.pieces, Dialler: e.dialer, Peer: e.addr, Accepts: most, Opens: most,
		Inline: math.MaxInt64, Conduit: e.conduit, Count: &lane.Traffic{}, Gone: e.ended,
		Explain: func(_ string, err error) error { return e.lost("the connection ended", err) },
	})
}

func (e *end) lost(reason string, cause error) error {
	return &transport.Error{Op: "link with", Peer: e.addr, Err: transport.ErrPeerLost, Reason: reason, Cause: cause}
}

// Vouches says yes: who is linked knows the token.
func (e *end) Vouches(string, int) error { return nil }

// Lanes names the one there is.
func (e *end) Lanes() []transport.LaneState { return []transport.LaneState{{Name: "sim"}} }

// ended is told that the session has ended.
func (e *end) ended(error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.gone = true; e.other.gone {
		delete(e.net.links, e)
		delete(e.net.links, e.other)
	}
}

// resumeLocked goes on after a cut.
func (e *end) resumeLocked() {
	for _, f := range e.conduit.flows {
		e.conduit.pumpLocked(f)
	}
}
