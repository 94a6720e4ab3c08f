//go:build unix

package mux

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/weft-project/weft/transport/internal/lane"
)

// unixPair makes conduits of two connected sockets.
func unixPair() (a, b lane.Conduit) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		panic(err)
	}
	wrap := func(fd int) lane.Conduit {
		f := os.NewFile(uintptr(fd), "")
		defer f.Close()
		k, err := net.FileConn(f)
		if err != nil {
			panic(err)
		}
		raw, err := k.(*net.UnixConn).SyscallConn()
		if err != nil {
			panic(err)
		}
		return unixTestConduit{k, raw}
	}
	return wrap(fds[0]), wrap(fds[1])
}

type unixTestConduit struct {
	net.Conn
	raw syscall.RawConn
}

func (k unixTestConduit) TryWrite(b []byte) (n int, err error) {
	rerr := k.raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), b)
		return true
	})
	if err == syscall.EAGAIN {
		n, err = 0, nil
	}
	return max(n, 0), errors.Join(err, rerr)
}
