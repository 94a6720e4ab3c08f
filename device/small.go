package device

import "unsafe"

// SmallBytes is the most that a [Small] holds.
const SmallBytes = 64

// Small is a host buffer of a few bytes together with its memory, for who puts both into one piece
// of memory with more of his. It is to stand at the beginning of a variable of its own on the heap,
// whose size is a multiple of 64, and is not to be copied.
//
// All of that piece lives as long as the buffer is reachable.
type Small struct {
	mem [SmallBytes]byte
	buf Buffer
}

// Init makes the buffer, of n bytes that are 0, with one reference, for the caller. Disowned, it is
// left to the collector at once. It gives nil where n is too much, where the memory is not aligned
// as a buffer's, and where the host has no more: then [Device.Alloc] is to be asked. It is called
// once.
func (s *Small) Init(n int, disowned bool) *Buffer {
	if uint(n) > SmallBytes || uintptr(unsafe.Pointer(&s.mem))%alignment != 0 {
		return nil
	}
	if !disowned {
		if !host.reserve(int64(n)) {
			return nil
		}
		host.live.Add(1)
	}
	b := &s.buf
	if b.at, b.n = unsafe.Pointer(&s.mem), n; disowned {
		b.left = 1 // nobody has seen it yet
	}
	return b
}
