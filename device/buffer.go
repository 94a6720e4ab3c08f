package device

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/weft-project/weft/internal/callsite"
)

// Buffer is a run of bytes on one device, 64-byte aligned, reference counted. See the package
// comment for who owns what.
type Buffer struct {
	at   unsafe.Pointer
	n    int
	blk  *block // whose memory it is; nil where that lies with the buffer, on the host: see [Small]
	more int32  // references beyond the first; −1 after the last Release, claimed between Claim and Unclaim; atomic, as left
	left uint32 // 1: disowned
}

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
	dev   owner
	host  bool // dev is the host
	mem   []byte
	addr  uintptr // of an accelerator's memory, which has no mem
	note  any     // that memory's
	class int
	spare bool                           // see the type spare
	by    atomic.Pointer[callsite.Stack] // who asked for what it holds; nil where nobody has, and on the host

	seg     *Segment        // where the block lies; nil for memory of Go's heap
	used    int             // of a segment: bytes from here on are 0
	done    func()          // for memory of another process: gives it back
	of      any             // of that, what Foreign says
	cleanup runtime.Cleanup // of the buffer, where that is disowned and the memory not of Go's heap
}

// bufferOf is a buffer of n bytes of a block, with one reference.
func bufferOf(blk *block, n int) *Buffer {
	return &Buffer{at: unsafe.Pointer(unsafe.SliceData(blk.mem)), n: n, blk: blk}
}

// onHeap says that Go's collector frees the memory.
func (b *block) onHeap() bool { return b.seg == nil && b.done == nil }

// Len is the number of bytes asked for.
func (b *Buffer) Len() int { return b.n }

// Device is where the bytes are.
func (b *Buffer) Device() Device { return b.dev() }

func (b *Buffer) dev() owner {
	if b.blk == nil {
		return host
	}
	return b.blk.dev
}

// mem is the memory, on whichever device.
func (b *Buffer) mem() []byte { return unsafe.Slice((*byte)(b.at), b.n) }

// Host shows the bytes of a host device's buffer, without a copy. It fails with ErrNotHost on any
// other device and with ErrReleased after the last Release. The caller must hold a reference for as
// long as it uses the slice, and keep the Buffer reachable (runtime.KeepAlive): the slice does not,
// and the memory may not be the collector's. What is ReadOnly must not be written: that ends the
// process.
func (b *Buffer) Host() ([]byte, error) {
	if b.blk != nil && !b.blk.host {
		return nil, &Error{b.dev().ID(), "read from the host", ErrNotHost}
	}
	if b.released() {
		return nil, &Error{b.dev().ID(), "read from the host", ErrReleased}
	}
	return b.mem(), nil
}

func (b *Buffer) released() bool { return atomic.LoadInt32(&b.more) == -1 }

// Retain adds a reference and returns b. Only who holds a reference may call it.
func (b *Buffer) Retain() *Buffer {
	atomic.AddInt32(&b.more, 1)
	return b
}

// TryRetain is Retain for who holds no reference, and only knows the buffer: it says whether there
// was one. Between Claim and Unclaim it is as if there were none.
func (b *Buffer) TryRetain() bool {
	for {
		n := atomic.LoadInt32(&b.more)
		if n < 0 {
			return false
		}
		if atomic.CompareAndSwapInt32(&b.more, n, n+1) {
			return true
		}
	}
}

const claimed = math.MinInt32

// Claim is Exclusive, and nobody can have another reference until Unclaim.
func (b *Buffer) Claim() bool {
	return !b.ReadOnly() && atomic.CompareAndSwapInt32(&b.more, 0, claimed)
}

// Unclaim undoes a Claim.
func (b *Buffer) Unclaim() { atomic.StoreInt32(&b.more, 0) }

// Exclusive says that the caller's reference is the only one, so that it may overwrite the bytes.
// It is never true of what is ReadOnly.
func (b *Buffer) Exclusive() bool { return atomic.LoadInt32(&b.more) == 0 && !b.ReadOnly() }

// ReadOnly says that the bytes are another process's, and must not be written.
func (b *Buffer) ReadOnly() bool { return b.blk != nil && b.blk.done != nil }

// Foreign makes a host buffer over memory of another process, which is mapped for reading. The
// caller owns the one reference. done is called once, when the buffer is released for the last time
// or, disowned, found by the collector; from then on mem may be unmapped. It must not wait. mem
// must be aligned as buffers are. of is a pointer that stands for the shared memory in which mem
// lies, so that [Join] can map it once more: with the same pointer the same address always shows
// the same memory. It is nil where mem is no such memory.
func Foreign(mem []byte, of any, done func()) *Buffer {
	m := host
	m.live.Add(1)
	m.liveBytes.Add(int64(len(mem)))
	return bufferOf(&block{dev: m, host: true, mem: mem, class: len(mem), done: done, of: of}, len(mem))
}

// Release drops a reference. With the last one the bytes go back to the device's pool. It fails
// with ErrReleased, and does nothing, when there was none left.
func (b *Buffer) Release() error {
	for {
		n := atomic.LoadInt32(&b.more)
		if n < 0 {
			return &Error{b.dev().ID(), "release", ErrReleased}
		}
		if !atomic.CompareAndSwapInt32(&b.more, n, n-1) {
			continue
		}
		if n == 0 {
			b.giveBack()
		}
		return nil
	}
}

// giveBack gives the memory back.
func (b *Buffer) giveBack() {
	disowned := atomic.LoadUint32(&b.left) != 0
	if !disowned {
		b.dev().forget(b.n)
	}
	if b.blk == nil {
		return
	}
	if disowned && !b.inHeap() {
		b.blk.cleanup.Stop()
		b.blk.dev.collected(b.blk)
	}
	b.blk.dev.put(b.blk)
}

// inHeap says that all there is of the buffer is Go's.
func (b *Buffer) inHeap() bool {
	return b.blk == nil || b.blk.onHeap() && b.blk.host
}

// Disown leaves the buffer to Go's garbage collector: for tensors that belong to nobody. It is no
// longer counted in Stats; memory that is not of Go's heap is returned once the buffer is
// unreachable, and the collector is made to look in time. Where the last reference is released
// nevertheless, the bytes go back to the pool at once.
func (b *Buffer) Disown() {
	if atomic.LoadUint32(&b.left) != 0 || !atomic.CompareAndSwapUint32(&b.left, 0, 1) {
		return
	}
	dev := b.dev()
	dev.forget(b.n)
	if b.inHeap() {
		return
	}
	b.blk.cleanup = runtime.AddCleanup(b, func(blk *block) { dev.collected(blk); dev.put(blk) }, b.blk)
	dev.discard(b.blk)
}

// alive says why a buffer cannot be used by dev, or nil.
func (b *Buffer) alive(dev Device, op string) error {
	if b.Device() != dev {
		return &Error{dev.ID(), op, ErrElsewhere}
	}
	if b.released() {
		return &Error{dev.ID(), op, ErrReleased}
	}
	return nil
}
