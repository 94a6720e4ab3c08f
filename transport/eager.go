//go:build unix

package transport

import (
	"net"
	"syscall"

	"github.com/weft-project/weft/internal/eager"
)

// eagerUDP is a UDP socket that looks again before it waits, for quic-go, which reads by way of SyscallConn.
type eagerUDP struct {
	*net.UDPConn
	lookout *eager.Lookout
}

func eagerSocket(c *net.UDPConn) net.PacketConn { return &eagerUDP{c, eager.NewLookout()} }

func (c *eagerUDP) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.UDPConn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return eager.NewRaw(raw, c.lookout), nil
}
