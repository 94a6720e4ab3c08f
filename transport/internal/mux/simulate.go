package mux

import "encoding/binary"

// Chunk is one chunk with its body, as networks that are simulated see it.
type Chunk []byte

// CutChunk takes the first chunk off what was written to a conduit; nil where it is not whole yet.
func CutChunk(b []byte) (c Chunk, rest []byte) {
	if len(b) < chunkSize {
		return nil, b
	}
	n := chunkSize + int(binary.LittleEndian.Uint32(b[4:]))
	if len(b) < n {
		return nil, b
	}
	return b[:n:n], b[n:]
}

// Stream says which stream it is of, if it is of one: its number among those that one end opened,
// and whether that is the dialler.
func (c Chunk) Stream() (number uint64, dialler, ok bool) {
	n := binary.LittleEndian.Uint64(c[8:])
	return n >> 1, n&1 == 1, c[0] <= chunkCredit
}

// Renumber gives the chunk another stream.
func (c Chunk) Renumber(number uint64, dialler bool) {
	number <<= 1
	if dialler {
		number |= 1
	}
	binary.LittleEndian.PutUint64(c[8:], number)
}

// Opens says whether it may be the first of its stream.
func (c Chunk) Opens() bool { return c[0] == chunkMessage || c[0] == chunkEnd }

// Ends says whether it is the last of its stream but for a reset.
func (c Chunk) Ends() bool { return c[0] == chunkEnd || c[0] == chunkReset }

// Credit says whether it allows the other end to send more.
func (c Chunk) Credit() bool { return c[0] == chunkCredit }

// Part gives the part of a message that it is, and whether that is the last. Where it is none, the
// part is empty.
func (c Chunk) Part() (part []byte, last bool) {
	if c[0] != chunkMessage {
		return nil, false
	}
	return c[chunkSize:], c[1]&flagMore == 0
}
