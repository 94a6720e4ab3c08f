//go:build unix

package client

import (
	"crypto/tls"
	"net"
	"syscall"
)

// quiet says whether an idle connection is open and the server has said nothing on it: neither has
// it hung up, nor does it speak without being asked.
func quiet(nc net.Conn) bool {
	t, secured := nc.(*tls.Conn)
	if secured { // where session tickets may come at any time
		nc = t.NetConn()
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return true
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	still := false
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		still = err == syscall.EAGAIN || secured && n > 0
		return true
	})
	return err == nil && still
}
