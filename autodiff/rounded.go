package autodiff

import (
	"weak"

	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/device"
)

// Products of bfloat16 round a parameter before they read it. The copy that a forward makes is
// saved for its backward, and is one for all calls that wait for theirs: what they save does not
// grow with their number. It is there while one of them waits, for the value that the parameter
// had. Most other inputs are saved as they are, which costs nothing where somebody else has them,
// and are rounded once more by the backward.

// isParameter says whether a value lives on beside the calls that read it: it wants a gradient, and
// no function made it.
func (t *Tensor) isParameter() bool { return t.requiresGrad && t.edge.Node.Leaf() == t }

// runForward runs the forward on an accelerator, or whatever is not the host's memory itself. bufs
// are the values of in.
func runForward(c *compile.Function, dev device.Device, in []*Tensor, bufs, results []*device.Buffer) error {
	if len(c.Factors) == 0 {
		return c.Forward.Run(dev, bufs, results)
	}
	copies := results[len(results)-len(c.Factors):]
	if findCopies(c, in, bufs, copies) {
		err := runWithCopies(c, dev, bufs, results, copies)
		if err != nil {
			releaseAll(copies)
		}
		return err
	}
	if err := c.Forward.Run(dev, bufs, results); err != nil {
		return err
	}
	for k, i := range c.Factors {
		if a, ok := dev.(*device.Accelerator); ok {
			a.Like(copies[k], bufs[i]) // the call's other inputs are no business of who finds it
		}
		copies[k] = in[i].shareRounded(bufs[i], copies[k])
	}
	return nil
}

// findCopies finds all rounded copies, or none.
func findCopies(c *compile.Function, in []*Tensor, bufs, copies []*device.Buffer) bool {
	for k, i := range c.Factors {
		if copies[k] = in[i].rounded(bufs[i]); copies[k] == nil {
			releaseAll(copies[:k])
			clear(copies)
			return false
		}
	}
	return true
}

// runWithCopies is the forward that is given rounded copies, and makes none.
func runWithCopies(c *compile.Function, dev device.Device, bufs, results, copies []*device.Buffer) error {
	p, err := c.WithCopies()
	if err != nil {
		return err
	}
	var few [6]*device.Buffer
	given := append(few[:0], bufs...)
	for k, i := range c.Factors {
		given[i] = copies[k]
	}
	return p.Run(dev, given, results[:len(results)-len(copies)])
}

// rounded finds the copy of a parameter's value, which the caller holds, and gives a reference to
// it: nil where there is none. The value has been the same for as long as it is the parameter's and
// held, whose lock is taken to replace it.
func (t *Tensor) rounded(value *device.Buffer) *device.Buffer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roundedLocked(value)
}

func (t *Tensor) roundedLocked(value *device.Buffer) *device.Buffer {
	if t.buf != value {
		return nil
	}
	if b := t.edge.Node.rare.rounded.Value(); b != nil && b.TryRetain() {
		return b
	}
	return nil
}

// shareRounded lets others find a copy of a parameter's value, and takes over the caller's
// reference. What it gives is the copy to keep: another, where that was there first.
func (t *Tensor) shareRounded(value, made *device.Buffer) *device.Buffer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.roundedLocked(value); b != nil {
		_ = made.Release() // the caller's
		return b
	}
	if t.buf == value {
		t.edge.Node.rare.rounded = weak.Make(made)
	}
	return made
}

// forgetRounded is called before the value is replaced. The caller holds the lock.
func (t *Tensor) forgetRounded() {
	if t.edge.Node != nil && t.edge.Node.Leaf() == t {
		t.edge.Node.rare.rounded = weak.Pointer[device.Buffer]{}
	}
}
