package cuda

import "encoding/binary"

// Launch is one launch of a [List].
type Launch struct {
	Func     Func
	Grid     [3]uint32 // blocks
	Block    [3]uint32 // threads of each
	Shared   uint32    // bytes of dynamic shared memory
	Off, Len int       // its arguments, in the list's Args
}

// List is launches in order. Their arguments lie in Args as the kernels' parameters do: each at a
// multiple of its own size, with the first at a multiple of 16. A list may be built once, its
// addresses patched, and run again.
type List struct {
	Launches []Launch
	Args     []byte
}

// Reset empties the list and keeps its memory.
func (l *List) Reset() { l.Launches, l.Args = l.Launches[:0], l.Args[:0] }

// Add begins a launch, whose arguments follow.
func (l *List) Add(f Func, grid, block [3]uint32, shared uint32) {
	l.pad(16)
	l.Launches = append(l.Launches, Launch{Func: f, Grid: grid, Block: block, Shared: shared, Off: len(l.Args)})
}

// Addr adds an argument that is an address, and says where in Args it lies.
func (l *List) Addr(at uintptr) (off int) { return l.U64(uint64(at)) }

// U64 adds an argument of 8 bytes, and says where in Args it lies.
func (l *List) U64(v uint64) (off int) {
	l.pad(8)
	off = len(l.Args)
	l.Args = binary.LittleEndian.AppendUint64(l.Args, v)
	l.added()
	return off
}

// U32 adds an argument of 4 bytes, and says where in Args it lies.
func (l *List) U32(v uint32) (off int) {
	l.pad(4)
	off = len(l.Args)
	l.Args = binary.LittleEndian.AppendUint32(l.Args, v)
	l.added()
	return off
}

// Block adds an argument of some bytes, a multiple of 8, for [List.Fill], and says where in Args it
// lies.
func (l *List) Block(n int) (off int) {
	l.pad(8)
	off = len(l.Args)
	l.Args = append(l.Args, make([]byte, n)...)
	l.added()
	return off
}

// Fill replaces the bytes of an argument.
func (l *List) Fill(off int, b []byte) { copy(l.Args[off:], b) }

// Patch replaces an address.
func (l *List) Patch(off int, at uintptr) { binary.LittleEndian.PutUint64(l.Args[off:], uint64(at)) }

func (l *List) pad(to int) {
	for len(l.Args)%to != 0 {
		l.Args = append(l.Args, 0)
	}
}

func (l *List) added() {
	last := &l.Launches[len(l.Launches)-1]
	last.Len = len(l.Args) - last.Off
}
