//go:build unix

package server

import (
	"math"
	"net"
	"os"
	"syscall"
)

// fileLimit is how many files this process may have open.
func fileLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 { //nolint:unconvert // on some systems it is signed
		return math.MaxInt32
	}
	return int(limit.Cur) //nolint:gosec // bounded above
}

// rawConn is what a socket can do without waiting; nil if nc is none.
func rawConn(nc net.Conn) syscall.RawConn {
	if s, ok := nc.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// writeNow writes what a socket takes at once.
func writeNow(raw syscall.RawConn, b []byte) (n int, err error) {
	werr := raw.Write(func(fd uintptr) bool {
		for n < len(b) && err == nil {
			var m int
			if m, err = syscall.Write(int(fd), b[n:]); m > 0 {
				n += m
			}
			if err == syscall.EINTR { //nolint:errorlint // an errno of our own call
				err = nil
			}
		}
		return true
	})
	switch {
	case werr != nil:
		return n, werr
	case err == syscall.EAGAIN || err == nil: //nolint:errorlint // likewise
		return n, nil
	}
	return n, os.NewSyscallError("write", err)
}
