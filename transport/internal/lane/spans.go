package lane

import (
	"sort"
	"time"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/wire"
)

// VerdictTimeout is for how long what is under way waits, when a stripe has broken, to hear why its
// link ends. A link that lives on fails it then.
const VerdictTimeout = 2 * time.Second

// Span is a tensor's place among the bytes of its transfer.
type Span struct {
	At  int64
	Buf *device.Buffer
}

// SpansOf lays out the buffers of tensors that have bytes.
func SpansOf(ts []wire.Tensor) (spans []Span, bytes int64) {
	for _, t := range ts {
		if t.Buf != nil && t.Buf.Len() > 0 {
			spans = append(spans, Span{bytes, t.Buf})
			bytes += int64(t.Buf.Len())
		}
	}
	return spans, bytes
}

// Each calls f with the parts of buffers that n bytes from at lie in.
func Each(spans []Span, at int64, n int, f func(buf *device.Buffer, off, n int) error) error {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].At > at }) - 1
	for ; n > 0; i++ {
		off := int(at - spans[i].At)
		k := min(n, spans[i].Buf.Len()-off)
		if err := f(spans[i].Buf, off, k); err != nil {
			return err
		}
		at, n = at+int64(k), n-k
	}
	return nil
}

// ReleaseAll drops the buffers of tensors that have any.
func ReleaseAll(ts []wire.Tensor) {
	for i := range ts {
		if ts[i].Buf != nil {
			_ = ts[i].Buf.Release() // the one reference from place
			ts[i].Buf = nil
		}
	}
}

// Between says whether a tensor goes from one accelerator to another, or to the same.
func Between(t wire.Tensor) bool {
	if t.Buf == nil || !Hauled(&t) {
		return false
	}
	_, ok := t.Buf.Device().(*device.Accelerator)
	return ok
}

// Hauled says whether a tensor goes by this lane, with a message that does: what lands on an
// accelerator. Both ends know.
func Hauled(t *wire.Tensor) bool {
	return t.Dtype != device.Invalid && t.Device.Kind != device.KindCPU && t.Shape.Elems() > 0
}
