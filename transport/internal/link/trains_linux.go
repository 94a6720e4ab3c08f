package link

import (
	"net"

	"golang.org/x/sys/unix"
)

const udpGRO = unix.UDP_GRO

// joins asks the system to join datagrams; false where it cannot, as Linux before 5.0.
func joins(c *net.UDPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, udpGRO, 1) })
	return err == nil && failed == nil
}
