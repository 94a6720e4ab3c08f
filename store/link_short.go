//go:build linux

package store

import (
	"net"
	"syscall"
)

// shortWait is how long a client's read waits in the kernel before the runtime's poller takes over.
const shortWait = 1000 // µs

// waitShortly makes reads of nc wait in the kernel for an answer that comes soon. A client asks and does nothing else until it has the answer, so the
// way by the runtime's poller (a vain read, a goroutine parked, epoll, the goroutine found again) is only work between the two.
// An answer that takes longer than shortWait ends the read with EAGAIN, after which it goes on by the poller, with its deadlines, as ever.
func waitShortly(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		tv := syscall.Timeval{Usec: shortWait}
		if syscall.SetsockoptTimeval(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv) == nil &&
			syscall.SetsockoptTimeval(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv) == nil {
			_ = syscall.SetNonblock(int(fd), false)
		}
	})
}
