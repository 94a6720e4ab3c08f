package transport

import (
	"sort"
	"time"

	"github.com/weft-project/weft/device"
)

// verdict is for how long what is under way waits, when a stripe has broken, to hear why its link ends. A link that lives on
// fails it then.
const verdict = 2 * time.Second

// span is a tensor's place among the bytes of its transfer.
type span struct {
	at  int64
	buf *device.Buffer
}

// spansOf lays out the buffers of tensors that have bytes.
func spansOf(ts []Tensor) (spans []span, bytes int64) {
	for _, t := range ts {
		if t.Buf != nil && t.Buf.Len() > 0 {
			spans = append(spans, span{bytes, t.Buf})
			bytes += int64(t.Buf.Len())
		}
	}
	return spans, bytes
}

// each calls f with the parts of buffers that n bytes from at lie in.
func each(spans []span, at int64, n int, f func(buf *device.Buffer, off, n int) error) error {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].at > at }) - 1
	for ; n > 0; i++ {
		off := int(at - spans[i].at)
		k := min(n, spans[i].buf.Len()-off)
		if err := f(spans[i].buf, off, k); err != nil {
			return err
		}
		at, n = at+int64(k), n-k
	}
	return nil
}

func releaseAll(ts []Tensor) {
	for i := range ts {
		if ts[i].Buf != nil {
			_ = ts[i].Buf.Release() // the one reference from place
			ts[i].Buf = nil
		}
	}
}

// between says whether a tensor goes from one accelerator to another, or to the same.
func between(t Tensor) bool {
	if t.Buf == nil || !hauled(&t) {
		return false
	}
	_, ok := t.Buf.Device().(*device.Accelerator)
	return ok
}

// hauled says whether a tensor goes by this lane, with a message that does: what lands on an accelerator. Both ends know.
func hauled(t *Tensor) bool {
	return t.Dtype != device.Invalid && t.Device.Kind != device.KindCPU && t.Shape.Elems() > 0
}
