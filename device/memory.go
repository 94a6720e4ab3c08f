package device

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/internal/callsite"
)

// memory is a Device over Go memory. As the CPU its bytes are visible to the host; as a simulated
// accelerator they are not.
type memory struct {
	id    ID
	limit int64 // most live bytes; 0: unlimited
	pool  pool
	idle  sync.Pool // of *[][]byte, for Launch
	joins joins     // of the host's

	garbage         garbage
	live, liveBytes atomic.Int64
	stacks          callsite.Stacks
	roll            roll // of what is given out, but of the host's
}

// maxPooled bounds what a pool keeps for reuse.
const maxPooled = 1 << 30

// maxLive bounds what is asked of Go's allocator, which ends the process where it cannot serve:
// what the machine has, or, where that is not known, more than any machine of today has.
var maxLive = sync.OnceValue(func() int64 {
	if n := machineMemory(); n > 0 {
		return n
	}
	return 1 << 43
})

// Capacity is how many bytes the host's memory has, or, where that is not known, more than any
// machine of today has.
func Capacity() int64 { return maxLive() }

var _ Launcher = (*memory)(nil)

// Host is the process's own memory and processor, with ID "cpu". There is one per process, as there
// is one heap.
func Host() Launcher { return host }

var host = &memory{pool: pool{max: maxPooled, shared: shared{max: maxShared(), most: maxSegments(), seals: memfileSeals}}}

// SimConfig describes a simulated accelerator. The zero value is sim:0 without a limit.
type SimConfig struct {
	Index int
	Bytes int64 // memory size; 0 means unlimited
}

// NewSim makes a simulated accelerator: memory of its own that the host sees only through copies.
// Two devices made with one index are two devices, as on two machines.
func NewSim(cfg SimConfig) Launcher {
	return &memory{id: Sim(cfg.Index), limit: cfg.Bytes, pool: pool{max: maxPooled}}
}

func (m *memory) ID() ID { return m.id }

func (m *memory) isHost() bool { return m.id.Kind == KindCPU }

func (m *memory) Alloc(n int) (*Buffer, error) { return m.alloc(n, nil) }

// alloc is Alloc of memory that has what must asks for, if that is given: see take.
func (m *memory) alloc(n int, must func(*block) bool) (*Buffer, error) {
	if n < 0 {
		return nil, &Error{m.id, "alloc", ErrBounds}
	}
	if !m.reserve(int64(n)) {
		return nil, &Error{m.id, "alloc", m.full(n)}
	}
	blk, err := m.pool.take(n, m, must)
	if err != nil {
		m.liveBytes.Add(-int64(n))
		return nil, &Error{m.id, "alloc", err}
	}
	if !m.isHost() {
		blk.by.Store(m.stacks.Here())
		m.roll.enlist(blk)
	}
	m.live.Add(1)
	return bufferOf(blk, n), nil
}

// reserve counts n bytes as live, if they fit.
func (m *memory) reserve(n int64) bool {
	limit := m.limit
	if limit == 0 {
		limit = maxLive()
	}
	if n > limit || m.liveBytes.Add(n) > limit {
		if n <= limit {
			m.liveBytes.Add(-n)
		}
		return false
	}
	return true
}

func (m *memory) put(b *block) {
	if b.done != nil {
		b.done()
		return
	}
	if !m.isHost() {
		m.roll.strike(b)
	}
	if !m.pool.put(b) && b.seg != nil {
		b.seg.retire()
	}
}

func (m *memory) discard(b *block) {
	if !b.onHeap() {
		m.garbage.grow(int64(b.class))
	}
}

func (m *memory) collected(b *block) {
	if !b.onHeap() {
		m.garbage.sub(int64(b.class))
	}
}

func (m *memory) forget(n int) {
	m.live.Add(-1)
	m.liveBytes.Add(-int64(n))
}

// window is the part of b's memory that a transfer of n bytes at off touches.
func (m *memory) window(b *Buffer, off, n int, op string) ([]byte, error) {
	if err := b.alive(m, op); err != nil {
		return nil, err
	}
	if off < 0 || n > b.n-off {
		return nil, &Error{m.id, op, ErrBounds}
	}
	return b.mem()[off : off+n], nil
}

func (m *memory) Upload(dst *Buffer, off int, src []byte) error {
	w, err := m.window(dst, off, len(src), "upload")
	if err != nil {
		return err
	}
	if dst.ReadOnly() {
		return &Error{m.id, "upload", ErrReadOnly}
	}
	copy(w, src)
	runtime.KeepAlive(dst)
	return nil
}

func (m *memory) Download(dst []byte, src *Buffer, off int) error {
	w, err := m.window(src, off, len(dst), "download")
	if err != nil {
		return err
	}
	copy(dst, w)
	runtime.KeepAlive(src)
	return nil
}

func (m *memory) CopyWithin(dst, src *Buffer) error {
	if dst.Len() != src.Len() {
		return &Error{m.id, "copy", ErrBounds}
	}
	from, err := m.window(src, 0, src.Len(), "copy")
	if err != nil {
		return err
	}
	err = m.Upload(dst, 0, from)
	runtime.KeepAlive(src)
	return err
}

func (m *memory) Launch(bufs []*Buffer, fn func(mem [][]byte) error) error {
	idle, _ := m.idle.Get().(*[][]byte)
	if idle == nil {
		idle = new([][]byte)
	}
	mem := (*idle)[:0]
	for _, b := range bufs {
		w, err := m.window(b, 0, b.n, "launch")
		if err != nil {
			return err
		}
		mem = append(mem, w)
	}
	err := fn(mem)
	runtime.KeepAlive(bufs)
	clear(mem)
	*idle = mem
	m.idle.Put(idle)
	return err
}

func (m *memory) Stats() Stats {
	s := m.pool.stats()
	s.Live, s.LiveBytes = m.live.Load(), m.liveBytes.Load()
	return s
}

func (m *memory) Close() error {
	if m.isHost() {
		return nil // the host's memory stays for as long as the process
	}
	m.pool.drain()
	return nil
}
