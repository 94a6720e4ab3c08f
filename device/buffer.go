package device

import (
	"runtime"
	"sync/atomic"
)

// Buffer is a run of bytes on one device, 64-byte aligned, reference counted. See the package comment for who
// owns what.
type Buffer struct {
	dev  owner
	mem  []byte
	blk  *block // what mem is the beginning of; nil where it lies with the buffer: see [Small]
	host bool   // the host may look at mem
	left bool   // nobody's from the start, never counted

	more     atomic.Int32                    // references beyond the first; −1 after the last Release
	disowned atomic.Pointer[runtime.Cleanup] // nil while somebody owns it; the zero Cleanup where the collector frees the memory
}

// noCleanup marks a buffer as disowned whose memory is the collector's anyway.
var noCleanup runtime.Cleanup

// owner is what a buffer needs of its device when the last reference goes.
type owner interface {
	Device
	put(b *block)
	forget(n int)
	discard(b *block)   // left to the collector
	collected(b *block) // and not any more
}

// block is the memory behind a buffer; blocks outlive buffers by way of the pool.
type block struct {
	mem    []byte
	class  int
	vacant bool // kept without its pages; guarded by the pool's lock

	seg  *Segment // where the block lies, with off; nil for memory of Go's heap
	off  int
	done func() // for memory of another process: gives it back
}

// onHeap says that Go's collector frees the memory.
func (b *block) onHeap() bool { return b.seg == nil && b.done == nil }

// Len is the number of bytes asked for.
func (b *Buffer) Len() int { return len(b.mem) }

// Device is where the bytes are.
func (b *Buffer) Device() Device { return b.dev }

// Host shows the bytes of a host device's buffer, without a copy. It fails with ErrNotHost on any other device and
// with ErrReleased after the last Release. The caller must hold a reference for as long as it uses the slice, and keep the
// Buffer reachable (runtime.KeepAlive): the slice does not, and the memory may not be the collector's. What is ReadOnly
// must not be written: that ends the process.
func (b *Buffer) Host() ([]byte, error) {
	if !b.host {
		return nil, &Error{b.dev.ID(), "read from the host", ErrNotHost}
	}
	if b.released() {
		return nil, &Error{b.dev.ID(), "read from the host", ErrReleased}
	}
	return b.mem, nil
}

func (b *Buffer) released() bool { return b.more.Load() < 0 }

// Retain adds a reference and returns b. Only who holds a reference may call it.
func (b *Buffer) Retain() *Buffer {
	b.more.Add(1)
	return b
}

// Exclusive says that the caller's reference is the only one, so that it may overwrite the bytes. It is never true of what is
// ReadOnly.
func (b *Buffer) Exclusive() bool { return b.more.Load() == 0 && !b.ReadOnly() }

// ReadOnly says that the bytes are another process's, and must not be written.
func (b *Buffer) ReadOnly() bool { return b.blk != nil && b.blk.done != nil }

// Foreign makes a host buffer over memory of another process, which is mapped for reading. The caller owns the one reference.
// done is called once, when the buffer is released for the last time or, disowned, found by the collector; from then on mem
// may be unmapped. It must not wait. mem must be aligned as buffers are.
func Foreign(mem []byte, done func()) *Buffer {
	m := host()
	m.live.Add(1)
	m.liveBytes.Add(int64(len(mem)))
	return &Buffer{dev: m, mem: mem, blk: &block{mem: mem, class: len(mem), done: done}, host: true}
}

// Release drops a reference. With the last one the bytes go back to the device's pool. It fails with ErrReleased,
// and does nothing, when there was none left.
func (b *Buffer) Release() error {
	for {
		n := b.more.Load()
		if n < 0 {
			return &Error{b.dev.ID(), "release", ErrReleased}
		}
		if !b.more.CompareAndSwap(n, n-1) {
			continue
		}
		if n == 0 && !b.left {
			b.end()
		}
		return nil
	}
}

// end gives the memory back.
func (b *Buffer) end() {
	if c := b.disowned.Load(); c == nil {
		b.dev.forget(len(b.mem))
	} else if c != &noCleanup {
		c.Stop()
		b.dev.collected(b.blk)
	}
	if b.blk != nil {
		b.dev.put(b.blk)
	}
}

// Disown leaves the buffer to Go's garbage collector: for tensors that belong to nobody. It is no longer counted in Stats;
// memory that is not of Go's heap is returned once the buffer is unreachable, and the collector is made to look in time.
// Where the last reference is released nevertheless, the bytes go back to the pool at once.
func (b *Buffer) Disown() {
	if b.left || b.disowned.Load() != nil {
		return
	}
	if b.blk == nil || b.host && b.blk.onHeap() {
		if b.disowned.CompareAndSwap(nil, &noCleanup) {
			b.dev.forget(len(b.mem))
		}
		return
	}
	dev := b.dev
	c := runtime.AddCleanup(b, func(blk *block) { dev.collected(blk); dev.put(blk) }, b.blk)
	if !b.disowned.CompareAndSwap(nil, &c) {
		c.Stop()
		return
	}
	dev.forget(len(b.mem))
	dev.discard(b.blk)
}

// alive says why a buffer cannot be used by dev, or nil.
func (b *Buffer) alive(dev Device, op string) error {
	if b.dev != dev {
		return &Error{dev.ID(), op, ErrElsewhere}
	}
	if b.released() {
		return &Error{dev.ID(), op, ErrReleased}
	}
	return nil
}
