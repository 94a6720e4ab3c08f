package transport

import (
	"encoding/binary"
	"fmt"
)

// Words of lane cuda: one of these, and three numbers of 8 bytes; little-endian.
const (
	cudaOutbox = 1 + iota // outbox number a has b bytes; behind stand which accelerator it is on, 16 bytes, and its handle
	cudaReady             // outbox a is open at the receiver, or, where b is 0, cannot be
	cudaPiece             // the next piece of transfer a lies in outbox b>>48, at b's other bits, and has c bytes
	cudaBack              // the piece in outbox a at b was read
	cudaGo                // transfer a is being fetched
	cudaStop              // nobody wants what is missing of transfer a
	cudaOver              // nothing more comes of transfer a, which is not whole
)

const (
	cudaWordSize  = 25
	cudaName      = 16  // bytes of an accelerator's name
	cudaHandle    = 256 // bytes of a handle, at most
	cudaOffsets   = 1<<48 - 1
	cudaMostBoxes = 16 // accelerators of a worker that take part
)

type cudaWord struct {
	what    byte
	a, b, c uint64
	more    []byte
}

func (w cudaWord) append(b []byte) []byte {
	b = append(b, w.what)
	for _, v := range [...]uint64{w.a, w.b, w.c} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, w.more...)
}

func parseCUDAWord(b []byte) (w cudaWord, err error) {
	outbox := len(b) > 0 && b[0] == cudaOutbox
	if len(b) < cudaWordSize || b[0] < cudaOutbox || b[0] > cudaOver || !outbox && len(b) > cudaWordSize ||
		outbox && (len(b) <= cudaWordSize+cudaName || len(b) > cudaWordSize+cudaName+cudaHandle) {
		return w, frameErr("word of lane cuda", "one that is known, whole", "%.50x", b)
	}
	number := func(k int) uint64 { return binary.LittleEndian.Uint64(b[1+8*k:]) }
	return cudaWord{b[0], number(0), number(1), number(2), b[cudaWordSize:]}, nil
}

// A ticket of lane cuda: the transfer's number 8, bytes 8, whether its pieces come unasked 1, the lane of the message's other tensors 1 (0: none),
// and their ticket.
const cudaTicketSize = outerTicket

type cudaTicket struct {
	id, bytes uint64
	eager     bool
	lane      byte
	rest      []byte
}

func (t cudaTicket) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, t.id)
	b = binary.LittleEndian.AppendUint64(b, t.bytes)
	eager := byte(0)
	if t.eager {
		eager = 1
	}
	return append(append(b, eager, t.lane), t.rest...)
}

func parseCUDATicket(b []byte) (t cudaTicket, err error) {
	if len(b) < cudaTicketSize || b[16] > 1 || b[17] == 0 && len(b) > cudaTicketSize {
		return t, frameErr("ticket", fmt.Sprintf("at least %d bytes", cudaTicketSize), "%.50x", b)
	}
	return cudaTicket{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), b[16] == 1, b[17], b[cudaTicketSize:]}, nil
}
