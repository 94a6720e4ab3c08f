package bulk

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weft-project/weft/transport/internal/wire"
)

// What the bulk lane says; all numbers are little-endian.
//
//	offer     1 byte: how many stripes (TLS connections) the dialler would like
//	answer    3 bytes: how many it may have, 2: the TCP port, at the host of the QUIC connection
//	preamble  49 bytes: the dialler's first on every stripe: a tag that finds the link 16, the stripe's number 1, proof 32
//	          the listener's end answers with its own proof, 32 bytes
//	ticket    16 bytes: transfer 8, bytes of all its tensors 8
//	word      17 bytes: what 1, transfer 8, a number 8
//	block     16 bytes: transfer 8, number of the block 8; then the block's bytes
//
// A transfer is its tensors' bytes, one after the other, cut into blocks of blockBytes; the last
// one is shorter.
const (
	maxStripes   = 8
	answerSize   = 3
	preambleSize = 16 + 1 + sha256.Size
	ticketSize   = 16
	wordSize     = 17
	blockHead    = 16
	blockBytes   = 256 << 10
)

// answer says where the listener's stripes begin.
type answer struct {
	stripes int
	port    uint16
}

func parseOffer(b []byte) (stripes int, err error) {
	if len(b) != 1 || b[0] == 0 {
		return 0, wire.FrameErr("offer of lane bulk", "a number of stripes", "%x", b)
	}
	return int(b[0]), nil
}

func (a answer) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint16(append(b, byte(a.stripes)), a.port)
}

// parseAnswer reads the answer to an offer of that many stripes.
func parseAnswer(b []byte, offered int) (a answer, err error) {
	if len(b) != answerSize {
		return a, wire.FrameErr("answer of lane bulk", fmt.Sprintf("%d bytes", answerSize), "%d", len(b))
	}
	a = answer{int(b[0]), binary.LittleEndian.Uint16(b[1:])}
	if a.stripes < 1 || a.stripes > offered || a.port == 0 {
		return a, wire.FrameErr("answer of lane bulk", fmt.Sprintf("1 to %d stripes and a port", offered), "%d and %d", a.stripes, a.port)
	}
	return a, nil
}

// ticket stands for a message's tensors.
type ticket struct {
	id    uint64
	bytes int64
}

func (t ticket) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, t.id), uint64(t.bytes))
}

func parseTicket(b []byte) (t ticket, err error) {
	if len(b) != ticketSize {
		return t, wire.FrameErr("ticket of lane bulk", fmt.Sprintf("%d bytes", ticketSize), "%d", len(b))
	}
	bytes := binary.LittleEndian.Uint64(b[8:])
	if bytes == 0 || bytes > math.MaxInt64/2 {
		return t, wire.FrameErr("ticket of lane bulk", "some bytes", "%d", bytes)
	}
	return ticket{binary.LittleEndian.Uint64(b), int64(bytes)}, nil
}

// blocksOf says how many blocks that many bytes are.
func blocksOf(bytes int64) uint64 { return (uint64(bytes) + blockBytes - 1) / blockBytes }

// word is what the channels of the two ends tell each other.
type word struct {
	what byte
	id   uint64
	n    uint64
}

const (
	wordGo   = 1 + iota // receiver: the buffers are there
	wordStop            // receiver: they are not, or not any more
	wordOver            // sender, after a wordGo: n blocks of it were sent, and no more will be. Not said where all were sent
)

func (w word) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(append(b, w.what), w.id), w.n)
}

func parseWord(b []byte) (w word, err error) {
	if len(b) != wordSize {
		return w, wire.FrameErr("word of lane bulk", fmt.Sprintf("%d bytes", wordSize), "%d", len(b))
	}
	w = word{b[0], binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])}
	if w.what < wordGo || w.what > wordOver || w.what != wordOver && w.n != 0 {
		return w, wire.FrameErr("word of lane bulk", "go, stop, or over with a number", "%d with %d", w.what, w.n)
	}
	return w, nil
}
