//go:build !unix

package transport

import "net"

// eager leaves a socket as it is where how to look again is not known.
func eager(c *net.UDPConn) net.PacketConn { return c }
