package admission

import "sync"

// Pool runs work on goroutines that are kept for a while.
type Pool struct {
	work *sync.WaitGroup // counts its goroutines
	end  <-chan struct{} // closed when nobody is to wait for work any more
	idle chan func()     // who waits for work receives
	room chan struct{}

	mu     sync.Mutex
	closed bool
}

// maxIdle is how many goroutines without work a pool keeps.
const maxIdle = 32

// NewPool makes a pool whose goroutines are counted in work, and do not wait for work after end.
func NewPool(work *sync.WaitGroup, end <-chan struct{}) *Pool {
	return &Pool{work: work, end: end, idle: make(chan func()), room: make(chan struct{}, maxIdle)}
}

// Do runs work on a goroutine of the pool, or on this one when the pool is closed.
func (p *Pool) Do(work func()) {
	select {
	case p.idle <- work:
		return
	default:
	}
	if !p.grow(work) {
		work()
	}
}

// grow runs work on a new goroutine; false: the pool is closed.
func (p *Pool) grow(work func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(func() { p.serve(work) })
	}
	return !p.closed
}

// Close begins no more goroutines, so that its own can be waited for: a function may resolve its
// future at any time.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// serve works until there is enough of those who wait for work, or the worker ends.
func (p *Pool) serve(work func()) {
	for {
		work()
		select {
		case p.room <- struct{}{}:
		default:
			return
		}
		select {
		case work = <-p.idle:
			<-p.room
		case <-p.end:
			<-p.room
			return
		}
	}
}
