package link

import (
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// A descriptor is what an end says of itself when a link is set up; all numbers are little-endian:
//
//	bytes of the rest 2, streams that the peer may have open 4, number of lanes 1,
//	per lane: code 1, is it offered 1, bytes 2, and as many bytes: the offer, or why there is none
const (
	descriptorMax = 4096
	descriptorMin = 5
	maxLanes      = 8 // also of lanes that this version does not know
)

type descriptor struct {
	streams uint32
	lanes   []laneWord
}

// laneWord is what an end says of a lane.
type laneWord struct {
	code  byte
	why   string // why it is not offered
	offer []byte // nil when it is not
}

func (d *descriptor) append(b []byte) []byte {
	at := len(b)
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, d.streams)
	b = append(b, byte(len(d.lanes)))
	for _, w := range d.lanes {
		body, offered := w.offer, byte(1)
		if body == nil {
			body, offered = []byte(wire.Truncate(w.why)), 0
		}
		b = append(b, w.code, offered)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
		b = append(b, body...)
	}
	binary.LittleEndian.PutUint16(b[at:], uint16(len(b)-at-2))
	return b
}

// readDescriptor reads what the peer says, which may be anything.
func readDescriptor(r io.Reader) (descriptor, error) {
	var n [2]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return descriptor{}, err
	}
	size := binary.LittleEndian.Uint16(n[:])
	if size < descriptorMin || size > descriptorMax {
		return descriptor{}, wire.FrameErr("descriptor", fmt.Sprintf("%d to %d bytes", descriptorMin, descriptorMax), "%d", size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return descriptor{}, err
	}
	return parseDescriptor(b)
}

// parseDescriptor reads a descriptor without its length.
func parseDescriptor(b []byte) (descriptor, error) {
	if len(b) < descriptorMin || b[4] > maxLanes {
		return descriptor{}, wire.FrameErr("descriptor", fmt.Sprintf("at most %d lanes", maxLanes), "%d bytes", len(b))
	}
	d := descriptor{streams: binary.LittleEndian.Uint32(b)}
	lanes := int(b[4])
	b = b[descriptorMin:]
	for i := range lanes {
		if len(b) < 4 || b[1] > 1 {
			return d, wire.FrameErr("descriptor", fmt.Sprintf("lane %d", i), "%x", b[:min(len(b), 4)])
		}
		w, offered, n := laneWord{code: b[0]}, b[1] == 1, int(binary.LittleEndian.Uint16(b[2:]))
		b = b[4:]
		if most := map[bool]int{true: lane.MaxOffer, false: wire.MaxReason}[offered]; n > most || n > len(b) {
			return d, wire.FrameErr("descriptor", fmt.Sprintf("at most %d bytes of lane %d", min(most, len(b)), i), "%d", n)
		}
		if offered {
			w.offer = b[:n:n]
		} else if w.why = string(b[:n]); !utf8.ValidString(w.why) {
			return d, wire.FrameErr("descriptor", "words", "%q", w.why)
		}
		d.lanes = append(d.lanes, w)
		b = b[n:]
	}
	if len(b) > 0 || d.streams == 0 {
		return d, wire.FrameErr("descriptor", "its end, and at least one stream", "%d more bytes, and %d streams", len(b), d.streams)
	}
	return d, nil
}

// of finds what is said of a lane.
func (d *descriptor) of(name string) laneWord {
	for _, w := range d.lanes {
		if w.code == wire.LaneCode(name) {
			return w
		}
	}
	return laneWord{why: "it does not know this lane"}
}
