package gpu

import (
	"fmt"

	"github.com/weft-project/weft/kernels"
)

// lowerPool makes the launch of a pooling: a thread for each element of the result.
func (b *backend) lowerPool(i kernels.Instr, in, out []kernels.Type) (*code, error) {
	name, w, within := "", kernels.Window{}, false
	x, y := in[0].Shape, out[0].Shape // the images, and what has a step for each element
	switch i := i.(type) {
	case kernels.MaxPool2d:
		name, w = "maxpool_", i.Window
	case kernels.MaxPool2dGrad:
		name, w, y = "maxpool_grad_", i.Window, in[1].Shape
	case kernels.AvgPool2d:
		name, w, within = "avgpool_", i.Window, i.Inside
	case kernels.AvgPool2dGrad:
		name, w, within, x, y = "avgpool_grad_", i.Window, i.Inside, out[0].Shape, in[0].Shape
	default:
		return nil, unknown(i)
	}
	s := slid{Window: w.Whole(), h: x[2], w: x[3], oh: y[2], ow: y[3]}
	planes, made := x[0]*x[1], out[0].Shape[2]*out[0].Shape[3]
	if max(planes, s.h*s.w, s.oh*s.ow) > mostElems {
		return nil, fmt.Errorf("%w: more than %d images, or elements of one", kernels.ErrOperands, mostElems)
	}
	f, err := b.kernel("pool", name+suffix(in[0].Dtype), 0)
	if err != nil {
		return nil, err
	}
	c := &code{}
	l := c.each(f, made, planes).out(0).in(0)
	if len(in) > 1 {
		l.in(1)
	} else {
		l.arg(arg{})
	}
	s.args(l.u32(planes).flag(within))
	return c, nil
}
