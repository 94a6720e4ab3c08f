package device

// Sized is a [Memory] that knows how large it is.
type Sized interface {
	Memory
	// Size is how many bytes it has, of which others may use some.
	Size() int
}

// spare counts blocks that were made though others of their class are kept, so that a program need
// not wait until another's work has left those. The pool's mutex guards it.
type spare struct {
	max   int         // most bytes
	bytes int         // that there are
	class map[int]int // blocks, by class
	full  bool        // the last could not be made, and nothing was given back since
}

const (
	mostSpare  = 16      // of a class
	spareShare = 8       // of the memory's bytes one of so many parts may be spare
	spareOf    = 8 << 30 // where nobody knows how large the memory is
)

// spareFor is for a memory.
func spareFor(m Memory) spare {
	size := spareOf
	if s, ok := m.(Sized); ok {
		size = s.Size()
	}
	return spare{max: size / spareShare, class: map[int]int{}}
}

// reserve says whether another of a class may be made, which it counts.
func (s *spare) reserve(class int) bool {
	if s.full || s.class[class] == mostSpare || class > s.max-s.bytes {
		return false
	}
	s.class[class]++
	s.bytes += class
	return true
}

// failed takes back what begin has counted, as there was no memory.
func (s *spare) failed(class int) {
	s.class[class]--
	s.bytes -= class
	s.full = true
}

// gone tells that a block, of which some may be spare, is given back.
func (s *spare) gone(b *block) {
	s.full = false
	if b.spare {
		s.class[b.class]--
		s.bytes -= b.class
	}
}

// more says whether another block of a class, where what is kept does not fit, may be made, and
// whether that is a spare one.
func (p *pool) more(class int) (may, spare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free[class]) == 0 {
		return true, false
	}
	may = p.spare.reserve(class)
	return may, may
}

// lacked tells that a spare block could not be made.
func (p *pool) lacked(class int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare.failed(class)
}
