package gpu

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// lowerRandom is lower for random numbers: a thread makes what one block of words gives.
func (b *backend) lowerRandom(i kernels.Instr, in, out []kernels.Type) (*code, error) {
	c, d, n := new(code), out[0].Dtype, out[0].Shape.Elems()
	name, each := "bernoulli", 4
	switch r, ok := i.(kernels.Random); {
	case !ok:
		name = "dropout"
	case r.Fn == kernels.Uniform:
		name = "uniform"
		if d == device.Float64 {
			each = 2
		}
	}
	f, err := b.kernel("random", typed(name, d), 0)
	if err != nil {
		return nil, err
	}
	l := c.call(f, (n+each*256-1)/(each*256), 256).out(0)
	switch i := i.(type) {
	case kernels.Random:
		l.in(0).u64(uint64(n))
		if i.Fn == kernels.Bernoulli {
			l.u64(threshold(i.P))
		}
	case kernels.Dropout:
		scale := 1 / (1 - i.P)
		if i.P == 1 { // nothing is kept, and nothing scaled
			scale = 0
		}
		l.in(0).in(1).u64(uint64(n)).u64(threshold(1-i.P)).float(d, scale)
	}
	return c, nil
}

// threshold is the number of words of which one below it has probability p.
func threshold(p float64) uint64 { return uint64(math.Round(p * (1 << 32))) }
