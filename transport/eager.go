//go:build unix

package transport

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// patience is for how long a reader that has just had something looks again before it goes to sleep. To be woken costs
// 10 to 30 µs, about as long as the answer to a small call takes: who looks for that long mostly finds it, and spends no more
// than the waking would have.
const patience = 40 * time.Microsecond

// lookout lets the readers of one network's sockets look again. It bounds how many do so at a time: more than the
// machine has processors would keep each other, and the peer, from running.
type lookout struct {
	most    int32
	looking atomic.Int32
}

func newLookout() *lookout {
	return &lookout{most: int32(min(runtime.GOMAXPROCS(0), runtime.NumCPU()-1))}
}

// watch polls until ready says so, or for patience; other goroutines run in between.
func (l *lookout) watch(ready func() bool) bool {
	if l.looking.Add(1) > l.most {
		l.looking.Add(-1)
		return false
	}
	defer l.looking.Add(-1)
	for end := time.Now().Add(patience); ; {
		runtime.Gosched() // what was just read has to be worked on before anything can come of it
		if ready() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// eagerRaw is a RawConn whose Read looks again before it waits.
type eagerRaw struct {
	syscall.RawConn
	lookout *lookout
}

func (r *eagerRaw) Read(try func(fd uintptr) bool) error {
	fresh := true
	return r.RawConn.Read(func(fd uintptr) bool {
		if try(fd) {
			return true
		}
		if !fresh { // woken, and for nothing: somebody else took it
			return false
		}
		fresh = false
		return r.lookout.watch(func() bool { return try(fd) })
	})
}

// eagerConn is a stream socket whose Read looks again before it waits.
type eagerConn struct {
	*net.UnixConn
	raw syscall.RawConn
}

func newEagerConn(c *net.UnixConn, l *lookout) (*eagerConn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &eagerConn{c, &eagerRaw{raw, l}}, nil
}

// Read is UnixConn.Read but for the looking.
func (c *eagerConn) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	rerr := c.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), b)
		for err == syscall.EINTR { //nolint:errorlint // an errno of our own call
			n, err = syscall.Read(int(fd), b)
		}
		return err != syscall.EAGAIN //nolint:errorlint // likewise
	})
	switch {
	case rerr != nil:
		return 0, rerr
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
