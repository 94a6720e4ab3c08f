package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/weft-project/weft/device"
)

// How tensors are put together with what stands before them.
const (
	smallTensor = 8 << 10  // up to this size a copy is cheaper than a write of its own
	StageBytes  = 1 << 20  // pieces in which the bytes of other devices pass through the host
	KeepScratch = 64 << 10 // a larger scratch buffer is not kept
)

// Encode writes m as one frame. It checks the whole message before it writes the first byte: after
// a FrameError or a device's error from a released buffer nothing was written. Host buffers are
// written as they are; small ones join the header in one write.
func (c *Codec) Encode(w io.Writer, m *Message) error {
	payload, err := c.CheckMessage(m)
	if err != nil {
		return err
	}
	box := c.Scratch.Get().(*[]byte)
	b := AppendHead((*box)[:0], m, payload)
	defer func() {
		*box = b
		c.Keep(box)
	}()
	for i := range m.Tensors {
		if b, err = WriteTensor(w, b, m.Tensors[i].Buf); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		_, err = w.Write(b)
	}
	return err
}

// Keep takes scratch memory back.
func (c *Codec) Keep(box *[]byte) {
	if cap(*box) <= KeepScratch {
		c.Scratch.Put(box)
	}
}

// AppendHead writes all of a frame but its payload.
func AppendHead(b []byte, m *Message, payload int64) []byte {
	var flags byte
	if m.End {
		flags |= flagEnd
	}
	b = append(b, m.Kind, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Tensors)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Header)))
	b = binary.LittleEndian.AppendUint64(b, uint64(payload))
	b = append(b, m.Header...)
	for i := range m.Tensors {
		b = appendEntry(b, &m.Tensors[i])
	}
	return b
}

// AppendFrame writes a frame with its payload, from wherever the tensors are.
func AppendFrame(b []byte, m *Message, payload int64) ([]byte, error) {
	b = AppendHead(b, m, payload)
	for i := range m.Tensors {
		buf := m.Tensors[i].Buf
		if buf == nil {
			continue
		}
		at := len(b)
		b = slices.Grow(b, buf.Len())[:at+buf.Len()]
		if err := Download(b[at:], buf, 0); err != nil {
			return b[:at], err
		}
	}
	return b, nil
}

// Unreadable is why a tensor cannot be sent, whatever the lane: it was released, or what computed
// it went wrong, which is told once. So it is neither tried again nor hidden by what the peer makes
// of a message that breaks off.
type Unreadable struct{ Err error }

func (e *Unreadable) Error() string { return e.Err.Error() }

// Unwrap lets errors.Is find what lies beneath.
func (e *Unreadable) Unwrap() error { return e.Err }

// IsUnreadable says whether a tensor was.
func IsUnreadable(err error) bool {
	var e *Unreadable
	return errors.As(err, &e)
}

// Download reads a part of a tensor that is sent.
func Download(dst []byte, buf *device.Buffer, off int) error {
	if err := buf.Device().Download(dst, buf, off); err != nil {
		return &Unreadable{err}
	}
	return nil
}

// CheckMessage says how many bytes the tensors have together, when the message may be sent.
func (c *Codec) CheckMessage(m *Message) (int64, error) {
	if err := c.checkFixed(len(m.Header), len(m.Tensors), 0); err != nil {
		return 0, err
	}
	var payload int64
	for i := range m.Tensors {
		t := &m.Tensors[i]
		n, err := c.checkTensor(i, t)
		if err != nil {
			return 0, err
		}
		if err := checkBuffer(i, t, n); err != nil {
			return 0, err
		}
		payload += n // at most 65535 times half of MaxInt64/2: bounded by the check below before it can wrap
		if err := c.checkFixed(0, 0, payload); err != nil {
			return 0, err
		}
	}
	return payload, nil
}

// checkBuffer compares a tensor's buffer with the n bytes that its type asks for.
func checkBuffer(i int, t *Tensor, n int64) error {
	part := func() string { return fmt.Sprintf("tensor %d", i) }
	switch {
	case t.Buf == nil && t.Dtype == device.Invalid:
		return nil
	case t.Buf == nil:
		return FrameErr(part(), fmt.Sprintf("a buffer of %d bytes", n), "none")
	case t.Dtype == device.Invalid:
		return FrameErr(part(), "no buffer for an absent tensor", "%d bytes", t.Buf.Len())
	case int64(t.Buf.Len()) != n:
		return FrameErr(part(), fmt.Sprintf("%d bytes for %v of %v", n, t.Dtype, t.Shape), "%d", t.Buf.Len())
	}
	// A copy of nothing tells whether the buffer is still alive, on any device.
	if err := t.Buf.Device().Download(nil, t.Buf, 0); err != nil {
		return fmt.Errorf("transport: tensor %d: %w", i, err)
	}
	return nil
}

// WriteTensor writes a buffer's bytes after what waits in b, or adds them to b. It returns what
// waits then.
func WriteTensor(w io.Writer, b []byte, buf *device.Buffer) ([]byte, error) {
	if buf == nil || buf.Len() == 0 {
		return b, nil
	}
	host, err := buf.Host()
	if err != nil {
		return writeStaged(w, b, buf)
	}
	defer runtime.KeepAlive(buf)
	if len(host) <= smallTensor && len(b)+len(host) <= KeepScratch {
		return append(b, host...), nil
	}
	if len(b) > 0 {
		if _, err := w.Write(b); err != nil {
			return b, err
		}
	}
	_, err = w.Write(host)
	return b[:0], err
}

// writeStaged does the same for a buffer that the host cannot see: while a piece is written, the
// next one is fetched.
func writeStaged(w io.Writer, b []byte, buf *device.Buffer) (_ []byte, err error) {
	n := buf.Len()
	piece := min(n, StageBytes)
	stage, err := device.Host().Alloc(min(n, 2*piece))
	if err != nil {
		return b, err
	}
	defer stage.Release() //nolint:errcheck // the one reference from Alloc
	mem, err := stage.Host()
	if err != nil {
		return b, err
	}
	at := func(off int) []byte { return mem[off/piece%2*piece:][:min(piece, n-off)] }
	if err := Download(at(0), buf, 0); err != nil {
		return b, err
	}
	for off := 0; off < n; off += piece {
		next := Async(off+piece < n, func() error { return Download(at(off+piece), buf, off+piece) })
		if len(b) > 0 {
			_, err = w.Write(b)
			b = b[:0]
		}
		if err == nil {
			_, err = w.Write(at(off))
		}
		if err = errors.Join(err, next()); err != nil {
			return b, err
		}
	}
	return b, nil
}

// Async begins something, if it is to be done at all, and gives how to wait for it.
func Async(wanted bool, do func() error) func() error {
	if !wanted {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	return func() error { return <-done }
}
