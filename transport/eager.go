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
// 10 to 50 µs, about as long as the answer to a small call takes: who looks for that long mostly finds it, and spends no more
// than the waking would have.
const patience = 40 * time.Microsecond

// lookout bounds how many readers of a network look at a time: more than the machine has processors to spare would keep each
// other, and the peer, from running.
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

// habit decides whether a reader looks before it sleeps. Where processors are idle looking halves the wait; where other
// processes want them it only keeps the peer from answering. So both are tried again and again, and the one
// with the shorter waits of late is kept. The zero habit begins by sleeping.
type habit struct {
	mean  [2]time.Duration // of the waits that slept at once, and of those that looked first; 0: not known
	looks bool             // what is done now
	turns int              // waits since it was decided
}

const (
	keepHabit = 400                    // waits until the other way is tried
	tryHabit  = 16                     // and for how many
	longWait  = 500 * time.Microsecond // a longer one says nothing about either
)

// took notes how long a wait was.
func (h *habit) took(wait time.Duration) {
	if wait > longWait {
		h.looks, h.turns = false, 0 // nothing is going on
		return
	}
	way := &h.mean[btoi(h.looks)]
	if *way == 0 {
		*way = wait
	}
	*way += (wait - *way) / 8
	h.turns++
	switch better := h.mean[1] != 0 && h.mean[1] < h.mean[0]; {
	case h.looks != better && h.turns >= tryHabit:
		h.looks, h.turns = better, 0
	case h.turns >= keepHabit || h.mean[1] == 0 && h.turns >= tryHabit:
		h.looks, h.turns = !h.looks, 0
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// eagerRaw is a RawConn with one reader, whose Read may look again before it waits.
type eagerRaw struct {
	syscall.RawConn
	lookout *lookout
	habit   habit
}

func (r *eagerRaw) Read(try func(fd uintptr) bool) error {
	var since time.Time
	err := r.RawConn.Read(func(fd uintptr) bool {
		if try(fd) {
			return true
		}
		if !since.IsZero() { // woken, and for nothing
			return false
		}
		since = time.Now()
		return r.habit.looks && r.lookout.watch(func() bool { return try(fd) })
	})
	if !since.IsZero() {
		r.habit.took(time.Since(since))
	}
	return err
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
	return &eagerConn{c, &eagerRaw{RawConn: raw, lookout: l}}, nil
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
