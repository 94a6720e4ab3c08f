//go:build !linux

package who

import (
	"net"
	"net/netip"
)

func tcpUID(netip.AddrPort, netip.AddrPort) (int, error) { return 0, ErrUnsaid }

func unixUID(net.Conn) (int, error) { return 0, ErrUnsaid }
