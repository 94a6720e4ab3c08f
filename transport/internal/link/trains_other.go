//go:build unix && !linux

package link

import "net"

const udpGRO = -1 // no word of the system's

// joins says that this system joins no datagrams.
func joins(*net.UDPConn) bool { return false }
