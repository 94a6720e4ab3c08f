package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

// updateArgs are an update's operands and results; state that the rule does not keep is nil. Each index is read before it is
// written, so that results may lie over operands.
type updateArgs[T device.Float] struct {
	p, g, a, b, c  []T // parameter, gradient, state
	po, ao, bo, co []T
}

func updateBody[T device.Float](i Update) body {
	loop := updateLoop[T](i)
	return func(outs, ins [][]byte) error {
		x := updateArgs[T]{p: device.As[T](ins[0]), g: device.As[T](ins[1]), po: device.As[T](outs[0])}
		for k, s := range []struct{ in, out *[]T }{{&x.a, &x.ao}, {&x.b, &x.bo}, {&x.c, &x.co}} {
			if k+1 < len(outs) {
				*s.in, *s.out = device.As[T](ins[k+2])[:len(x.po)], device.As[T](outs[k+1])[:len(x.po)]
			}
		}
		loop(x)
		return nil
	}
}

// slope makes the gradient that a rule works with: scaled, and with weight decay added.
type slope[T device.Float] struct{ scale, decay T }

func slopeOf[T device.Float](i Update) slope[T] {
	s := slope[T]{T(i.Scale), T(i.WeightDecay)}
	if i.Scale == 0 {
		s.scale = 1
	}
	if i.Rule == AdamW {
		s.decay = 0
	}
	return s
}

// at leaves an infinite weight out where there is no decay. The conversions here and below keep a product and a sum apart on every
// processor.
func (s slope[T]) at(g, w T) T {
	d := T(s.scale * g)
	if s.decay != 0 {
		d += T(s.decay * w)
	}
	return d
}

func root[T device.Float](x T) T { return T(math.Sqrt(float64(x))) }

// updateLoop is the loop of a rule.
func updateLoop[T device.Float](i Update) func(x updateArgs[T]) {
	switch i.Rule {
	case Adam, AdamW:
		return adamLoop[T](i)
	case Adagrad:
		return adagradLoop[T](i)
	case Adadelta:
		return adadeltaLoop[T](i)
	case RMSprop:
		return rmspropLoop[T](i)
	case Rprop:
		return rpropLoop[T](i)
	case Adamax:
		return adamaxLoop[T](i)
	}
	if i.Momentum != 0 {
		return momentumLoop[T](i)
	}
	return sgdLoop[T](i)
}

func sgdLoop[T device.Float](i Update) func(x updateArgs[T]) {
	lr, s := T(i.LR), slopeOf[T](i)
	return func(x updateArgs[T]) {
		po, p, g := x.po, x.p[:len(x.po)], x.g[:len(x.po)]
		if s == (slope[T]{scale: 1}) { // by far the most common
			for k := range po {
				po[k] = p[k] - T(lr*g[k])
			}
			return
		}
		for k := range po {
			po[k] = p[k] - T(lr*s.at(g[k], p[k]))
		}
	}
}

func momentumLoop[T device.Float](i Update) func(x updateArgs[T]) {
	lr, mom, damp, s := T(i.LR), T(i.Momentum), T(1-i.Dampening), slopeOf[T](i)
	if i.Step == 1 { // torch begins with the gradient itself
		damp = 1
	}
	return func(x updateArgs[T]) {
		po, p, g, a, ao := x.po, x.p[:len(x.po)], x.g[:len(x.po)], x.a[:len(x.po)], x.ao[:len(x.po)]
		for k := range po {
			w := p[k]
			d := s.at(g[k], w)
			v := T(mom*a[k]) + T(damp*d)
			if i.Nesterov {
				d += T(mom * v)
			} else {
				d = v
			}
			po[k], ao[k] = w-T(lr*d), v
		}
	}
}

func adamLoop[T device.Float](i Update) func(x updateArgs[T]) {
	b1, b2, c1, c2, eps, s := T(i.Beta1), T(i.Beta2), T(1-i.Beta1), T(1-i.Beta2), T(i.Eps), slopeOf[T](i)
	size := T(i.LR / (1 - math.Pow(i.Beta1, float64(i.Step))))
	correct := T(1 / math.Sqrt(1-math.Pow(i.Beta2, float64(i.Step))))
	keep := T(1) // AdamW shrinks the weight, Adam adds to the gradient
	if i.Rule == AdamW {
		keep = T(1 - i.LR*i.WeightDecay)
	}
	return func(x updateArgs[T]) {
		po, p, g := x.po, x.p[:len(x.po)], x.g[:len(x.po)]
		a, b, ao, bo := x.a[:len(x.po)], x.b[:len(x.po)], x.ao[:len(x.po)], x.bo[:len(x.po)]
		for k := range po {
			w := p[k]
			d := s.at(g[k], w)
			m, v := T(b1*a[k])+T(c1*d), T(b2*b[k])+T(T(c2*d)*d)
			ao[k], bo[k] = m, v
			if i.AMSGrad {
				v = max(v, x.c[k])
				x.co[k] = v
			}
			po[k] = T(keep*w) - T(size*m)/(T(root(v)*correct)+eps)
		}
	}
}

func adagradLoop[T device.Float](i Update) func(x updateArgs[T]) {
	size, eps, s := T(i.LR/(1+float64(i.Step-1)*i.LRDecay)), T(i.Eps), slopeOf[T](i)
	return func(x updateArgs[T]) {
		po, p, g, a, ao := x.po, x.p[:len(x.po)], x.g[:len(x.po)], x.a[:len(x.po)], x.ao[:len(x.po)]
		for k := range po {
			w := p[k]
			d := s.at(g[k], w)
			sum := a[k] + T(d*d)
			po[k], ao[k] = w-T(size*d)/(root(sum)+eps), sum
		}
	}
}

func adadeltaLoop[T device.Float](i Update) func(x updateArgs[T]) {
	lr, rho, rest, eps, s := T(i.LR), T(i.Beta2), T(1-i.Beta2), T(i.Eps), slopeOf[T](i)
	return func(x updateArgs[T]) {
		po, p, g := x.po, x.p[:len(x.po)], x.g[:len(x.po)]
		a, b, ao, bo := x.a[:len(x.po)], x.b[:len(x.po)], x.ao[:len(x.po)], x.bo[:len(x.po)]
		for k := range po {
			w := p[k]
			d := s.at(g[k], w)
			square := T(rho*a[k]) + T(T(rest*d)*d)
			delta := root(b[k]+eps) / root(square+eps) * d
			po[k], ao[k], bo[k] = w-T(lr*delta), square, T(rho*b[k])+T(T(rest*delta)*delta)
		}
	}
}

func rmspropLoop[T device.Float](i Update) func(x updateArgs[T]) {
	lr, alpha, rest, eps, mom, s := T(i.LR), T(i.Beta2), T(1-i.Beta2), T(i.Eps), T(i.Momentum), slopeOf[T](i)
	return func(x updateArgs[T]) {
		buf, bufOut, mean, meanOut := x.b, x.bo, x.c, x.co
		if i.Momentum == 0 {
			mean, meanOut = x.b, x.bo
		}
		po, p, g, a, ao := x.po, x.p[:len(x.po)], x.g[:len(x.po)], x.a[:len(x.po)], x.ao[:len(x.po)]
		for k := range po {
			w := p[k]
			d := s.at(g[k], w)
			square := T(alpha*a[k]) + T(T(rest*d)*d)
			ao[k] = square
			if i.Centered {
				m := T(alpha*mean[k]) + T(rest*d)
				meanOut[k] = m
				square -= T(m * m)
			}
			d /= root(square) + eps
			if i.Momentum != 0 {
				d += T(mom * buf[k])
				bufOut[k] = d
			}
			po[k] = w - T(lr*d)
		}
	}
}

func rpropLoop[T device.Float](i Update) func(x updateArgs[T]) {
	shrink, grow, low, high, s := T(i.EtaMinus), T(i.EtaPlus), T(i.MinStep), T(i.MaxStep), slopeOf[T](i)
	return func(x updateArgs[T]) {
		po, p, g := x.po, x.p[:len(x.po)], x.g[:len(x.po)]
		a, b, ao, bo := x.a[:len(x.po)], x.b[:len(x.po)], x.ao[:len(x.po)], x.bo[:len(x.po)]
		for k := range po {
			d, size := s.at(g[k], 0), b[k] // no weight, so no decay
			switch turn := d * a[k]; {
			case turn > 0:
				size *= grow
			case turn < 0: // it went too far: a smaller step, from the next gradient on
				size *= shrink
				d = 0
			}
			size = min(max(size, low), high)
			move := T(0)
			if d > 0 {
				move = size
			} else if d < 0 {
				move = -size
			}
			po[k], ao[k], bo[k] = p[k]-move, d, size
		}
	}
}

func adamaxLoop[T device.Float](i Update) func(x updateArgs[T]) {
	b1, b2, c1, eps, s := T(i.Beta1), T(i.Beta2), T(1-i.Beta1), T(i.Eps), slopeOf[T](i)
	size := T(i.LR / (1 - math.Pow(i.Beta1, float64(i.Step))))
	return func(x updateArgs[T]) {
		po, p, g := x.po, x.p[:len(x.po)], x.g[:len(x.po)]
		a, b, ao, bo := x.a[:len(x.po)], x.b[:len(x.po)], x.ao[:len(x.po)], x.bo[:len(x.po)]
		for k := range po {
			w := p[k]
			d := s.at(g[k], w)
			m, most := T(b1*a[k])+T(c1*d), max(T(b2*b[k]), T(math.Abs(float64(d)))+eps)
			po[k], ao[k], bo[k] = w-T(size*m)/most, m, most
		}
	}
}

func sumSquaresBody(x Type) body {
	if x.Dtype == device.Float32 {
		return sumSquares[float32]
	}
	return sumSquares[float64]
}

// sumSquares adds up in four places, so that an addition need not wait for the one before.
func sumSquares[T device.Float](outs, ins [][]byte) error {
	x, in, out := device.As[T](ins[0]), device.As[float64](ins[1]), device.As[float64](outs[0])
	var s [4]float64
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s[0], s[1], s[2], s[3] = s[0]+a*a, s[1]+b*b, s[2]+c*c, s[3]+d*d
	}
	for _, v := range x {
		s[0] += float64(v) * float64(v)
	}
	out[0] = in[0] + (s[0] + s[1] + s[2] + s[3])
	return nil
}
