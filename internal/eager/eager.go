//go:build unix

package eager

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Raw is a RawConn with one reader, whose Read may look again before it waits.
type Raw struct {
	syscall.RawConn
	lookout *Lookout
	habit   habit
}

// NewRaw makes the Read of raw eager.
func NewRaw(raw syscall.RawConn, l *Lookout) *Raw { return &Raw{RawConn: raw, lookout: l} }

// Read implements syscall.RawConn.
func (r *Raw) Read(try func(fd uintptr) bool) error {
	var since time.Time
	tried, alone, looks := false, false, false
	err := r.RawConn.Read(func(fd uintptr) bool {
		if try(fd) {
			return true
		}
		if tried { // woken, and for nothing
			return false
		}
		tried = true
		if alone = r.lookout.alone(&r.habit); !alone {
			return false
		}
		since = time.Now()
		looks = r.habit.way(since)
		return looks && r.lookout.watch(func() bool { return try(fd) })
	})
	if alone {
		r.habit.took(looks, time.Since(since))
	}
	return err
}

// Conn is a stream socket whose Read looks again before it waits.
type Conn struct {
	net.Conn
	raw *Raw
}

// Socket is a connection that the system reads and writes.
type Socket interface {
	net.Conn
	syscall.Conn
}

// NewConn makes the Read of nc eager.
func NewConn(nc Socket, l *Lookout) (*Conn, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Conn{nc, NewRaw(raw, l)}, nil
}

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Read is the socket's but for the looking.
func (c *Conn) Read(b []byte) (n int, err error) {
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
