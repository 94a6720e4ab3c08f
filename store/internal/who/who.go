package who

import (
	"errors"
	"net"
	"net/netip"
	"os"
)

// Why there is no answer.
var (
	// ErrElsewhere is for a connection with another machine.
	ErrElsewhere = errors.New("the other end is on another machine")
	// ErrUnsaid is for a system whose kernel does not say such things.
	ErrUnsaid = errors.New("this system does not say whose process is at the other end")
	// ErrNobody is for a connection whose other end is not open any more, or not on this host
	// though it looks so, as where an address is translated. Who cannot be asked for must not be
	// trusted.
	ErrNobody = errors.New("no process of this host is at the other end")
	// ErrPending is for a connection that nobody has accepted yet.
	ErrPending = errors.New("nobody has accepted the connection yet")
)

// UID is the user at the other end of nc. A connection that is no socket, like net.Pipe's, is
// within this process.
func UID(nc net.Conn) (int, error) {
	switch remote := nc.RemoteAddr().(type) {
	case *net.TCPAddr:
		local, ok := nc.LocalAddr().(*net.TCPAddr)
		if !ok {
			return 0, ErrNobody
		}
		here, there := plain(local.AddrPort()), plain(remote.AddrPort())
		if !there.Addr().IsLoopback() && there.Addr() != here.Addr() {
			return 0, ErrElsewhere
		}
		return tcpUID(there, here)
	case *net.UnixAddr:
		return unixUID(nc)
	}
	return os.Geteuid(), nil
}

// Trusted says whether a user is this process's own, or root, who can do everything anyhow.
func Trusted(uid int) bool { return uid == os.Geteuid() || uid == 0 }

// plain is an address without the forms in which sockets for both versions of IP tell it.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
