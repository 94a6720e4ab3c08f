package cudaipc

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Words of lane cuda: one of these, and three numbers of 8 bytes; little-endian.
const (
	wordOutbox = 1 + iota // outbox number a has b bytes; behind stand which accelerator it is on, 16 bytes, and its handle
	wordReady             // outbox a is open at the receiver, or, where b is 0, cannot be
	wordPiece             // the next piece of transfer a lies in outbox b>>48, at b's other bits, and has c bytes
	wordBack              // the piece in outbox a at b was read
	wordGo                // transfer a is being fetched
	wordStop              // nobody wants what is missing of transfer a
	wordOver              // nothing more comes of transfer a, which is not whole
)

const (
	wordSize   = 25
	nameSize   = 16  // bytes of an accelerator's name
	maxHandle  = 256 // bytes of a handle, at most
	offsetMask = 1<<48 - 1
	maxBoxes   = 16 // accelerators of a worker that take part
)

type word struct {
	what    byte
	a, b, c uint64
	more    []byte
}

func (w word) append(b []byte) []byte {
	b = append(b, w.what)
	for _, v := range [...]uint64{w.a, w.b, w.c} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, w.more...)
}

func parseWord(b []byte) (w word, err error) {
	outbox := len(b) > 0 && b[0] == wordOutbox
	if len(b) < wordSize || b[0] < wordOutbox || b[0] > wordOver || !outbox && len(b) > wordSize ||
		outbox && (len(b) <= wordSize+nameSize || len(b) > wordSize+nameSize+maxHandle) {
		return w, wire.FrameErr("word of lane cuda", "one that is known, whole", "%.50x", b)
	}
	number := func(k int) uint64 { return binary.LittleEndian.Uint64(b[1+8*k:]) }
	return word{b[0], number(0), number(1), number(2), b[wordSize:]}, nil
}

// A ticket of lane cuda: the transfer's number 8, bytes 8, whether its pieces come unasked 1, the
// lane of the message's other tensors 1 (0: none), and their ticket.
const ticketSize = lane.OuterTicket

type ticket struct {
	id, bytes uint64
	eager     bool
	lane      byte
	rest      []byte
}

func (t ticket) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, t.id)
	b = binary.LittleEndian.AppendUint64(b, t.bytes)
	eager := byte(0)
	if t.eager {
		eager = 1
	}
	return append(append(b, eager, t.lane), t.rest...)
}

func parseTicket(b []byte) (t ticket, err error) {
	if len(b) < ticketSize || b[16] > 1 || b[17] == 0 && len(b) > ticketSize {
		return t, wire.FrameErr("ticket", fmt.Sprintf("at least %d bytes", ticketSize), "%.50x", b)
	}
	return ticket{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), b[16] == 1, b[17], b[ticketSize:]}, nil
}
