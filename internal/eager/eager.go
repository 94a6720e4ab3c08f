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
	step    func(fd uintptr) bool // made once, as one for each read would be garbage
	look    func() bool           // likewise

	// Of the read under way:
	try                 func(fd uintptr) bool
	fd                  uintptr
	since               time.Time
	tried, alone, looks bool
}

// NewRaw makes the Read of raw eager.
func NewRaw(raw syscall.RawConn, l *Lookout) *Raw {
	r := &Raw{RawConn: raw, lookout: l}
	r.step, r.look = r.tryAndLook, func() bool { return r.try(r.fd) }
	return r
}

// Read implements syscall.RawConn.
func (r *Raw) Read(try func(fd uintptr) bool) error {
	r.try, r.tried, r.alone = try, false, false
	err := r.RawConn.Read(r.step)
	if r.try = nil; r.alone {
		r.habit.took(r.looks, time.Since(r.since))
	}
	return err
}

func (r *Raw) tryAndLook(fd uintptr) bool {
	if r.try(fd) {
		return true
	}
	if r.tried { // woken, and for nothing
		return false
	}
	r.tried, r.fd = true, fd
	if r.alone = r.lookout.alone(&r.habit); !r.alone {
		return false
	}
	r.since = time.Now()
	r.looks = r.habit.way(r.since)
	return r.looks && r.lookout.watch(r.look)
}

// Conn is a stream socket whose Read looks again before it waits.
type Conn struct {
	net.Conn
	raw *Raw
	try func(fd uintptr) bool // reads into b; made once, as one for each read would be garbage
	b   []byte
	n   int
	err error
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
	e := &Conn{Conn: nc, raw: NewRaw(raw, l)}
	e.try = e.tryRead
	return e, nil
}

// Wrap makes the Read of nc eager if it is a socket, and leaves it as it is if not.
func Wrap(nc net.Conn, l *Lookout) net.Conn {
	if socket, ok := nc.(Socket); ok {
		if c, err := NewConn(socket, l); err == nil {
			return c
		}
	}
	return nc
}

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Read is the socket's but for the looking.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.b = b
	err := c.raw.Read(c.try)
	c.b = nil
	switch {
	case err != nil:
		return 0, err
	case c.err != nil:
		return 0, os.NewSyscallError("read", c.err)
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

func (c *Conn) tryRead(fd uintptr) bool {
	for {
		c.n, c.err = syscall.Read(int(fd), c.b)
		switch c.err {
		case syscall.EINTR: //nolint:errorlint // an errno of our own call
		case syscall.EAGAIN: //nolint:errorlint // likewise
			return false
		default:
			return true
		}
	}
}
