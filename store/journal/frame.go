package journal

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
)

const (
	magic      = "WEFTJRN\x01"
	headSize   = len(magic) + 8 + 4
	frameHead  = 12
	recordHead = 4
	maxPayload = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// appendHead appends the beginning of a file.
func appendHead(b []byte, salt uint64) []byte {
	n := len(b)
	b = binary.LittleEndian.AppendUint64(append(b, magic...), salt)
	return binary.LittleEndian.AppendUint32(b, sum(b[n:]))
}

func parseHead(b []byte) (salt uint64, ok bool) {
	if len(b) < headSize || string(b[:len(magic)]) != magic {
		return 0, false
	}
	n := headSize - 4
	return binary.LittleEndian.Uint64(b[len(magic):]), binary.LittleEndian.Uint32(b[n:]) == sum(b[:n])
}

// appendRecord appends a record to a frame, which begins with room for its head.
func appendRecord(frame, record []byte) []byte {
	if len(frame) == 0 {
		frame = append(frame, make([]byte, frameHead)...)
	}
	return append(binary.LittleEndian.AppendUint32(frame, uint32(len(record))), record...)
}

// cutRecord takes the first record off a payload.
func cutRecord(payload []byte) (record, rest []byte, ok bool) {
	if len(payload) < recordHead {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(payload))
	payload = payload[recordHead:]
	if n > uint64(len(payload)) {
		return nil, nil, false
	}
	return payload[:n:n], payload[n:], true
}

// seal fills in the head of a frame that will stand at offset at.
func seal(frame []byte, salt uint64, at int64) {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHead))
	binary.LittleEndian.PutUint32(frame[4:], sum(frame[frameHead:]))
	binary.LittleEndian.PutUint32(frame[8:], headSum(frame, salt, at))
}

func headSum(head []byte, salt uint64, at int64) uint32 {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], salt)
	binary.LittleEndian.PutUint64(b[8:], uint64(at))
	copy(b[16:], head[:8])
	return sum(b[:])
}

// parseFrameHead reads the length and the sum of the payload of the frame at offset at.
func parseFrameHead(b []byte, salt uint64, at int64) (length int64, payload uint32, ok bool) {
	length = int64(binary.LittleEndian.Uint32(b))
	ok = length > 0 && length <= maxPayload && binary.LittleEndian.Uint32(b[8:]) == headSum(b, salt, at)
	return length, binary.LittleEndian.Uint32(b[4:]), ok
}

// scan gives the payloads of the frames from offset at on, until size, and returns where they end.
// A payload is valid until each returns.
func scan(r io.ReaderAt, salt uint64, at, size int64, each func(at int64, payload []byte) error) (end int64, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(r, at, size-at), 256<<10)
	var payload []byte
	for size-at >= frameHead {
		head, err := in.Peek(frameHead)
		if err != nil {
			return at, err
		}
		length, want, ok := parseFrameHead(head, salt, at)
		if !ok || length > size-at-frameHead {
			return at, nil
		}
		if _, err := in.Discard(frameHead); err != nil {
			return at, err
		}
		payload = slices.Grow(payload[:0], int(length))[:length]
		if _, err := io.ReadFull(in, payload); err != nil {
			return at, err
		}
		if sum(payload) != want {
			return at, nil
		}
		if err := each(at, payload); err != nil {
			return at, err
		}
		at += frameHead + length
	}
	return at, nil
}

// find looks for a whole frame at any offset from at on, before size.
func find(r io.ReaderAt, salt uint64, at, size int64) (found int64, ok bool, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(r, at, size-at), 256<<10)
	for ; size-at > frameHead; at++ {
		head, err := in.Peek(frameHead)
		if err != nil {
			return 0, false, err
		}
		length, want, ok := parseFrameHead(head, salt, at)
		if ok && length <= size-at-frameHead {
			h := crc32.New(castagnoli)
			if _, err := io.Copy(h, io.NewSectionReader(r, at+frameHead, length)); err != nil {
				return 0, false, err
			}
			if h.Sum32() == want {
				return at, true, nil
			}
		}
		if _, err := in.Discard(1); err != nil {
			return 0, false, err
		}
	}
	return 0, false, nil
}
