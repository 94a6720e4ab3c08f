package autodiff

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/nvtx"
)

// What a call makes lies in one piece of memory where it can: the result, what the tape knows of it
// and, where it is small, its value. So the value's buffer keeps the tensor and its history alive;
// who keeps a value for long asks [Tensor.detached] for it. The sizes are such that [device.Small]
// is aligned, which a test holds them to.
type (
	smallResult struct {
		device.Small
		t Tensor
	}
	smallCall struct {
		device.Small
		t Tensor
		n Node
	}
	largeCall struct {
		t Tensor
		n Node
	}
	lone struct {
		device.Small
		_ [32]byte
	}
)

func (r *smallCall) free() { r.t.free(); r.n.free() }
func (r *largeCall) free() { r.t.free(); r.n.free() }

func (r *smallCall) recorded() *Node { return &r.n }
func (r *largeCall) recorded() *Node { return &r.n }
func (n *Node) recorded() *Node      { return n }

// piece is the memory of a call: where its first result and its node are to be.
type piece struct {
	value *device.Small // nil where the result has a buffer of its own
	t     *Tensor
	n     *Node // nil where nothing is recorded
	whole freer // what an arena is to own
}

// pieceFor makes the memory of a call whose first result has that many bytes of its own.
func pieceFor(c *compile.Function, bytes int) piece {
	switch small := uint(bytes) <= device.SmallBytes; {
	case small && c.Grads:
		r := &smallCall{}
		return piece{&r.Small, &r.t, &r.n, r}
	case c.Grads:
		r := &largeCall{}
		return piece{nil, &r.t, &r.n, r}
	case small:
		r := &smallResult{}
		return piece{&r.Small, &r.t, nil, &r.t}
	}
	t := &Tensor{}
	return piece{nil, t, nil, t}
}

// call runs the function and records it on the tape where an input requires a gradient. It fills
// outs.
func call(c *compile.Function, dev device.Device, owner *Arena, in, outs []*Tensor) error {
	var few, some [6]*device.Buffer
	bufs, err := owner.hold(few[:0], in)
	defer func() { releaseAll(bufs) }()
	if err != nil {
		return err
	}
	if nvtx.On() {
		defer nvtx.Begin(c.Name + c.Sites.Here().CalledAt()).End()
	}
	began := owner.now()
	results, p := slices.Grow(some[:0], len(c.Forward.Types()))[:len(c.Forward.Types())], piece{}
	if c.Host != nil && dev == onHost {
		p = pieceFor(c, c.Own)
		err = runOnHost(c, p.value, owner == nil, bufs, results)
	} else {
		p = pieceFor(c, -1)
		err = runForward(c, dev, in, bufs, results)
	}
	if err != nil {
		withBatch(c, dev, err)
		return err
	}
	if p.n != nil {
		record(p.n, c, owner, in, bufs, results[c.NumResults():], since(began))
	}
	for i := range outs {
		t := p.t
		if i > 0 {
			t = &Tensor{}
		}
		t.typ, t.dev, t.owner, t.buf = &c.Forward.Types()[i], dev, owner, results[i]
		if j := slices.Index(bufs, t.buf); j >= 0 {
			t.bound = in[j].bound
		} else {
			t.bound = i == 0 && p.value != nil && p.n != nil
		}
		if c.Grads && c.Tracked[i] {
			t.requiresGrad, t.edge = true, Edge{p.n, i}
		}
		outs[i] = t
	}
	return owner.adoptResults(p.whole, outs)
}

// onHost is what most calls are for.
var onHost device.Device = device.Host()

// hold appends references to the values of the inputs to bufs. The caller releases them, also after
// an error.
func (a *Arena) hold(bufs []*device.Buffer, in []*Tensor) ([]*device.Buffer, error) {
	for i, t := range in {
		if j := slices.Index(in[:i], t); j >= 0 { // one value, also where an update comes between
			bufs = append(bufs, bufs[j].Retain())
			continue
		}
		b, err := a.acquire(t)
		if err != nil {
			return bufs, fmt.Errorf("operand %d: %w", i, err)
		}
		bufs = append(bufs, b)
	}
	return bufs, nil
}

// adoptResults makes the results of a call the arena's, or nobody's. Where that fails they are
// freed.
func (a *Arena) adoptResults(whole freer, outs []*Tensor) error {
	if a == nil {
		for _, t := range outs {
			t.buf.Disown()
		}
		return nil
	}
	err := a.adopt(whole, outs[0].typ.Bytes())
	for _, t := range outs[1:] {
		if err == nil {
			err = a.adopt(t, t.typ.Bytes())
		}
	}
	if err != nil {
		whole.free()
		freeAll(outs)
	}
	return err
}

// runOnHost runs the function on the host's memory. value is the place for the first result, where
// that is small; nil for none.
func runOnHost(c *compile.Function, value *device.Small, nobodys bool, bufs, results []*device.Buffer) (err error) {
	var some [6]*device.Buffer
	made := some[:0]
	for m, n := range c.Host.Made {
		var b *device.Buffer
		if value != nil && c.Host.Results[0] == len(bufs)+m {
			b = value.Init(n, nobodys)
		}
		if b == nil {
			if b, err = hostBuffer(n, nobodys); err != nil {
				releaseAll(made)
				return err
			}
		}
		made = append(made, b)
	}
	if err := onMemory(c.Host, bufs, made); err != nil {
		releaseAll(made)
		return err
	}
	for k, at := range c.Host.Results {
		switch {
		case at < len(bufs):
			results[k] = bufs[at].Retain()
		case slices.Contains(c.Host.Results[:k], at):
			results[k] = made[at-len(bufs)].Retain()
		default:
			results[k] = made[at-len(bufs)]
		}
	}
	return nil
}

// hostBuffer allocates on the host, for nobody or for the caller.
func hostBuffer(n int, nobodys bool) (*device.Buffer, error) {
	if n <= device.SmallBytes {
		if b := new(lone).Init(n, nobodys); b != nil {
			return b, nil
		}
	}
	b, err := onHost.Alloc(n)
	if err == nil && nobodys {
		b.Disown()
	}
	return b, err
}

// record fills the node of a call.
func record(n *Node, c *compile.Function, owner *Arena, in []*Tensor, bufs, kept []*device.Buffer, took time.Duration) {
	n.fn, n.of, n.at = c, owner, c.Sites.Here()
	if took > 0 {
		n.extra().took = took
	}
	if len(in) > fewInputs {
		n.extra().next = EdgesOf(in...)
	} else {
		n.inputs = uint8(len(in))
		for i, t := range in {
			n.edges[i] = t.edge
		}
	}
	if len(c.Reads)+len(kept) > fewSaved {
		n.extra().saved = make([]*device.Buffer, 0, len(c.Reads)+len(kept))
	}
	for _, i := range c.Reads {
		n.saveInput(in[i], bufs[i])
	}
	for _, b := range kept {
		if owner == nil {
			b.Disown()
		}
		n.save(b)
	}
}

// releaseAll releases references that the caller holds; nil ones are skipped.
func releaseAll(bufs []*device.Buffer) {
	for _, b := range bufs {
		if b != nil {
			_ = b.Release()
		}
	}
}
