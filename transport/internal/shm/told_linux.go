package shm

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/wire"
)

// telling is what the peer knows of a segment.
type telling struct {
	number uint32
	loans  int    // that lie there
	forget func() // it need not be told that the segment is retired
}

// tellLocked makes a buffer's segment known to the peer, counts a loan there and gives its number.
func (h *channel) tellLocked(b *device.Buffer) (uint32, error) {
	s, _ := b.Segment()
	k := h.told[s]
	if k == nil {
		if len(h.told) >= maxSegments && !h.retireOneLocked() {
			return 0, fmt.Errorf("transport: %d pieces of memory are lent to the peer, more than the %s lane allows", maxSegments, wire.LaneLocal)
		}
		f, err := b.Show(h.copies)
		if err != nil {
			return 0, err
		}
		h.segments++
		k = &telling{number: h.segments, forget: s.AfterRetire(func() { h.retire(s) })}
		h.told[s] = k
		h.enterLocked(ledgerEntry{kind: ledgerSegment, number: k.number, value: uint64(s.Bytes()), file: f})
	}
	k.loans++
	return k.number, nil
}

// untellLocked counts loans that have ended.
func (h *channel) untellLocked(all []lending) {
	for _, l := range all {
		s, _ := l.buf.Segment()
		if k := h.told[s]; k != nil { // or else the link is gone
			k.loans--
		}
	}
}

// retire tells the peer that a segment is no more: until it has unmapped that, the memory is not
// free.
func (h *channel) retire(s *device.Segment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.told[s]; k != nil {
		h.retireLocked(s, k)
	}
}

// retireOneLocked makes room for another segment: the peer forgets one in which nothing is lent.
func (h *channel) retireOneLocked() bool {
	for s, k := range h.told {
		if k.loans == 0 {
			k.forget()
			h.retireLocked(s, k)
			return true
		}
	}
	return false
}

func (h *channel) retireLocked(s *device.Segment, k *telling) {
	delete(h.told, s)
	h.enterLocked(ledgerEntry{kind: ledgerRetire, number: k.number})
}
