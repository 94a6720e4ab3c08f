package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

// Each index is read before it is written, so that results may lie over operands.

// decayed adds weight decay to a gradient; without decay an infinite weight leaves the gradient alone.
func decayed[T device.Float](g, w, wd T) T {
	if wd == 0 {
		return g
	}
	return g + wd*w
}

func sgdBody[T device.Float](i SGD) body {
	lr, mom, wd := T(i.LR), T(i.Momentum), T(i.WeightDecay)
	if i.Momentum == 0 {
		return func(outs, ins [][]byte) error {
			po, p, g := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
			p, g = p[:len(po)], g[:len(po)]
			if wd == 0 { // by far the most common; the conversion keeps the product and the difference apart on every processor
				for k := range po {
					po[k] = p[k] - T(lr*g[k])
				}
				return nil
			}
			for k := range po {
				po[k] = p[k] - T(lr*(g[k]+wd*p[k]))
			}
			return nil
		}
	}
	return func(outs, ins [][]byte) error {
		po, bo := device.As[T](outs[0]), device.As[T](outs[1])
		p, g, buf := device.As[T](ins[0]), device.As[T](ins[1]), device.As[T](ins[2])
		for k := range po {
			w := p[k]
			d := decayed(g[k], w, wd)
			b := mom*buf[k] + d
			if i.Nesterov {
				d += mom * b
			} else {
				d = b
			}
			po[k], bo[k] = w-lr*d, b
		}
		return nil
	}
}

func adamBody[T device.Float](i Adam) body {
	b1, b2, c1, c2, eps := T(i.Beta1), T(i.Beta2), T(1-i.Beta1), T(1-i.Beta2), T(i.Eps)
	size := T(i.LR / (1 - math.Pow(i.Beta1, float64(i.Step))))
	root := T(math.Sqrt(1 - math.Pow(i.Beta2, float64(i.Step))))
	keep, wd := T(1), T(i.WeightDecay) // AdamW shrinks the weight, Adam adds to the gradient
	if i.Decoupled {
		keep, wd = T(1-i.LR*i.WeightDecay), 0
	}
	return func(outs, ins [][]byte) error {
		po, mo, vo := device.As[T](outs[0]), device.As[T](outs[1]), device.As[T](outs[2])
		p, g := device.As[T](ins[0]), device.As[T](ins[1])
		m, v := device.As[T](ins[2]), device.As[T](ins[3])
		for k := range po {
			w := p[k]
			d := decayed(g[k], w, wd)
			mk, vk := b1*m[k]+c1*d, b2*v[k]+c2*d*d
			denom := T(math.Sqrt(float64(vk)))/root + eps
			po[k], mo[k], vo[k] = keep*w-size*mk/denom, mk, vk
		}
		return nil
	}
}
