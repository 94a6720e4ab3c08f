package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/weft-project/weft/internal/eager"
)

// localLane makes the local lane. The dialler offers the id of its machine's boot, so that others do not even try, and connects
// twice to the listener's [meeting], for the frames and for the ledger of loans.
type localLane struct {
	lookout *eager.Lookout
	copies  bool // see Config.LendCopies
}

func newLocalLane(copies bool) laneMaker { return &localLane{eager.NewLookout(), copies} }

func (*localLane) lane() string { return LaneLocal }

func (*localLane) offer() ([]byte, error) {
	probe, _, err := shared(1)
	if err != nil {
		return nil, fmt.Errorf("this process has no memory to share: %w", err)
	}
	_ = probe.Release() // the one of Alloc
	return bootID()
}

func (l *localLane) serve(net.Addr) (laneServer, error) {
	boot, err := l.offer()
	if err != nil {
		return nil, err
	}
	m, err := newMeeting(maxRoles)
	return &localServer{m, l, boot}, err
}

func (l *localLane) join(c context.Context, with laneWith, answer []byte) (*laneEnd, error) {
	conns, err := meet(c, with.secret, answer, maxRoles)
	if err != nil {
		return nil, err
	}
	return l.end(conns)
}

// end makes an end of the lane of its two connections, which it takes over.
func (l *localLane) end(conns [maxRoles]*net.UnixConn) (*laneEnd, error) {
	const room = 1 << 20 // the system may give less
	_ = conns[localFrames].SetWriteBuffer(room)
	frames, err := eager.NewConn(conns[localFrames], l.lookout)
	if err != nil {
		closeConns(conns)
		return nil, err
	}
	return &laneEnd{
		conduit:   &localConduit{frames},
		newHauler: func(env laneEnv) hauler { return newLocalHauler(env, conns[localLedger], l.copies) },
		drop:      func() { closeConns(conns) },
	}, nil
}

// localServer is the lane at one listener.
type localServer struct {
	*meeting
	lane *localLane
	boot []byte
}

func (s *localServer) expect(with laneWith, offer []byte) ([]byte, func(context.Context) (*laneEnd, error), error) {
	if !bytes.Equal(offer, s.boot) {
		return nil, nil, errors.New("the peer is on another host")
	}
	answer, wait, err := s.meeting.expect(with.secret)
	return answer, func(c context.Context) (*laneEnd, error) {
		conns, err := wait(c)
		if err != nil {
			return nil, err
		}
		return s.lane.end(conns)
	}, err
}

const localFrames = 0 // the connections of a link

const localLedger = 1
