package cudaipc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/meet"
	"github.com/weft-project/weft/transport/internal/wire"
)

// maker makes lane cuda. Each end offers the id of its machine's boot and the names of its
// accelerators; the connection that they make at the listener's [meet.Server] keeps what they open
// of each other's memory.
type maker struct{ peers []accelerator }

// New makes the lane's maker; nil where none of the devices can share its memory.
func New(devs []device.Device) lane.Maker {
	l := &maker{}
	for _, d := range devs {
		a, ok := d.(*device.Accelerator)
		if !ok {
			continue
		}
		if mem, ok := a.Exporter(); ok && len(l.peers) < maxBoxes {
			l.peers = append(l.peers, accelerator{nameOf(mem.Identity()), a, mem})
		}
	}
	if l.peers == nil {
		return nil
	}
	return l
}

func (*maker) Lane() string { return wire.LaneCUDA }

// Offer is the names, and behind them the boot's id.
func (l *maker) Offer() ([]byte, error) {
	boot, err := meet.BootID()
	return append(l.names(), boot...), err
}

func (l *maker) names() []byte {
	b := []byte{byte(len(l.peers))}
	for _, p := range l.peers {
		b = append(b, p.name[:]...)
	}
	return b
}

var errOtherAccelerators = errors.New("the peer uses other accelerators")

// common is which of the accelerators the peer names, and what it says behind.
func (l *maker) common(said []byte) (peers []accelerator, rest []byte, err error) {
	if len(said) == 0 || said[0] > maxBoxes || len(said) < 1+int(said[0])*nameSize {
		return nil, nil, wire.FrameErr("offer", "names of accelerators", "%d bytes", len(said))
	}
	names, rest := said[1:1+int(said[0])*nameSize], said[1+int(said[0])*nameSize:]
	for _, p := range l.peers {
		for name := range slices.Chunk(names, nameSize) {
			if bytes.Equal(name, p.name[:]) {
				peers = append(peers, p)
				break
			}
		}
	}
	return peers, rest, nil
}

func (l *maker) Serve(net.Addr) (lane.Server, error) {
	boot, err := meet.BootID()
	if err != nil {
		return nil, err
	}
	m, err := meet.NewServer(1)
	return &server{m, l, boot}, err
}

// Join leaves it to the answer which accelerators are used.
func (l *maker) Join(c context.Context, with lane.Peer, answer []byte) (*lane.End, error) {
	peers, rest, err := l.common(answer)
	if err != nil {
		return nil, err
	}
	if peers == nil {
		return nil, errOtherAccelerators
	}
	conns, err := meet.Join(c, with.Secret, rest, 1)
	return newEnd(conns, peers), err
}

func newEnd(conns [meet.MaxRoles]*net.UnixConn, peers []accelerator) *lane.End {
	return &lane.End{
		NewChannel: func(env lane.Env) lane.Channel { return newChannel(env, conns[0], peers) },
		Drop:       func() { meet.CloseConns(conns) },
	}
}

// server is the lane at one listener.
type server struct {
	*meet.Server
	lane *maker
	boot []byte
}

func (s *server) Expect(with lane.Peer, offer []byte) ([]byte, func(context.Context) (*lane.End, error), error) {
	peers, boot, err := s.lane.common(offer)
	switch {
	case err != nil:
		return nil, nil, err
	case !bytes.Equal(boot, s.boot):
		return nil, nil, errors.New("the peer is on another host")
	case peers == nil:
		return nil, nil, errOtherAccelerators
	}
	answer, wait, err := s.Server.Expect(with.Secret)
	return append(s.lane.names(), answer...), func(c context.Context) (*lane.End, error) {
		conns, err := wait(c)
		return newEnd(conns, peers), err
	}, err
}
