//go:build !unix

package transport

import "net"

// eagerSocket leaves a socket as it is where how to look again is not known.
func eagerSocket(c *net.UDPConn, _ heed) net.PacketConn { return c }
