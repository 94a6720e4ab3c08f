//go:build unix

package link

import (
	"net"
	"syscall"

	"golang.org/x/net/ipv4"

	"github.com/weft-project/weft/internal/eager"
)

// eagerUDP is a UDP socket that looks again before it waits. quic-go reads from it by ReadBatch,
// and sets it up by SyscallConn.
type eagerUDP struct {
	*net.UDPConn
	lookout *eager.Lookout
	heeds   heed
	looking *ipv4.PacketConn // which serves IPv6 as well
	calm    *ipv4.PacketConn // the socket without looking again
}

func eagerSocket(c *net.UDPConn, heeds heed) net.PacketConn {
	u := &eagerUDP{UDPConn: c, lookout: eager.NewLookout(), heeds: heeds}
	u.looking, u.calm = ipv4.NewPacketConn(u), ipv4.NewPacketConn(c)
	return u
}

func (c *eagerUDP) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.UDPConn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return eager.NewRaw(raw, c.lookout), nil
}

// ReadBatch reads datagrams, and leaves out those that are not heeded. After them it does not look
// again: what comes next is as likely another of theirs.
func (c *eagerUDP) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for from := c.looking; ; from = c.calm {
		n, err := from.ReadBatch(ms, flags)
		if err != nil || n == 0 || c.heeds == nil {
			return n, err
		}
		kept := 0
		for i := range ms[:n] {
			if m := &ms[i]; c.heeds(m.Buffers[0][:m.N], m.Addr) {
				if kept < i {
					move(&ms[kept], m)
				}
				kept++
			}
		}
		if kept > 0 {
			return kept, nil
		}
	}
}

// move copies a datagram into the buffers of another: quic-go knows each buffer by its place.
func move(to, from *ipv4.Message) {
	copy(to.Buffers[0], from.Buffers[0][:from.N])
	copy(to.OOB, from.OOB[:from.NN])
	to.Addr, to.N, to.NN, to.Flags = from.Addr, from.N, from.NN, from.Flags
}
