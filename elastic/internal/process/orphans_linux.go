package process

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/proctree"
)

// Orphans are the processes that this one inherits, where it adopts: they are reaped when they end,
// and killed when the job ends. Where it does not adopt, Orphans does nothing.
type Orphans struct {
	adopts bool
	before map[int]bool // what was below this process before the job: it is none of the job's
	look   chan os.Signal
	stop   chan struct{}
	done   chan struct{}

	mu  sync.Mutex   // held while a worker is started, so that it is not taken for an orphan
	own map[int]bool // the workers that are to be waited for
}

// NewOrphans notes what is below this process before the job, and reaps what it inherits from then
// on.
func NewOrphans(adopts bool) *Orphans {
	o := &Orphans{adopts: adopts, own: map[int]bool{}, look: make(chan os.Signal, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if !adopts {
		return o
	}
	o.before = map[int]bool{}
	for _, pid := range proctree.Below(os.Getpid(), nil) {
		o.before[pid] = true
	}
	signal.Notify(o.look, syscall.SIGCHLD)
	o.again()
	go func() {
		defer close(o.done)
		for {
			select {
			case <-o.look:
				o.reap()
			case <-o.stop:
				return
			}
		}
	}()
	return o
}

// Start starts a worker, which is no orphan until it is reaped.
func (o *Orphans) Start(begin func() (*Process, error)) (*Process, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, err := begin()
	if err == nil {
		o.own[p.PID()] = true
	}
	return p, err
}

// Reaped takes it that a worker was waited for: an orphan may have its number from here on.
func (o *Orphans) Reaped(pid int) {
	o.mu.Lock()
	delete(o.own, pid)
	o.mu.Unlock()
	o.again()
}

// again has reap look.
func (o *Orphans) again() {
	select {
	case o.look <- nil:
	default:
	}
}

// reap reaps the orphans that have ended. Where a worker has, whoever waits for it comes first, and
// then has reap look again.
func (o *Orphans) reap() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		pid := ended()
		if pid == 0 || o.own[pid] {
			return
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// ended is a child that has ended and was not waited for yet, 0 if there is none.
func ended() int {
	var info struct { // siginfo_t, as far as the id
		_   [3]int32
		its struct {
			_   [0]uintptr // which aligns it as the kernel does
			pid int32
		}
		_ [128]byte
	}
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return int(info.its.pid)
		}
	}
}

// Kill kills all that the job's workers have left below this process, whatever its session or
// group. It returns when that is gone, or after Drain: what the system itself holds cannot be
// killed. It looks again each millisecond, as nothing tells of the end of a process that is no
// child yet.
func (o *Orphans) Kill() {
	if !o.adopts {
		return
	}
	late := time.Now().Add(Drain)
	for left := proctree.Below(os.Getpid(), o.before); len(left) > 0 && time.Now().Before(late); left = proctree.Below(os.Getpid(), o.before) {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		o.reap()
		time.Sleep(time.Millisecond)
	}
}

// ReapEnded reaps what has ended, and no more.
func (o *Orphans) ReapEnded() {
	if !o.adopts {
		return
	}
	signal.Stop(o.look)
	close(o.stop)
	<-o.done
	o.reap()
}
