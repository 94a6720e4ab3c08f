package cpu

import (
	"math"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// updateArgs are an update's operands and results; state that the rule does not keep is nil. Each
// index is read before it is written, so that results may lie over operands.
type updateArgs[T device.Float] struct {
	p, g, a, b, c  []T // parameter, gradient, state
	po, ao, bo, co []T
}

func updateArgsOf[T device.Float](outs, ins [][]byte) updateArgs[T] {
	x := updateArgs[T]{p: device.As[T](ins[0]), g: device.As[T](ins[1]), po: device.As[T](outs[0])}
	for k, s := range []struct{ in, out *[]T }{{&x.a, &x.ao}, {&x.b, &x.bo}, {&x.c, &x.co}} {
		if k+1 < len(outs) {
			*s.in, *s.out = device.As[T](ins[k+2])[:len(x.po)], device.As[T](outs[k+1])[:len(x.po)]
		}
	}
	return x
}

// updates are the bodies of optimizers' steps.
func updates[T vec.Float](i kernels.Instr, _, _ []kernels.Type) parallel.Body {
	switch i := i.(type) {
	case kernels.Update:
		return updateBody[T](i)
	case kernels.UpdateMany:
		return updateManyBody[T](i)
	}
	return nil
}

func updateBody[T vec.Float](i kernels.Update) parallel.Body {
	return updateManyBody[T](kernels.UpdateMany{Of: i})
}

// updateManyBody runs the rule's loop for each parameter, a large one in pieces.
func updateManyBody[T vec.Float](i kernels.UpdateMany) parallel.Body {
	loop := updateLoop[T](i.Of, i.Of.Step)
	nin, nout := i.Width()
	floats := nout
	if i.Of.Missed {
		floats--
	}
	var idle sync.Pool // of *updateWork[T]
	return func(outs, ins [][]byte) error {
		w, _ := idle.Get().(*updateWork[T])
		if w == nil {
			w = new(updateWork[T])
		}
		for ; len(ins) > 0; outs, ins = outs[nout:], ins[nin:] {
			w.loop = loop
			if floats < nout {
				missed := device.As[int64](ins[nin-1])[0]
				device.As[int64](outs[floats])[0] = missed
				if missed != 0 {
					w.loop = updateLoop[T](i.Of, i.Of.Step-int(missed))
				}
			}
			w.of = updateArgsOf[T](outs[:floats], ins)
			parallel.For(len(w.of.po), parallel.Grain, w)
		}
		w.of = updateArgs[T]{}
		idle.Put(w)
		return nil
	}
}

// updateWork is the update of one parameter.
type updateWork[T vec.Float] struct {
	loop func(updateArgs[T])
	of   updateArgs[T]
}

func (w *updateWork[T]) Piece(from, to int) {
	x := w.of
	for _, s := range [...]*[]T{&x.p, &x.g, &x.a, &x.b, &x.c, &x.po, &x.ao, &x.bo, &x.co} {
		if *s != nil {
			*s = (*s)[from:to]
		}
	}
	w.loop(x)
}

// slope makes the gradient that a rule works with: scaled, and with weight decay added.
type slope[T device.Float] struct{ scale, decay T }

func slopeOf[T device.Float](i kernels.Update) slope[T] {
	s := slope[T]{T(i.Scale), T(i.WeightDecay)}
	if i.Scale == 0 {
		s.scale = 1
	}
	if i.Rule == kernels.AdamW {
		s.decay = 0
	}
	return s
}

// at leaves an infinite weight out where there is no decay. The conversions here and below keep a
// product and a sum apart on every processor.
func (s slope[T]) at(g, w T) T {
	d := T(s.scale * g)
	if s.decay != 0 {
		d += T(s.decay * w)
	}
	return d
}

func root[T device.Float](x T) T { return T(math.Sqrt(float64(x))) }

// updateLoop is the loop of a rule in step n.
func updateLoop[T vec.Float](i kernels.Update, n int) func(x updateArgs[T]) {
	r := i.Rates(n)
	switch i.Rule {
	case kernels.Adam, kernels.AdamW:
		return adamLoop[T](i, r)
	case kernels.Adagrad:
		return adagradLoop[T](i, r)
	case kernels.Adadelta:
		return adadeltaLoop[T](i)
	case kernels.RMSprop:
		return rmspropLoop[T](i)
	case kernels.Rprop:
		return rpropLoop[T](i)
	case kernels.Adamax:
		return adamaxLoop[T](i, r)
	}
	if i.Momentum != 0 {
		return momentumLoop[T](i, r)
	}
	return sgdLoop[T](i)
}

func sgdLoop[T vec.Float](i kernels.Update) func(x updateArgs[T]) {
	lr, s, v := T(i.LR), slopeOf[T](i), vec.Best[T]()
	return func(x updateArgs[T]) { v.Descend(x.po, x.p, x.g, lr, s.scale, s.decay) }
}

func momentumLoop[T vec.Float](i kernels.Update, r kernels.Rates) func(x updateArgs[T]) {
	s, v := slopeOf[T](i), vec.Best[T]()
	step := vec.MomentumStep[T]{LR: T(r.LR), Scale: s.scale, Decay: s.decay, Momentum: T(i.Momentum), Damp: T(r.Rest), Nesterov: i.Nesterov}
	return func(x updateArgs[T]) { v.Momentum(x.po, x.ao, x.p, x.g, x.a, step) }
}

func adamLoop[T vec.Float](i kernels.Update, r kernels.Rates) func(x updateArgs[T]) {
	s, v := slopeOf[T](i), vec.Best[T]()
	step := vec.AdamStep[T]{
		Scale: s.scale, Decay: s.decay, Beta1: T(i.Beta1), Rest1: T(1 - i.Beta1), Beta2: T(i.Beta2), Rest2: T(1 - i.Beta2),
		Size: T(r.LR), Correct: T(r.Correct), Eps: T(r.Eps), Keep: 1, // AdamW shrinks the weight, Adam adds to the gradient
	}
	if i.Rule == kernels.AdamW {
		step.Keep = T(1 - i.LR*i.WeightDecay)
	}
	return func(x updateArgs[T]) { v.Adam(x.po, x.ao, x.bo, x.co, x.p, x.g, x.a, x.b, x.c, step) }
}

func adagradLoop[T device.Float](i kernels.Update, r kernels.Rates) func(x updateArgs[T]) {
	size, eps, s := T(r.LR), T(r.Eps), slopeOf[T](i)
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

func adadeltaLoop[T device.Float](i kernels.Update) func(x updateArgs[T]) {
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

func rmspropLoop[T device.Float](i kernels.Update) func(x updateArgs[T]) {
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

func rpropLoop[T device.Float](i kernels.Update) func(x updateArgs[T]) {
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

func adamaxLoop[T device.Float](i kernels.Update, r kernels.Rates) func(x updateArgs[T]) {
	b1, b2, c1, eps, size, s := T(i.Beta1), T(i.Beta2), T(1-i.Beta1), T(r.Eps), T(r.LR), slopeOf[T](i)
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

func sumSquaresBody(x kernels.Type) parallel.Body {
	if x.Dtype == device.Float32 {
		return sumSquares[float32]()
	}
	return sumSquares[float64]()
}

func sumSquares[T vec.Float]() parallel.Body {
	v := vec.Best[T]()
	return func(outs, ins [][]byte) error {
		device.As[float64](outs[0])[0] = device.As[float64](ins[1])[0] + v.SumSquares(device.As[T](ins[0]))
		return nil
	}
}
