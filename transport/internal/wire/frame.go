package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/weft-project/weft/device"
)

// A frame is one message on a stream; all numbers are little-endian:
//
//	fixed part   16 bytes: kind 1, flags 1, number of tensors 2, header bytes 4, bytes of all tensors 8
//	header       as many bytes as the fixed part says
//	table        per tensor 8 bytes: dtype 1, rank 1, device kind 1, zero 1, device index 4; then rank × 8: extents
//	payload      the tensors' bytes, in order, without padding; it may travel beside the frame, see package lane
//
// A tensor's length is not written: it follows from dtype and extents, and the fixed part's sum
// must agree. ALPN versions the frame, so there is no version in it.
const (
	flagEnd = 1 // Message.End

	fixedSize = 16
	entrySize = 8
	extent    = 8 // bytes of one extent

	maxDeviceIndex = 1 << 16
)

// Codec writes messages as frames and reads them back, within limits. It is safe for concurrent
// use.
type Codec struct {
	Lim     Limits
	Scratch sync.Pool // of *[]byte: what small frames are put together in
	entries sync.Pool // of *entryScratch
}

// NewCodec makes a codec. The zero Limits are the defaults.
func NewCodec(l Limits) (*Codec, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	c := &Codec{Lim: l.withDefaults()}
	c.Scratch.New = func() any { return new(make([]byte, 0, 4096)) }
	c.entries.New = func() any { return new(entryScratch) }
	return c, nil
}

// KindAlone says of which kind a frame's message is, where it has no tensors.
func KindAlone(frame []byte) (kind uint8, alone bool) {
	if len(frame) < fixedSize || binary.LittleEndian.Uint16(frame[2:]) != 0 {
		return 0, false
	}
	return frame[0], true
}

// FrameErr puts a FrameError together.
func FrameErr(part, want, found string, args ...any) *FrameError {
	return &FrameError{Part: part, Want: want, Found: fmt.Sprintf(found, args...)}
}

// checkFixed bounds what the fixed part claims, for both directions.
func (c *Codec) checkFixed(header, tensors int, payload int64) error {
	if header > c.Lim.MaxHeader {
		return FrameErr("header", fmt.Sprintf("at most %d bytes (Limits.MaxHeader)", c.Lim.MaxHeader), "%d", header)
	}
	if tensors > c.Lim.MaxTensors {
		return FrameErr("table", fmt.Sprintf("at most %d tensors (Limits.MaxTensors)", c.Lim.MaxTensors), "%d", tensors)
	}
	if payload < 0 || payload > c.Lim.MaxMessageBytes {
		return FrameErr("payload", fmt.Sprintf("at most %d bytes (Limits.MaxMessageBytes)", c.Lim.MaxMessageBytes), "%d", uint64(payload))
	}
	return nil
}

// checkTensor says how many bytes the i-th tensor has, when its entry keeps to the rules.
func (c *Codec) checkTensor(i int, t *Tensor) (int64, error) {
	part := fmt.Sprintf // the name of the part is only wanted for an error
	if t.Device.Kind > device.KindSim || t.Device.Index < 0 || t.Device.Index >= maxDeviceIndex ||
		t.Device.Kind == device.KindCPU && t.Device.Index != 0 {
		return 0, FrameErr(part("tensor %d", i), "cpu, or cuda or sim with an index below 65536", "%v (index %d)", t.Device, t.Device.Index)
	}
	if t.Dtype == device.Invalid {
		if len(t.Shape) != 0 {
			return 0, FrameErr(part("tensor %d", i), "no shape for an absent tensor", "%v", t.Shape)
		}
		return 0, nil
	}
	if !t.Dtype.Valid() {
		return 0, FrameErr(part("tensor %d", i), "a known dtype", "%v", t.Dtype)
	}
	if err := t.Shape.Check(); err != nil {
		e := FrameErr(part("tensor %d", i), "a valid shape", "%v", err)
		e.Err = err
		return 0, e
	}
	elems, size := int64(t.Shape.Elems()), int64(t.Dtype.Size())
	if elems > c.Lim.MaxTensorBytes/size {
		return 0, FrameErr(part("tensor %d", i), fmt.Sprintf("at most %d bytes (Limits.MaxTensorBytes)", c.Lim.MaxTensorBytes),
			"%.0f, for %v of %v", float64(elems)*float64(size), t.Dtype, t.Shape)
	}
	return elems * size, nil
}

// appendEntry writes a tensor's line of the table.
func appendEntry(b []byte, t *Tensor) []byte {
	b = append(b, byte(t.Dtype), byte(len(t.Shape)), byte(t.Device.Kind), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Device.Index))
	for _, d := range t.Shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	return b
}

// readEntry reads a tensor's line of the table. What it says is checked by checkTensor.
func readEntry(r io.Reader, i int, b *entryScratch) (t Tensor, err error) {
	if _, err = io.ReadFull(r, b[:entrySize]); err != nil {
		return t, CutShort(err, "table")
	}
	rank := int(b[1])
	if rank > device.MaxRank || b[3] != 0 {
		return t, FrameErr(fmt.Sprintf("tensor %d", i), fmt.Sprintf("at most %d axes and a zero byte", device.MaxRank), "%d axes and %d", rank, b[3])
	}
	t.Dtype = device.Dtype(b[0])
	t.Device = device.ID{Kind: device.Kind(b[2]), Index: int(binary.LittleEndian.Uint32(b[4:]))}
	if _, err = io.ReadFull(r, b[:rank*extent]); err != nil {
		return t, CutShort(err, "table")
	}
	if rank > 0 || t.Dtype != device.Invalid {
		t.Shape = make(device.Shape, rank)
	}
	for k := range t.Shape {
		d := binary.LittleEndian.Uint64(b[k*extent:])
		if d > math.MaxInt {
			return t, FrameErr(fmt.Sprintf("tensor %d", i), "extents below 2⁶³", "%d", d)
		}
		t.Shape[k] = int(d)
	}
	return t, nil
}

// CutShort turns the end of a stream inside a frame into a FrameError, and leaves other errors
// alone.
func CutShort(err error, part string) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &FrameError{Part: part, Want: "more bytes", Found: "the end of the stream", Err: io.ErrUnexpectedEOF}
	}
	return err
}
