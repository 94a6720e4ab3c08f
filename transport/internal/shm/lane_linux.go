package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/weft-project/weft/internal/eager"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/meet"
	"github.com/weft-project/weft/transport/internal/wire"
)

// maker makes the local lane. The dialler offers the id of its machine's boot, so that others do
// not even try, and connects twice to the listener's [meet.Server], for the frames and for the
// ledger of loans.
type maker struct {
	lookout *eager.Lookout
	copies  bool // see Config.LendCopies
}

// New makes the lane's maker. With copies it lends a copy of each tensor.
func New(copies bool) lane.Maker { return &maker{eager.NewLookout(), copies} }

func (*maker) Lane() string { return wire.LaneLocal }

func (*maker) Offer() ([]byte, error) {
	probe, _, err := shared(1)
	if err != nil {
		return nil, fmt.Errorf("this process has no memory to share: %w", err)
	}
	_ = probe.Release() // the one of Alloc
	return meet.BootID()
}

func (l *maker) Serve(net.Addr) (lane.Server, error) {
	boot, err := l.Offer()
	if err != nil {
		return nil, err
	}
	m, err := meet.NewServer(meet.MaxRoles)
	return &server{m, l, boot}, err
}

func (l *maker) Join(c context.Context, with lane.Peer, answer []byte) (*lane.End, error) {
	conns, err := meet.Join(c, with.Secret, answer, meet.MaxRoles)
	if err != nil {
		return nil, err
	}
	return l.makeEnd(conns)
}

// makeEnd makes an end of the lane of its two connections, which it takes over.
func (l *maker) makeEnd(conns [meet.MaxRoles]*net.UnixConn) (*lane.End, error) {
	const room = 1 << 20 // the system may give less
	_ = conns[roleFrames].SetWriteBuffer(room)
	frames, err := eager.NewConn(conns[roleFrames], l.lookout)
	if err != nil {
		meet.CloseConns(conns)
		return nil, err
	}
	return &lane.End{
		Conduit:    &conduit{frames},
		NewChannel: func(env lane.Env) lane.Channel { return newChannel(env, conns[roleLedger], l.copies) },
		Drop:       func() { meet.CloseConns(conns) },
	}, nil
}

// server is the lane at one listener.
type server struct {
	*meet.Server
	lane *maker
	boot []byte
}

func (s *server) Expect(with lane.Peer, offer []byte) ([]byte, func(context.Context) (*lane.End, error), error) {
	if !bytes.Equal(offer, s.boot) {
		return nil, nil, errors.New("the peer is on another host")
	}
	answer, wait, err := s.Server.Expect(with.Secret)
	return answer, func(c context.Context) (*lane.End, error) {
		conns, err := wait(c)
		if err != nil {
			return nil, err
		}
		return s.lane.makeEnd(conns)
	}, err
}

const roleFrames = 0 // the connections of a link

const roleLedger = 1
