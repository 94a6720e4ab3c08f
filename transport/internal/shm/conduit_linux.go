package shm

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/eager"
)

// conduit is a unix socket that carries a link's frames.
type conduit struct{ *eager.Conn }

func (k *conduit) TryWrite(b []byte) (n int, err error) {
	raw, err := k.SyscallConn()
	if err != nil {
		return 0, err
	}
	rerr := raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			var m int
			if m, err = unix.Write(int(fd), b[n:]); err == unix.EINTR { //nolint:errorlint // an errno of our own call
				continue
			}
			if err != nil {
				break
			}
			n += m
		}
		return true
	})
	switch {
	case rerr != nil:
		return n, rerr
	case err == unix.EAGAIN: //nolint:errorlint // likewise
		return n, nil
	}
	return n, os.NewSyscallError("write", err)
}
