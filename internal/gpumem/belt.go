package gpumem

import "github.com/weft-project/weft/device/cuda"

// belt hands out parts of a circle of bytes, and takes them back in the order in which it gave
// them. It does no I/O, and is used by one goroutine at a time.
type belt struct {
	size  int // a multiple of beltStep; it stays
	parts []part
	first int // of the parts, in a circle, which are out
	count int
	next  int // where the next begins, if there is room
}

// part is bytes of a belt.
type part struct {
	from, to int
	n        uint64     // of the work that uses them, in its source
	done     cuda.Event // after that; it stays with its place in the circle
}

const (
	beltStep  = 256  // parts begin at multiples
	mostParts = 1024 // that are out
)

// place is where n > 0 bytes would go.
func (b *belt) place(n int) (from int, ok bool) {
	n = (n + beltStep - 1) &^ (beltStep - 1)
	switch {
	case b.count == 0:
		return 0, n <= b.size
	case b.count == mostParts:
		return 0, false
	}
	oldest := b.oldest().from
	switch {
	case b.next <= oldest: // it has come round
		return b.next, n <= oldest-b.next
	case n <= b.size-b.next:
		return b.next, true
	}
	return 0, n <= oldest
}

// push gives n bytes, which place has found room for.
func (b *belt) push(from, n int) *part {
	if b.count == 0 {
		b.first = 0 // so that no more events are made than are of use
	}
	if b.count == len(b.parts) {
		b.grow()
	}
	p := &b.parts[(b.first+b.count)%len(b.parts)]
	b.count++
	b.next = (from + n + beltStep - 1) &^ (beltStep - 1)
	p.from, p.to, p.n = from, from+n, 0
	return p
}

// pop undoes the last push.
func (b *belt) pop() {
	b.count--
	b.next = b.parts[(b.first+b.count)%len(b.parts)].from
}

func (b *belt) grow() {
	more := make([]part, max(16, 2*len(b.parts)))
	copy(more, b.parts[b.first:])
	copy(more[len(b.parts)-b.first:], b.parts[:b.first])
	b.parts, b.first = more, 0
}

// oldest is the first of the parts that are out.
func (b *belt) oldest() *part { return &b.parts[b.first] }

// drop takes the oldest back.
func (b *belt) drop() {
	b.first = (b.first + 1) % len(b.parts)
	b.count--
}

// clear forgets all parts.
func (b *belt) clear() { b.parts, b.first, b.count, b.next = nil, 0, 0, 0 }
