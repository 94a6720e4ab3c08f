package parallel

import (
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// Wire is how gradients of float32 travel. What rounding takes from a gradient is added to that of
// the next step ([collective.Narrow]).
type Wire uint8

// The ways to travel.
const (
	Exact    Wire = iota
	BFloat16      // in half the bytes
	Int8          // in a quarter of the bytes
)

// fewer says whether elements of d travel in fewer bits.
func (w Wire) fewer(d device.Dtype) bool { return w != Exact && d == device.Float32 }

func (w Wire) narrow() *collective.Narrow { return &collective.Narrow{Int8: w == Int8} }

// narrowed keeps what rounding has taken from a parameter's gradients, whatever else they travel
// with.
func (r *Replicas) narrowed(i int) *collective.Narrow {
	if r.narrows[i] == nil {
		r.narrows[i] = r.config.Wire.narrow()
	}
	return r.narrows[i]
}

// forget drops what rounding has taken, and what low ranks have left out.
func (r *Replicas) forget() {
	for _, b := range r.buckets {
		if b.narrow != nil {
			b.narrow.Reset()
		}
	}
	for _, n := range r.narrows {
		n.Reset()
	}
	for _, f := range r.lows {
		clear(f.lost)
		clear(f.nextL)
	}
}

// settle ends a step, which went well on all ranks or on none.
func (r *Replicas) settle(well bool) {
	for _, f := range r.lows {
		f.settle(well)
	}
	if !well { // sums were made of gradients that nobody got
		r.forget()
	}
}
