package parallel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Work is work that can be cut. Parts may run at once.
type Work interface {
	// Piece does the part [from, to).
	Piece(from, to int)
}

// For does [0, n) in pieces of grain, the last one shorter, and returns when all are done. It uses
// the calling goroutine and the helpers of this process that are idle. Where n is not more than
// grain it costs nothing. The cuts are the same whatever the number of threads. A panic of a piece
// becomes the caller's, when all pieces have ended.
func For(n, grain int, p Work) {
	if n <= grain {
		if n > 0 {
			p.Piece(0, n)
		}
		return
	}
	shared().For(n, grain, p)
}

// Workers is how many goroutines [For] uses at most, the caller's among them.
func Workers() int { return shared().threads }

// For is [For] with the helpers of one pool.
func (c *Pool) For(n, grain int, p Work) {
	invited := c.borrow((n+grain-1)/grain - 1)
	if invited == 0 {
		for at := 0; at < n; at += grain {
			p.Piece(at, min(at+grain, n))
		}
		return
	}
	s := c.idle.Get().(*spreading)
	s.p, s.n, s.grain = p, n, grain
	s.helpers.Add(invited)
	for range invited {
		go s.help()
	}
	s.runParts()
	s.helpers.Wait()
	c.give(invited)
	panicked := s.panicked
	s.p, s.panicked = nil, nil
	s.next.Store(0)
	c.idle.Put(s)
	if panicked != nil {
		panic(panicked)
	}
}

// spreading is one call of [Pool.For] that has helpers.
type spreading struct {
	p        Work
	n, grain int
	next     atomic.Int64 // the first piece that nobody has taken
	helpers  sync.WaitGroup
	help     func() // helper, made once so that starting it allocates nothing

	mu       sync.Mutex
	panicked any
}

func (s *spreading) runParts() {
	defer func() {
		if v := recover(); v != nil {
			s.mu.Lock()
			s.panicked = v
			s.mu.Unlock()
		}
	}()
	for {
		at := (int(s.next.Add(1)) - 1) * s.grain
		if at >= s.n {
			return
		}
		s.p.Piece(at, min(at+s.grain, s.n))
	}
}

func (s *spreading) helper() {
	defer s.helpers.Done()
	s.runParts()
}

// Pool is a number of helpers, one fewer than the threads that may run. Several programs share it.
// A caller that finds no helper idle does the work alone.
type Pool struct {
	threads int
	free    atomic.Int64
	idle    sync.Pool // of *spreading
}

// shared is the pool of this process.
var shared = sync.OnceValue(func() *Pool {
	n, _ := Threads()
	return NewPool(n)
})

// NewPool makes a pool for so many threads, the caller's among them.
func NewPool(threads int) *Pool {
	c := &Pool{threads: threads}
	c.free.Store(int64(threads - 1))
	c.idle.New = func() any {
		s := &spreading{}
		s.help = s.helper
		return s
	}
	return c
}

// borrow gives up to most helpers.
func (c *Pool) borrow(most int) int {
	for {
		free := c.free.Load()
		n := min(free, int64(most))
		if n <= 0 {
			return 0
		}
		if c.free.CompareAndSwap(free, free-n) {
			return int(n)
		}
	}
}

func (c *Pool) give(n int) { c.free.Add(int64(n)) }

// Threads is how many threads this process uses at most: OMP_NUM_THREADS, or as many as Go itself
// (GOMAXPROCS). The number is good with an error, too, which says why OMP_NUM_THREADS does not
// count.
func Threads() (int, error) {
	return threads(os.Getenv(threadsVariable), runtime.GOMAXPROCS(0))
}

const threadsVariable = "OMP_NUM_THREADS"

// mostThreads is more than any machine has processors.
const mostThreads = 1 << 14

// threads reads OpenMP's variable, of which the first number counts here: the others are of nested
// work.
func threads(text string, without int) (int, error) {
	if text == "" {
		return without, nil
	}
	first, _, _ := strings.Cut(text, ",")
	n, err := strconv.Atoi(strings.TrimSpace(first))
	if err == nil && (n < 1 || n > mostThreads) {
		err = fmt.Errorf("expected a number from 1 to %d", mostThreads)
	}
	if cause := (*strconv.NumError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	if err != nil {
		return without, fmt.Errorf("%s=%q does not count: %w", threadsVariable, text, err)
	}
	return n, nil
}
