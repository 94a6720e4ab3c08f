package transporttest

import (
	"io"
	"math/rand/v2"
	"sync"
)

const pipeRoom = 32 << 10

// pipe is one direction of a conduit: a bounded buffer.
type pipe struct {
	mu     sync.Mutex
	change *sync.Cond
	b      []byte
	closed bool
	chop   func(*rand.Rand, int) int
	rand   *rand.Rand
}

func newPipe(chop func(*rand.Rand, int) int) *pipe {
	p := &pipe{chop: chop, rand: rand.New(rand.NewPCG(1, 2))}
	p.change = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) some(n int) int {
	if p.chop == nil || n == 0 {
		return n
	}
	return min(n, max(1, p.chop(p.rand, n)))
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.b) == 0 && !p.closed {
		p.change.Wait()
	}
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:p.some(min(len(b), len(p.b)))], p.b)
	p.b = p.b[n:]
	p.change.Broadcast()
	return n, nil
}

func (p *pipe) write(b []byte, wait bool) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		if p.closed {
			return n, io.ErrClosedPipe
		}
		k := min(len(b), pipeRoom-len(p.b))
		if !wait {
			k = p.some(k)
		}
		p.b = append(p.b, b[:k]...)
		b, n = b[k:], n+k
		p.change.Broadcast()
		if !wait {
			return n, nil
		}
		if len(b) > 0 {
			p.change.Wait()
		}
	}
	return n, nil
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.change.Broadcast()
}

// Conduit is one end of a conduit in memory.
type Conduit struct{ r, w *pipe }

// Conduits makes both ends. chop says how many bytes a read gives, or TryWrite takes; nil: all.
func Conduits(chop func(r *rand.Rand, most int) int) (a, b *Conduit) {
	ab, ba := newPipe(chop), newPipe(chop)
	return &Conduit{r: ba, w: ab}, &Conduit{r: ab, w: ba}
}

func (k *Conduit) Read(b []byte) (int, error) { return k.r.read(b) }

func (k *Conduit) Write(b []byte) (int, error) { return k.w.write(b, true) }

// TryWrite writes what there is room for.
func (k *Conduit) TryWrite(b []byte) (int, error) { return k.w.write(b, false) }

// Close ends both directions.
func (k *Conduit) Close() error { k.r.close(); k.w.close(); return nil }
