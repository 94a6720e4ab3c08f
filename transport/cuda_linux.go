package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"

	"github.com/weft-project/weft/device"
)

// cudaLane makes lane cuda. Each end offers the id of its machine's boot and the names of its accelerators; the connection that they make at the
// listener's [meeting] keeps what they open of each other's memory.
type cudaLane struct{ peers []cudaPeer }

func newCUDALane(devs []device.Device) laneMaker {
	l := &cudaLane{}
	for _, d := range devs {
		a, ok := d.(*device.Accelerator)
		if !ok {
			continue
		}
		if mem, ok := a.Exporter(); ok && len(l.peers) < cudaMostBoxes {
			l.peers = append(l.peers, cudaPeer{nameOf(mem.Identity()), a, mem})
		}
	}
	if l.peers == nil {
		return nil
	}
	return l
}

func (*cudaLane) lane() string { return LaneCUDA }

// offer is the names, and behind them the boot's id.
func (l *cudaLane) offer() ([]byte, error) {
	boot, err := bootID()
	return append(l.names(), boot...), err
}

func (l *cudaLane) names() []byte {
	b := []byte{byte(len(l.peers))}
	for _, p := range l.peers {
		b = append(b, p.name[:]...)
	}
	return b
}

var errOtherAccelerators = errors.New("the peer uses other accelerators")

// common is which of the accelerators the peer names, and what it says behind.
func (l *cudaLane) common(said []byte) (peers []cudaPeer, rest []byte, err error) {
	if len(said) == 0 || said[0] > cudaMostBoxes || len(said) < 1+int(said[0])*cudaName {
		return nil, nil, frameErr("offer", "names of accelerators", "%d bytes", len(said))
	}
	names, rest := said[1:1+int(said[0])*cudaName], said[1+int(said[0])*cudaName:]
	for _, p := range l.peers {
		for name := range slices.Chunk(names, cudaName) {
			if bytes.Equal(name, p.name[:]) {
				peers = append(peers, p)
				break
			}
		}
	}
	return peers, rest, nil
}

func (l *cudaLane) serve(net.Addr) (laneServer, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	m, err := newMeeting(1)
	return &cudaServer{m, l, boot}, err
}

// join leaves it to the answer which accelerators are used.
func (l *cudaLane) join(c context.Context, with laneWith, answer []byte) (*laneEnd, error) {
	peers, rest, err := l.common(answer)
	if err != nil {
		return nil, err
	}
	if peers == nil {
		return nil, errOtherAccelerators
	}
	conns, err := meet(c, with.secret, rest, 1)
	return cudaEnd(conns, peers), err
}

func cudaEnd(conns [maxRoles]*net.UnixConn, peers []cudaPeer) *laneEnd {
	return &laneEnd{
		newHauler: func(env laneEnv) hauler { return newCUDAHauler(env, conns[0], peers) },
		drop:      func() { closeConns(conns) },
	}
}

// cudaServer is the lane at one listener.
type cudaServer struct {
	*meeting
	lane *cudaLane
	boot []byte
}

func (s *cudaServer) expect(with laneWith, offer []byte) ([]byte, func(context.Context) (*laneEnd, error), error) {
	peers, boot, err := s.lane.common(offer)
	switch {
	case err != nil:
		return nil, nil, err
	case !bytes.Equal(boot, s.boot):
		return nil, nil, errors.New("the peer is on another host")
	case peers == nil:
		return nil, nil, errOtherAccelerators
	}
	answer, wait, err := s.meeting.expect(with.secret)
	return append(s.lane.names(), answer...), func(c context.Context) (*laneEnd, error) {
		conns, err := wait(c)
		return cudaEnd(conns, peers), err
	}, err
}
