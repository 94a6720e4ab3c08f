//go:build unix

package link

import (
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/ipv4"

	"github.com/weft-project/weft/internal/eager"
	"github.com/weft-project/weft/transport/internal/lane"
)

// eagerUDP is a UDP socket that looks again before it waits, and has the system hand over datagrams
// in trains where it can (UDP_GRO), which costs it and the reader less. quic-go reads from it by
// ReadBatch, and sets it up by SyscallConn.
type eagerUDP struct {
	*net.UDPConn
	lookout *eager.Lookout
	heeds   heed
	looking *ipv4.PacketConn // which serves IPv6 as well
	calm    *ipv4.PacketConn // the socket without looking again
	joined  *trains          // nil where the system joins no datagrams
	reads   *lane.Courtesy
	writes  *lane.Courtesy
	many    bool // what was read last was a train
}

// datagramMost is how many bytes a datagram of quic-go's has at most.
const datagramMost = 1452

// batch is how many datagrams, or trains of them, are read at a time; quic-go takes as many.
const batch = 8

func eagerSocket(c *net.UDPConn, heeds heed, calls *atomic.Uint64) net.PacketConn {
	u := &eagerUDP{UDPConn: c, lookout: eager.NewLookout(), heeds: heeds, reads: lane.NewCourtesy(calls), writes: lane.NewCourtesy(calls)}
	u.looking, u.calm = ipv4.NewPacketConn(u), ipv4.NewPacketConn(c)
	if joins(c) {
		u.joined = newTrains(batch)
	}
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
		n, err := c.read(from, ms, flags)
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

func (c *eagerUDP) read(from *ipv4.PacketConn, ms []ipv4.Message, flags int) (int, error) {
	if c.joined == nil {
		return from.ReadBatch(ms, flags)
	}
	n := c.joined.give(ms)
	if n > 0 {
		return n, nil
	}
	if c.many {
		c.reads.Pause()
	}
	err := c.joined.refill(from, flags)
	c.many = c.joined.many()
	return c.joined.give(ms), err
}

// WriteMsgUDP sends a datagram, or a train of them: tensors'. After one it is others' turn.
func (c *eagerUDP) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = c.UDPConn.WriteMsgUDP(b, oob, to)
	if len(b) > datagramMost {
		c.writes.Pause()
	}
	return n, oobn, err
}

// move copies a datagram into the buffers of another: quic-go knows each buffer by its place.
func move(to, from *ipv4.Message) {
	copy(to.Buffers[0], from.Buffers[0][:from.N])
	copy(to.OOB, from.OOB[:from.NN])
	to.Addr, to.N, to.NN, to.Flags = from.Addr, from.N, from.NN, from.Flags
}
