package parallel

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/losses"
)

// load is a bucket in one step. What a rank brings is given back as soon as its sum is there.
type load struct {
	*bucket
	names   []string       // of its parameters
	missing int            // gradients that have not come
	ready   chan struct{}  // closed when nothing more comes
	in, out *device.Buffer // what this rank brings, and the sums
	rows    rowSet         // that, where it is sparse
	sum     rowSet         // of all ranks' rows
	err     error          // why there are none
}

func newLoad(b *bucket, all []string) *load {
	l := &load{bucket: b, missing: len(b.Params), ready: make(chan struct{})}
	for _, i := range b.Params {
		l.names = append(l.names, all[i])
	}
	return l
}

// prepare has memory for what this rank brings, zero at first.
func (l *load) prepare() (err error) {
	if l.in != nil || l.sparse {
		return nil
	}
	l.in, _, err = host.Zeros(l.Bytes)
	return err
}

// memory is where packed gradients go.
func (l *load) memory() ([]byte, error) {
	if err := l.prepare(); err != nil {
		return nil, err
	}
	return l.in.Host()
}

// bring puts in the k-th gradient, which it takes over.
func (l *load) bring(k int, grad *autodiff.Tensor) {
	defer autodiff.Release(grad)
	l.missing--
	if err := l.keep(k, grad); err != nil && l.err == nil {
		l.err = fmt.Errorf("the gradient of %s: %w", l.names[k], err)
	}
}

func (l *load) keep(k int, grad *autodiff.Tensor) (err error) {
	if l.sparse {
		l.rows, err = rowsOf(grad)
		return err
	}
	if l.alone {
		l.in, err = grad.Acquire()
		return err
	}
	mem, err := l.memory()
	if err == nil {
		_, err = host.Read(mem[l.At[k]:], grad)
	}
	return err
}

// exchange makes the sums of what all ranks bring. All call it, whatever happened. Where one has
// nothing to bring it fails on all.
func (l *load) exchange(c context.Context, g *collective.Group) {
	var err error
	if l.err == nil {
		l.err = losses.Of(l.names, l.prepare())
	}
	switch {
	case l.sparse:
		l.sum, err = l.rows.summed(c, g, l.dtype, l.err)
	case l.err != nil:
		g.Abandon(c, l.err)
		if l.low != nil { // which is two operations
			g.Abandon(c, l.err)
		}
	case l.low != nil:
		l.out, err = l.lowRank(c, g)
	case l.narrow != nil:
		l.out, err = l.fewer(c, g)
	default:
		l.out, err = g.AllReduced(c, collective.Sum, l.dtype, l.in)
	}
	l.err = cmp.Or(l.err, losses.Of(l.names, err))
	l.giveIn()
}

// fewer has the sums made in memory of this rank's own.
func (l *load) fewer(c context.Context, g *collective.Group) (*device.Buffer, error) {
	own, err := owned(l.in)
	if err != nil {
		g.Abandon(c, err)
		return nil, err
	}
	mem, err := own.Host()
	if err == nil {
		err = l.narrow.AllReduce(c, g, device.As[float32](mem), collective.Sum)
	}
	if err != nil {
		host.Release(own)
		return nil, err
	}
	return own, nil
}

// owned is a reference to the buffer, where it is on the host and nobody else's, or a copy there.
func owned(b *device.Buffer) (*device.Buffer, error) {
	if _, err := b.Host(); err == nil && b.Exclusive() {
		return b.Retain(), nil
	}
	return host.Copy(b)
}

// total is the sum of the k-th gradient, of so many bytes: on a device, if it was packed.
func (l *load) total(k, bytes int, on device.Device) (*device.Buffer, error) {
	if l.alone {
		return l.out.Retain(), nil
	}
	return host.Part(on, l.out, l.At[k], bytes)
}

// giveIn gives back what this rank has brought.
func (l *load) giveIn() {
	host.Release(l.in, l.rows.ids, l.rows.values)
	l.in, l.rows = nil, rowSet{}
}

func (l *load) letGo() {
	l.giveIn()
	host.Release(l.out, l.sum.ids, l.sum.values)
	l.out, l.sum = nil, rowSet{}
}
