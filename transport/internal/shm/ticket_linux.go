package shm

import (
	"encoding/binary"
	"math"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// A ticket of the local lane, of uvarints: the first loan, how many loans there are, then 0 and a
// spot for each tensor that is not empty, in order; or 1, the spot of a table of these spots, for
// which the last loan stands, and its length. A spot is a segment's number and an offset in units
// of spotUnit.
const (
	spotUnit   = 64
	spotMost   = 2 * binary.MaxVarintLen64
	loansMost  = math.MaxUint16 + 1 // a message's tensors, and the table
	tableInOne = lane.MaxTicketPart - 3*binary.MaxVarintLen64
)

type spot struct {
	segment uint32
	off     int64
}

type ticket struct {
	first uint64
	loans int
	spots []spot
	table spot // where spots are, if length is not 0
	size  int
}

func appendSpot(b []byte, s spot) []byte {
	b = binary.AppendUvarint(b, uint64(s.segment))
	return binary.AppendUvarint(b, uint64(s.off/spotUnit))
}

func appendSpots(b []byte, spots []spot) []byte {
	for _, s := range spots {
		b = appendSpot(b, s)
	}
	return b
}

func (t *ticket) append(b []byte) []byte {
	b = binary.AppendUvarint(b, t.first)
	b = binary.AppendUvarint(b, uint64(t.loans))
	if t.size == 0 {
		return appendSpots(append(b, 0), t.spots)
	}
	return binary.AppendUvarint(appendSpot(append(b, 1), t.table), uint64(t.size))
}

// uvarints takes numbers off b.
type uvarints struct {
	b   []byte
	bad bool
}

func (u *uvarints) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(u.b)
	if n <= 0 || v > most {
		u.bad, u.b = true, nil
		return 0
	}
	u.b = u.b[n:]
	return v
}

func (u *uvarints) spot() spot {
	return spot{uint32(u.uvarint(math.MaxUint32)), int64(u.uvarint(math.MaxInt64/spotUnit)) * spotUnit}
}

// parseSpots reads n spots, which must be all of b.
func parseSpots(b []byte, n int) ([]spot, error) {
	u := uvarints{b: b}
	var spots []spot
	for range n {
		if spots = append(spots, u.spot()); u.bad {
			break
		}
	}
	if u.bad || len(u.b) > 0 {
		return nil, wire.FrameErr("ticket", "a table of spots", "%d bytes for %d spots", len(b), n)
	}
	return spots, nil
}

// parseTicket reads a ticket, but not the table that it points to.
func parseTicket(b []byte) (t ticket, err error) {
	u := uvarints{b: b}
	t.first, t.loans = u.uvarint(math.MaxUint64-loansMost), int(u.uvarint(loansMost))
	switch form := u.uvarint(1); {
	case u.bad || t.loans == 0:
		u.bad = true
	case form == 0:
		t.spots, err = parseSpots(u.b, t.loans)
		return t, err
	default:
		t.table, t.size = u.spot(), int(u.uvarint(loansMost*spotMost))
	}
	if u.bad || len(u.b) > 0 || t.size == 0 {
		return t, wire.FrameErr("ticket", "loans and spots", "%x", b)
	}
	return t, nil
}
