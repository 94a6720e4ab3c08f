package ctx

import "github.com/weft-project/weft/autodiff"

// Mode is how a backward finds out who takes part.
type Mode uint8

// The modes.
const (
	// Smart runs exactly what the roots depend on. The messages say what they were computed from,
	// so the root knows who takes part before the first gradient leaves.
	Smart Mode = iota
	// Fast takes every send function of the pass for a part of the backward: it saves the messages
	// a few bytes. A remote result that the loss does not use keeps the backward waiting until its
	// deadline; the error matches [ErrStalled] and names it.
	Fast
)

// String is the mode's name.
func (m Mode) String() string {
	if m == Fast {
		return "fast"
	}
	return "smart"
}

// Options of a backward. The zero value is SMART mode, frees the saved values as it goes and starts
// from scalar roots with gradient 1.
type Options struct {
	Mode        Mode
	RetainGraph bool               // keep the saved values for another backward
	Anomaly     bool               // fail with an autodiff.AnomalyError, which names the forward call, where a gradient becomes NaN or infinite on any worker
	Grads       []*autodiff.Tensor // gradients of the roots, one each; nil entries mean 1 and need a scalar root
}
