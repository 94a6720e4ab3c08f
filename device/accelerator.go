package device

import (
	"cmp"
	"errors"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/internal/callsite"
)

// Memory is the bytes of an accelerator that is made elsewhere, such as a GPU, by their addresses
// there. [Over] makes a [Device] of it.
//
// Work on the accelerator is ordered, as far as anybody can see: what is asked for later sees what
// was asked for before as done, wherever the two use the same block that Take gave, and one writes
// it. So memory may be given back, and taken again, while work on it is still under way. What has
// no block in common may be done in any order, or at once.
//
// It is safe for concurrent use. Errors wrap a sentinel of this package; a Device puts its name and
// the operation before them.
type Memory interface {
	// Take gives n > 0 bytes, aligned to 256. It fails with ErrMemory where there are not as many.
	Take(n int) (at uintptr, err error)
	// Give returns what Take gave.
	Give(at uintptr, n int)
	// Upload copies host bytes; they may be changed when it has returned.
	Upload(at uintptr, src []byte) error
	// Download waits for the work that has written the bytes, or for all that came before where
	// there are none, and copies to the host. It tells what went wrong with what it waited for,
	// too.
	Download(dst []byte, at uintptr) error
	// Move copies n bytes within the memory; the pieces do not overlap.
	Move(dst, src uintptr, n int) error
	// Close gives back what is held beside the memory that was taken.
	Close() error
}

// Accelerator is a Device over a [Memory].
type Accelerator struct {
	id   ID
	raw  Memory
	pool pool

	garbage         garbage
	live, liveBytes atomic.Int64
	stacks          callsite.Stacks
	roll            roll // of all blocks, also those that are kept

	mu     sync.Mutex
	taken  int  // blocks of raw that have not been given back
	closed bool // raw is closed with the last of them
}

var _ Device = (*Accelerator)(nil)

// Over makes a device of a memory, which is closed with it. Released blocks are kept for reuse, as
// many bytes as pooled says (0: without a bound), and given back where the memory is full.
func Over(id ID, m Memory, pooled int64) *Accelerator {
	if pooled <= 0 {
		pooled = 1 << 62
	}
	return &Accelerator{id: id, raw: m, pool: pool{max: pooled, spare: spareFor(m)}}
}

// ID names the device.
func (d *Accelerator) ID() ID { return d.id }

// Memory is what the device was made of.
func (d *Accelerator) Memory() Memory { return d.raw }

// Addr is where a buffer lies in its accelerator's memory; 0 for one without bytes, and for buffers
// of other devices. Who uses it keeps the buffer reachable.
func (b *Buffer) Addr() uintptr {
	if b.blk == nil {
		return 0
	}
	return b.blk.addr
}

// Alloc is [Device.Alloc]; where the memory is full, what the pool keeps is given back before it
// fails, and then what the collector finds of buffers that were disowned.
func (d *Accelerator) Alloc(n int) (*Buffer, error) { return d.AllocFor(n, nil) }

// AllocFor is Alloc of bytes that are at once ready for what a hint is about, where there is memory
// enough: see [Noter].
func (d *Accelerator) AllocFor(n int, hint any) (*Buffer, error) {
	if n < 0 || n > maxAccelerator {
		return nil, &Error{d.id, "alloc", ErrBounds}
	}
	blk, err := d.block(n, hint, true)
	if err != nil {
		return nil, err
	}
	d.live.Add(1)
	d.liveBytes.Add(int64(n))
	return bufferOf(blk, n), nil
}

// block gives at least n bytes, which fit the hint if any can; count says that they are for a
// buffer.
func (d *Accelerator) block(n int, hint any, count bool) (*block, error) {
	by := d.stacks.Here()
	blk, err := d.blockFor(n, hint, count)
	if err == nil {
		blk.by.Store(by)
	} else if errors.Is(err, ErrMemory) {
		err = d.full(fineClass(n), by, err)
	}
	if err != nil {
		return nil, &Error{d.id, "alloc", err}
	}
	return blk, nil
}

// blockFor is block without the device's name before errors.
func (d *Accelerator) blockFor(n int, hint any, count bool) (*block, error) {
	class := fineClass(n)
	var fits func(*block) bool
	if m, ok := d.raw.(Noter); ok && hint != nil {
		fits = func(b *block) bool { return m.Fits(b.note, hint) }
	}
	blk, open := d.pool.find(class, fits, count)
	if !open {
		return nil, ErrClosed
	}
	if blk != nil {
		d.fresh(blk)
		return blk, nil
	}
	spare := false
	if fits != nil {
		if may, is := d.pool.more(class); !may {
			return d.blockFor(n, nil, count)
		} else {
			spare = is
		}
	}
	blk, err := d.make(class, !spare)
	if spare && err != nil {
		d.pool.lacked(class)
	}
	if spare && errors.Is(err, ErrMemory) {
		return d.blockFor(n, nil, count)
	}
	if err != nil {
		return nil, err
	}
	blk.spare = spare
	d.pool.made(blk, count)
	return blk, nil
}

// fresh tells that what a block holds is of no use any more.
func (d *Accelerator) fresh(b *block) {
	if m, ok := d.raw.(Noter); ok {
		m.Fresh(b.note)
	}
}

// Holds says why work on buffers cannot be asked for: one lies elsewhere, or was released.
func (d *Accelerator) Holds(op string, bufs []*Buffer) error {
	for _, b := range bufs {
		if err := b.alive(d, op); err != nil {
			return err
		}
	}
	return nil
}

// maxAccelerator bounds one allocation, so that sizes can be rounded.
const maxAccelerator = 1 << 50

// fineClass is the size of the block that serves n bytes: a power of two in 8 steps from 4096 bytes
// on, so that at most a ninth is slack.
func fineClass(n int) int {
	if n <= 4096 {
		return max(256, 1<<bits.Len(uint(max(n, 1)-1)))
	}
	step := 1 << (bits.Len(uint(n-1)) - 4)
	return (n + step - 1) &^ (step - 1)
}

func (d *Accelerator) put(b *block) {
	b.by.Store(nil)
	if !d.pool.put(b) {
		d.give(b)
	}
}

func (d *Accelerator) discard(b *block)   { d.garbage.grow(int64(b.class)) }
func (d *Accelerator) collected(b *block) { d.garbage.sub(int64(b.class)) }

func (d *Accelerator) forget(n int) {
	d.live.Add(-1)
	d.liveBytes.Add(-int64(n))
}

// within checks that a transfer of n bytes at off lies within a buffer of this device.
func (d *Accelerator) within(b *Buffer, off, n int, op string) error {
	if err := b.alive(d, op); err != nil {
		return err
	}
	if off < 0 || n > b.n-off {
		return &Error{d.id, op, ErrBounds}
	}
	return nil
}

// failed names the device and the operation.
func (d *Accelerator) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{d.id, op, err}
}

// Upload is [Device.Upload].
func (d *Accelerator) Upload(dst *Buffer, off int, src []byte) error {
	if err := d.within(dst, off, len(src), "upload"); err != nil || len(src) == 0 {
		return err
	}
	defer runtime.KeepAlive(dst)
	if len(src) == dst.n {
		d.fresh(dst.blk)
	}
	return d.failed("upload", d.raw.Upload(dst.Addr()+uintptr(off), src))
}

// Download is [Device.Download].
func (d *Accelerator) Download(dst []byte, src *Buffer, off int) error {
	if err := d.within(src, off, len(dst), "download"); err != nil || len(dst) == 0 {
		return err
	}
	defer runtime.KeepAlive(src)
	return d.failed("download", d.raw.Download(dst, src.Addr()+uintptr(off)))
}

// Check waits for what buffers hold, or, without any, for all work that was asked for, and tells
// what went wrong with it, as Download does.
func (d *Accelerator) Check(of ...*Buffer) error {
	if err := d.Holds("check", of); err != nil {
		return err
	}
	c, ok := d.raw.(Checker)
	if !ok {
		return d.failed("check", d.raw.Download(nil, 0))
	}
	at := make([]uintptr, len(of))
	for k, b := range of {
		at[k] = b.Addr()
	}
	defer runtime.KeepAlive(of)
	wait, err := c.Check(at...)
	if err == nil {
		err = wait()
	}
	return d.failed("check", err)
}

// Known is what is known to be wrong with what buffers hold, for who is about to step them, or by
// them. It waits for nothing.
func (d *Accelerator) Known(of ...*Buffer) (err error) {
	m, ok := d.raw.(Noter)
	if !ok {
		return nil
	}
	for _, b := range of {
		if b.blk != nil {
			err = cmp.Or(err, m.Known(b.blk.note)) // all are told of
		}
	}
	return d.failed("check", err)
}

// Like tells that what a buffer holds came of what another one of the device holds, and of nothing
// else, whatever the run that wrote it read: so it is wrong where that is.
func (d *Accelerator) Like(b, of *Buffer) {
	if m, ok := d.raw.(Noter); ok && b.blk != nil && of.blk != nil {
		m.Like(b.blk.note, of.blk.note)
	}
}

// CopyWithin is [Device.CopyWithin].
func (d *Accelerator) CopyWithin(dst, src *Buffer) error {
	if dst.Len() != src.Len() {
		return &Error{d.id, "copy", ErrBounds}
	}
	if err := errors.Join(d.within(src, 0, src.n, "copy"), d.within(dst, 0, dst.n, "copy")); err != nil || src.n == 0 || src == dst {
		return err
	}
	defer runtime.KeepAlive(dst)
	defer runtime.KeepAlive(src)
	d.fresh(dst.blk)
	return d.failed("copy", d.raw.Move(dst.Addr(), src.Addr(), src.n))
}

// directly copies between accelerators where their memories reach one another.
func directly(dst, src *Buffer) (done bool, err error) {
	from, ok := src.Device().(*Accelerator)
	to, both := dst.Device().(*Accelerator)
	if !ok || !both {
		return false, nil
	}
	near, ok := from.raw.(Neighbor)
	if !ok || src.n == 0 {
		return false, nil
	}
	if err := errors.Join(from.within(src, 0, src.n, "copy"), to.within(dst, 0, dst.n, "copy")); err != nil {
		return false, err
	}
	defer runtime.KeepAlive(dst)
	defer runtime.KeepAlive(src)
	to.fresh(dst.blk)
	done, err = near.CopyTo(to.raw, dst.Addr(), src.Addr(), src.n)
	return done, from.failed("copy", err)
}

// Stats is [Device.Stats].
func (d *Accelerator) Stats() Stats {
	s := d.pool.stats()
	s.Live, s.LiveBytes = d.live.Load(), d.liveBytes.Load()
	return s
}

// Close is [Device.Close]. The memory itself is closed with the last buffer. To close again does
// nothing.
func (d *Accelerator) Close() error {
	for _, b := range d.pool.drain() {
		d.give(b)
	}
	d.mu.Lock()
	again := d.closed
	d.closed = true
	end := !again && d.taken == 0
	d.mu.Unlock()
	if !end {
		return nil
	}
	return d.failed("close", d.raw.Close())
}
