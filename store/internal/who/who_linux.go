package who

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// socket is what the kernel tells of a TCP socket.
type socket struct {
	state, uid int
	inode      uint64
}

// established is TCP_ESTABLISHED: both ends are open.
const established = 1

// tcpUID is the owner of this host's socket that has the address at, and to at its other end.
func tcpUID(at, to netip.AddrPort) (int, error) {
	s, err := diag(at, to)
	if errors.Is(err, errNoDiag) {
		s, err = proc(at, to)
	}
	if err != nil {
		return 0, err
	}
	return s.owner()
}

// owner is who has the socket. One that no process has any more, or has yet, has no inode and seems
// to be root's.
func (s socket) owner() (int, error) {
	switch {
	case s.state != established:
		return 0, fmt.Errorf("%w: its socket is being closed", ErrNobody)
	case s.inode == 0:
		return 0, ErrPending
	}
	return s.uid, nil
}

// unixUID is who connected a unix socket, or listens at it, at that time.
func unixUID(nc net.Conn) (int, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("%w: it hides its socket", ErrNobody)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
