package link

import (
	"context"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// setUpAccepted sets up a link at the acceptor.
func (n *network) setUpAccepted(c context.Context, conn *quic.Conn, lanes []servedLane, pending *quicstream.PendingConns) (wire.Link, error) {
	st, err := pending.Add(conn)
	if err != nil {
		return nil, err
	}
	u := &setUp{net: n, conn: conn, ends: map[string]*lane.End{}}
	var theirs descriptor
	err = u.exchange(c, func(c context.Context) (err error) {
		if u.kept, err = conn.AcceptStream(c); err != nil {
			return err
		}
		u.kept.SetPriority(quicstream.FrameUrgency, true)
		if theirs, err = readDescriptor(u.kept); err != nil {
			return err
		}
		return u.serveJoins(c, lanes, &theirs)
	})
	if err != nil {
		return nil, err
	}
	l := u.link(false, conn.RemoteAddr().String(), theirs)
	l.Start()
	pending.Attach(st, l.Data.Use)
	return l, nil
}

// awaited is a lane that the dialler may join.
type awaited struct {
	end    *lane.End
	err    error
	cancel context.CancelFunc
	done   chan struct{}
}

// serveJoins answers the dialler's offers, and agrees with it on what it has joined.
func (u *setUp) serveJoins(c context.Context, lanes []servedLane, theirs *descriptor) error {
	answer := u.mine()
	waits := map[string]*awaited{}
	defer func() {
		for _, a := range waits { // of those that were not agreed upon
			a.cancel()
			<-a.done
			if a.end != nil {
				a.end.Drop()
			}
		}
	}()
	for _, s := range lanes {
		w := laneWord{code: wire.LaneCode(s.name), why: s.why}
		switch other := theirs.of(s.name); {
		case s.server == nil:
		case other.offer == nil:
			w.why = "the peer says: " + other.why
		default:
			if err := u.await(c, s, other.offer, &w, waits); err != nil {
				w.offer, w.why = nil, err.Error()
			}
		}
		answer.lanes = append(answer.lanes, w)
	}
	if err := u.say(answer); err != nil {
		return err
	}
	var joined descriptor
	if len(waits) > 0 {
		var err error
		if joined, err = readDescriptor(u.kept); err != nil {
			return err
		}
	}
	agreed := u.mine()
	for _, w := range answer.lanes {
		agreed.lanes = append(agreed.lanes, u.agree(w, &joined, waits))
	}
	if len(joined.lanes) == 0 {
		return nil
	}
	return u.say(agreed)
}

// await lets the dialler join a lane.
func (u *setUp) await(c context.Context, s servedLane, offer []byte, w *laneWord, waits map[string]*awaited) error {
	with, err := lane.ExportSecret(u.conn, s.name)
	if err != nil {
		return err
	}
	mine, wait, err := s.server.Expect(with, offer)
	if err != nil {
		return err
	}
	c, cancel := context.WithCancel(c)
	a := &awaited{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.end, a.err = wait(c)
	}()
	waits[s.name] = a
	w.why = ""
	if w.offer = mine; mine == nil {
		w.offer = []byte{}
	}
	return nil
}

// agree says whether a lane that was answered by w is up at both ends, and notes it.
func (u *setUp) agree(w laneWord, joined *descriptor, waits map[string]*awaited) laneWord {
	for _, name := range laneNames() {
		if wire.LaneCode(name) != w.code {
			continue
		}
		a, verdict := waits[name], laneWord{code: w.code, why: w.why}
		if a != nil {
			theirs := joined.of(name)
			if theirs.offer == nil {
				a.cancel()
			}
			timer := time.AfterFunc(lane.JoinTimeout, a.cancel)
			<-a.done
			timer.Stop()
			switch {
			case theirs.offer == nil:
				verdict.why = "the peer says: " + theirs.why
			case a.err != nil:
				verdict.why = a.err.Error()
			default:
				verdict.offer = []byte{}
				u.ends[name] = a.end
				delete(waits, name)
			}
		}
		u.said = append(u.said, wire.LaneState{Name: name, Why: verdict.why})
		return verdict
	}
	return w
}
