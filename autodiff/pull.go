package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/nvtx"
)

// onMemory runs a program on the memory of buffers, to which the caller holds references: its
// inputs, and what it makes.
func onMemory(h *program.Host, in, made []*device.Buffer) error {
	var few [8][]byte
	mem := few[:0]
	for _, bufs := range [2][]*device.Buffer{in, made} {
		for _, b := range bufs {
			m, err := b.Host()
			if err != nil {
				return err
			}
			mem = append(mem, m)
		}
	}
	return h.Run(mem)
}

// save keeps a value for the backward; it takes over the reference. Only the node's maker may use
// it.
func (n *Node) save(b *device.Buffer) {
	if n.rare != nil && n.rare.saved != nil {
		n.rare.saved = append(n.rare.saved, b)
		return
	}
	n.saved[n.saves] = b
	n.saves++
}

// keeps are the saved values. The caller holds the lock.
func (n *Node) keeps() []*device.Buffer {
	if n.rare != nil && n.rare.saved != nil {
		return n.rare.saved
	}
	return n.saved[:n.saves]
}

// forget takes the saved values out. The caller holds the lock.
func (n *Node) forget() {
	n.gone, n.saves = true, 0
	clear(n.saved[:])
	if n.rare != nil {
		n.rare.saved = nil
	}
}

// free drops the saved values.
func (n *Node) free() {
	var few [fewSaved]*device.Buffer
	n.mu.Lock()
	saved := append(few[:0], n.keeps()...)
	n.forget()
	n.mu.Unlock()
	releaseAll(saved)
}

// hold appends references to the saved values to held, so that a run cannot lose them. Where they
// are not retained the node has none any more.
func (n *Node) hold(held []*device.Buffer, retain bool) ([]*device.Buffer, error) {
	n.mu.Lock()
	if n.gone {
		n.mu.Unlock()
		return held, fmt.Errorf("%s: %w", n.fn.Name, ErrGraphFreed)
	}
	held = append(held, n.keeps()...)
	if retain {
		for _, b := range held {
			if b != nil {
				b.Retain()
			}
		}
	} else {
		n.forget()
	}
	n.mu.Unlock()
	return held, n.recall(held)
}

// backward computes the gradients of a call's inputs into out. Where it may consume gys, it uses
// them up: what it has used is nil.
func (n *Node) backward(gys []*Tensor, retain, consume bool, out []*Tensor) error {
	mask, dev := uint64(0), device.Device(nil)
	for i, g := range gys {
		if g != nil {
			mask, dev = mask|1<<i, g.dev
		}
	}
	if mask == 0 {
		if !retain {
			n.free()
		}
		return nil
	}
	err := n.pullBack(mask, dev, gys, retain, consume, out)
	if err != nil {
		withBatch(n.fn, dev, err)
	}
	return err
}

// pullBack is backward for the gradients in mask, of which there are some.
func (n *Node) pullBack(mask uint64, dev device.Device, gys []*Tensor, retain, consume bool, out []*Tensor) error {
	if nvtx.On() {
		defer nvtx.Begin(n.fn.Name + " backward" + n.Site().CalledAt()).End()
	}
	p, err := n.fn.Backward(mask)
	if err != nil {
		return err
	}
	var few [8]*device.Buffer
	in, err := n.hold(few[:0], retain)
	defer func() { releaseAll(in) }()
	if err != nil {
		return err
	}
	r := pullRun{Pulling: p, gys: gys, saved: len(in), consume: consume}
	if in, err = r.acquire(in); err != nil {
		return err
	}
	if p.Host != nil && dev == onHost {
		return r.onHost(in, out)
	}
	var some [6]*device.Buffer
	bufs := slices.Grow(some[:0], len(p.To))[:len(p.To)]
	own := 0 // that the run gives back as it goes
	if !retain {
		own = r.saved
		for own < len(in) && r.mine&(1<<own) != 0 {
			own++
		}
	}
	if err := p.Program.Spend(dev, in, bufs, own); err != nil {
		return err
	}
	for i, to := range p.To {
		out[to] = r.gradient(i, nil, dev, bufs[i])
	}
	return nil
}

// pullRun is one backward of a call.
type pullRun struct {
	*compile.Pulling
	gys     []*Tensor // nil where there is none, or it was used up
	saved   int       // of the inputs; the others are gys'
	consume bool
	mine    uint64 // inputs that were gys' alone
}

// acquire appends the gradients' values to the inputs. What may be consumed is taken out of its
// tensor, which is left for a result.
func (r *pullRun) acquire(in []*device.Buffer) ([]*device.Buffer, error) {
	for _, g := range r.gys {
		if g == nil {
			continue
		}
		if r.consume && !g.sparse && g.buf != nil && len(in) < 64 {
			r.mine |= 1 << len(in)
			in, g.buf = append(in, g.buf), nil
			continue
		}
		b, err := g.acquire()
		if err != nil {
			return in, err
		}
		in = append(in, b)
	}
	return in, nil
}

// onHost runs the program on the host's memory. Where a value of gys is nobody else's it is
// overwritten, or becomes a result.
func (r *pullRun) onHost(in []*device.Buffer, out []*Tensor) (err error) {
	var some [6]*device.Buffer
	var few [6]*Tensor
	h, made, shells := r.Host, some[:0], few[:0]
	for m, n := range h.Made {
		var b *device.Buffer
		var t *Tensor
		if k := h.Over[m]; k >= 0 && r.mine&(1<<k) != 0 && in[k].Exclusive() {
			b = in[k].Retain()
		} else if n <= device.SmallBytes {
			s := &smallResult{}
			b, t = s.Init(n, false), &s.t
		}
		if b == nil {
			if b, err = onHost.Alloc(n); err != nil {
				releaseAll(made)
				return err
			}
		}
		made, shells = append(made, b), append(shells, t)
	}
	if err := onMemory(h, in, made); err != nil {
		releaseAll(made)
		return err
	}
	for i, to := range r.To {
		switch m := h.Results[i] - len(in); {
		case m < 0:
			out[to] = r.gradient(i, nil, onHost, in[h.Results[i]].Retain())
		case slices.Contains(h.Results[:i], len(in)+m):
			out[to] = r.gradient(i, nil, onHost, made[m].Retain())
		default:
			out[to] = r.gradient(i, shells[m], onHost, made[m])
		}
	}
	return nil
}

// gradient is result i as a transient: in t, or in the tensor of a gradient that was used up, or in
// a new one.
func (r *pullRun) gradient(i int, t *Tensor, dev device.Device, b *device.Buffer) *Tensor {
	for k := 0; t == nil && r.consume && k < len(r.gys); k++ {
		if g := r.gys[k]; g != nil && !g.sparse && g.buf == nil {
			t, r.gys[k] = g, nil
		}
	}
	if t == nil {
		t = &Tensor{}
	}
	t.typ, t.dev, t.buf = &r.Program.Types()[i], dev, b
	return t
}

// PullWith computes the gradients of the node's inputs, nil for none, from those of its results
// (nil: none). The caller keeps gys and must Release what it gets. Hooks on the results run first,
// and may replace what gys holds. The error is a [NodeError], a [HookError] or an [AnomalyError].
func (n *Node) PullWith(gys []*Tensor, how Pull) ([]*Tensor, error) {
	if err := n.RunHooks(gys); err != nil {
		return nil, err
	}
	outs, err := n.run(gys, how)
	if err != nil {
		return nil, &NodeError{Node: n, Err: err}
	}
	if how.Anomaly {
		if err := n.inspect(gys, outs); err != nil {
			freeAll(outs)
			return nil, err
		}
	}
	return outs, nil
}

// pullInto is PullWith into outs, one for each input and nil so far. It may use gys up: what it has
// used is nil then.
func (n *Node) pullInto(gys []*Tensor, how Pull, outs []*Tensor) error {
	if n.fn == nil || n.rare != nil && n.rare.gather != nil || how.Anomaly {
		found, err := n.PullWith(gys, how)
		copy(outs, found)
		return err
	}
	if err := n.RunHooks(gys); err != nil {
		return err
	}
	if err := n.backward(gys, how.Retain, true, outs); err != nil {
		return &NodeError{Node: n, Err: err}
	}
	return nil
}
