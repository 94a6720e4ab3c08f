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
// 10 to 50 µs at each end where processors are idle, as long as a small call itself: who looks for that long mostly finds the
// answer. It is more than twice the waking, so that two ends of which one has slept meet again.
const patience = 120 * time.Microsecond

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

// habit decides whether a reader looks before it sleeps. Where processors are idle looking shortens the wait to a quarter, if both
// ends do it; where other processes want them it only keeps the peer from answering. So both ways are measured: one
// is kept, and the other tried at times that both ends read off their clocks. The zero habit sleeps.
type habit struct {
	mean  [2]time.Duration // of the waits that slept at once, and of those that looked first; 0: not known
	looks bool             // what is done outside trials
	trial bool
}

const (
	trialEvery = 128 * time.Millisecond
	trialFor   = 4 * time.Millisecond
	longWait   = 500 * time.Microsecond // a longer one says nothing about either way
)

// way says whether a wait that begins now looks first.
func (h *habit) way(now time.Time) bool {
	trial := time.Duration(now.UnixNano())%trialEvery < trialFor
	switch {
	case trial && !h.trial:
		h.mean[index(!h.looks)] = 0
	case !trial && h.trial && h.mean[0] != 0 && h.mean[1] != 0:
		h.looks = h.mean[1] < h.mean[0]
	}
	h.trial = trial
	return h.looks != trial
}

// took notes how long a wait of that way was.
func (h *habit) took(looked bool, wait time.Duration) {
	mean := &h.mean[index(looked)]
	switch {
	case wait > longWait:
	case *mean == 0:
		*mean = wait
	default:
		*mean += (wait - *mean) / 8
	}
}

func index(looks bool) int {
	if looks {
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
	looks := false
	err := r.RawConn.Read(func(fd uintptr) bool {
		if try(fd) {
			return true
		}
		if !since.IsZero() { // woken, and for nothing
			return false
		}
		since = time.Now()
		looks = r.habit.way(since)
		return looks && r.lookout.watch(func() bool { return try(fd) })
	})
	if !since.IsZero() {
		r.habit.took(looks, time.Since(since))
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

// eagerUDP is a UDP socket that looks again before it waits, for quic-go, which reads by way of SyscallConn.
type eagerUDP struct {
	*net.UDPConn
	lookout *lookout
}

func eager(c *net.UDPConn) net.PacketConn { return &eagerUDP{c, newLookout()} }

func (c *eagerUDP) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.UDPConn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &eagerRaw{RawConn: raw, lookout: c.lookout}, nil
}
