package shm

import "github.com/weft-project/weft/device"

// stageMost is how many bytes of memory for copies a link keeps.
const stageMost = 256 << 20

// stages are memory for copies that one peer alone is lent: nothing lies there but what it was
// lent. The channel has a reference to each.
type stages struct {
	all   []lending
	bytes int
}

// stage gives n bytes that can be lent, or more, with a reference to them. What is there is
// undefined; where the peer may not see it, all of it is given.
func (h *channel) stage(n int) (*device.Buffer, []byte, error) {
	if !h.copies {
		return shared(n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stageLocked(n)
}

func (h *channel) stageLocked(n int) (*device.Buffer, []byte, error) {
	if !h.copies {
		return shared(n)
	}
	b := h.stages.takeFree(n)
	if b == nil {
		fresh, mem, err := shared(n)
		if err != nil {
			return nil, nil, err
		}
		clear(mem)
		b = fresh
		if h.err == nil {
			h.stages.keep(b)
		}
	}
	mem, err := b.Host()
	return b, mem[:n], err
}

// takeFree takes what is free, and is not much more than n bytes.
func (s *stages) takeFree(n int) *device.Buffer {
	for _, l := range s.all {
		if k := l.buf.Len(); k >= n && k <= 2*max(n, device.SharedFrom) && l.buf.Exclusive() {
			return l.buf.Retain()
		}
	}
	return nil
}

// keep adds what is in use, if there is room for it beside what else is in use.
func (s *stages) keep(b *device.Buffer) {
	var free []lending
	kept := s.all[:0]
	for _, l := range s.all {
		if s.bytes+b.Len() > stageMost && l.buf.Exclusive() {
			s.bytes -= l.buf.Len()
			free = append(free, l)
			continue
		}
		kept = append(kept, l)
	}
	clear(s.all[len(kept):])
	s.all = kept
	giveUp(free)
	if s.bytes+b.Len() <= stageMost {
		s.all, s.bytes = append(s.all, lending{buf: b.Retain()}), s.bytes+b.Len()
	}
}

// shared allocates n bytes that can be lent, or more.
func shared(n int) (*device.Buffer, []byte, error) {
	buf, err := device.AllocShared(n)
	if err != nil {
		return nil, nil, err
	}
	mem, err := buf.Host()
	return buf, mem, err
}
