package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"

	"github.com/weft-project/weft/device"
)

const (
	firstHeader  = 64 << 10 // bytes set aside for a header before any has arrived
	firstTensors = 16       // lines of the table likewise
)

// Decode reads one frame. It gives io.EOF when r ends before the first byte. What the frame claims
// is held against the limits before memory is set aside for it, headers and tables grow as they
// arrive, and a tensor's buffer is asked of place when all before it has arrived. nil for place
// means host memory. On failure every buffer is released.
func (c *Codec) Decode(r io.Reader, place Place) (m *Message, err error) {
	m, _, err = c.DecodeHead(r)
	if err != nil {
		return nil, err
	}
	if err := ReadPayload(r, m.Tensors, place); err != nil {
		m.Release()
		return nil, err
	}
	return m, nil
}

// entryScratch is memory for a line of the table, or the fixed part.
type entryScratch = [device.MaxRank * extent]byte

// DecodeHead reads all of a frame but its payload, and says how long that is. The tensors have no
// buffers.
func (c *Codec) DecodeHead(r io.Reader) (m *Message, payload int64, err error) {
	b := c.entries.Get().(*entryScratch)
	defer c.entries.Put(b)
	fixed := b[:fixedSize]
	if n, err := io.ReadFull(r, fixed); err != nil {
		if n == 0 && err == io.EOF {
			return nil, 0, io.EOF
		}
		return nil, 0, CutShort(err, "fixed part")
	}
	if fixed[1]&^flagEnd != 0 {
		return nil, 0, FrameErr("fixed part", "known flags", "%#x", fixed[1])
	}
	tensors := int(binary.LittleEndian.Uint16(fixed[2:]))
	header := int(binary.LittleEndian.Uint32(fixed[4:]))
	payload = int64(binary.LittleEndian.Uint64(fixed[8:])) // a negative one is refused
	if err := c.checkFixed(header, tensors, payload); err != nil {
		return nil, 0, err
	}
	m = &Message{Kind: fixed[0], End: fixed[1]&flagEnd != 0}
	if m.Header, err = readHeader(r, header); err != nil {
		return nil, 0, err
	}
	if m.Tensors, err = c.readTable(r, tensors, payload, b); err != nil {
		return nil, 0, err
	}
	return m, payload, nil
}

// readHeader reads n bytes into a slice that grows as they come.
func readHeader(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, min(n, firstHeader))
	for len(b) < n {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(n, 2*cap(b)))
			copy(grown, b)
			b = grown
		}
		k, err := io.ReadFull(r, b[len(b):cap(b)])
		if err != nil {
			return nil, CutShort(err, "header")
		}
		b = b[:len(b)+k]
	}
	return b, nil
}

// readTable reads n lines, and compares their sum with payload.
func (c *Codec) readTable(r io.Reader, n int, payload int64, b *entryScratch) ([]Tensor, error) {
	if n == 0 && payload == 0 {
		return nil, nil
	}
	ts := make([]Tensor, 0, min(n, firstTensors))
	left := payload
	for i := range n {
		t, err := readEntry(r, i, b)
		if err != nil {
			return nil, err
		}
		size, err := c.checkTensor(i, &t)
		if err != nil {
			return nil, err
		}
		if size > left {
			return nil, FrameErr("payload", fmt.Sprintf("at least %d bytes for tensors 0 to %d", payload-left+size, i), "%d", payload)
		}
		left -= size
		ts = append(ts, t)
	}
	if left != 0 {
		return nil, FrameErr("payload", fmt.Sprintf("%d bytes, as the table says", payload-left), "%d", payload)
	}
	return ts, nil
}

// ReadPayload fills a buffer for every tensor that is not absent.
func ReadPayload(r io.Reader, ts []Tensor, place Place) error {
	for i := range ts {
		t := &ts[i]
		if t.Dtype == device.Invalid {
			continue
		}
		n := t.Shape.Elems() * t.Dtype.Size()
		buf, err := PlaceTensor(place, t.Device, n)
		if err != nil {
			return fmt.Errorf("transport: tensor %d, %v of %v for %v: %w", i, t.Dtype, t.Shape, t.Device, err)
		}
		t.Buf = buf
		if err := readBuffer(r, buf); err != nil {
			return CutShort(err, "payload")
		}
	}
	return nil
}

// PlaceTensor gives a buffer of n bytes, by place or, where that is nil, in host memory.
func PlaceTensor(place Place, id device.ID, n int) (*device.Buffer, error) {
	if place == nil {
		return device.Host().Alloc(n)
	}
	buf, err := place(id, n)
	if err != nil {
		return nil, err
	}
	if buf == nil {
		return nil, fmt.Errorf("no buffer was given: %w", device.ErrBounds)
	}
	if buf.Len() != n {
		_ = buf.Release()
		return nil, fmt.Errorf("%d bytes are needed and a buffer of %d was given: %w", n, buf.Len(), device.ErrBounds)
	}
	return buf, nil
}

// readBuffer fills buf: directly where the host sees it, piece by piece through the host elsewhere.
func readBuffer(r io.Reader, buf *device.Buffer) error {
	if host, err := buf.Host(); err == nil && !buf.ReadOnly() {
		defer runtime.KeepAlive(buf)
		_, err := io.ReadFull(r, host)
		return err
	}
	if buf.Len() == 0 {
		return nil
	}
	stage, err := device.Host().Alloc(min(buf.Len(), StageBytes))
	if err != nil {
		return err
	}
	defer stage.Release() //nolint:errcheck // the one reference from Alloc
	mem, err := stage.Host()
	if err != nil {
		return err
	}
	for off := 0; off < buf.Len(); off += len(mem) {
		mem = mem[:min(len(mem), buf.Len()-off)]
		if _, err := io.ReadFull(r, mem); err != nil {
			return err
		}
		if err := buf.Device().Upload(buf, off, mem); err != nil {
			return err
		}
	}
	return nil
}
