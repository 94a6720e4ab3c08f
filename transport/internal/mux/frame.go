package mux

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// What travels on a conduit: chunks of 16 bytes and a body; all numbers are little-endian:
//
//	kind 1, flags 1, lane 1, zero 1, bytes of the body 4, number 8
//
// Streams are numbered from 0 in the order in which their first chunks are sent, in the upper 63
// bits; the lowest bit is 1 where the dialler opened it. A message is one chunk, or several with
// flagMore on all but the last.
const (
	chunkMessage = 1 + iota // of the stream: a frame's bytes; with flagExternal, see below
	chunkEnd                // of the stream: CloseSend
	chunkReset              // of the stream: flagStop: nothing more will be received; flagAbort: what was sent is void; the body is a Reason, or empty
	chunkCredit             // of the stream: the body's 4 bytes say how much more may be sent
	chunkStreams            // the number is how many streams the peer may have opened in all
	chunkWord               // a channel's word, for the channel of the same lane
	chunkPing               // the peer answers with chunkPong and the same number
	chunkPong
	chunkClose // the link ends in good order; the body is the reason
	chunkKinds
)

const (
	flagMore     = 1
	flagExternal = 2 // the lane carries the tensors: before the frame, which has no payload, stand a ticket's length (2 bytes) and the ticket
	flagStop     = 4
	flagAbort    = 8
)

const (
	chunkSize = 16
	pieceMax  = 32 << 10 // bytes of a message in one chunk
	pieceCost = 64       // what a chunk counts against the window beside its bytes
	window    = 128 << 10
)

// Messages whose tensors have at most that many bytes travel in frames: both ends know this.
const (
	InlineQUIC  = 16 << 10
	InlineLocal = 32 << 10
)

// chunk is a chunk's fixed part.
type chunk struct {
	kind, flags, lane byte
	size              int
	number            uint64
}

func (h chunk) append(b []byte) []byte {
	b = append(b, h.kind, h.flags, h.lane, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
	return binary.LittleEndian.AppendUint64(b, h.number)
}

// chunkRule says what a kind may have: flags, and the least and the most bytes of its body.
func chunkRule(kind byte) (flags byte, least, most int) {
	switch kind {
	case chunkMessage:
		return flagMore | flagExternal, 1, pieceMax
	case chunkReset:
		return flagStop | flagAbort, 0, 2 + wire.MaxReset
	case chunkCredit:
		return 0, 4, 4
	case chunkWord:
		return 0, 0, lane.MaxWord
	case chunkClose:
		return 0, 0, wire.MaxReason
	}
	return 0, 0, 0
}

// parseChunk reads a chunk's fixed part and checks it.
func parseChunk(b *[chunkSize]byte) (chunk, error) {
	h := chunk{kind: b[0], flags: b[1], lane: b[2], number: binary.LittleEndian.Uint64(b[8:])}
	if h.kind == 0 || h.kind >= chunkKinds {
		return h, wire.FrameErr("chunk", "a known kind", "%d", h.kind)
	}
	flags, least, most := chunkRule(h.kind)
	if h.flags&^flags != 0 || b[3] != 0 {
		return h, wire.FrameErr("chunk", "known flags and a zero byte", "%#x and %d", h.flags, b[3])
	}
	if laned := h.kind == chunkWord || h.flags&flagExternal != 0; (h.lane != 0) != laned {
		return h, wire.FrameErr("chunk", "a lane where there is a word or a ticket, and only there", "%d", h.lane)
	}
	size := binary.LittleEndian.Uint32(b[4:])
	if size < uint32(least) || size > uint32(most) {
		return h, wire.FrameErr("chunk", fmt.Sprintf("a body of %d to %d bytes", least, most), "%d", size)
	}
	h.size = int(size)
	return h, nil
}

// appendTicket puts a ticket before the frame that follows.
func appendTicket(b, ticket []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(ticket)))
	return append(b, ticket...)
}

// cutTicket takes the ticket off the first chunk of a message with flagExternal.
func cutTicket(b []byte) (ticket, rest []byte, err error) {
	if len(b) < 2 {
		return nil, nil, wire.FrameErr("ticket", "a length of 2 bytes", "%d", len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; n > lane.MaxTicket || n > len(b) {
		return nil, nil, wire.FrameErr("ticket", fmt.Sprintf("at most %d bytes, in the first chunk", min(lane.MaxTicket, len(b))), "%d", n)
	}
	return b[:n], b[n:], nil
}

// readChunk reads a fixed part. It gives io.EOF where the conduit ends between chunks.
func readChunk(r io.Reader, b *[chunkSize]byte) (chunk, error) {
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return chunk{}, err
	}
	return parseChunk(b)
}
