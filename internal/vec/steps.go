package vec

import "math"

// MomentumStep is the numbers of a step of gradient descent with momentum.
type MomentumStep[T Float] struct {
	LR, Scale, Decay, Momentum, Damp T
	Nesterov                         bool
}

// AdamStep is the numbers of a step of Adam.
type AdamStep[T Float] struct {
	Scale, Decay               T // of the gradient; of the weight into the gradient
	Beta1, Rest1, Beta2, Rest2 T
	Size, Correct, Eps         T
	Keep                       T // how much of the weight itself stays
}

// slope is the gradient that a step works with. An infinite weight is left out where there is no
// decay. Conversions, here and below, keep a product and a sum apart on every processor: replicas
// on unlike machines stay equal.
func slope[T Float](g, w, scale, decay T) T {
	d := T(scale * g)
	if decay != 0 {
		d += T(decay * w)
	}
	return d
}

func plainDescend[T Float](o, p, g []T, lr, scale, decay T) {
	p, g = p[:len(o)], g[:len(o)]
	for k := range o {
		o[k] = p[k] - T(lr*slope(g[k], p[k], scale, decay))
	}
}

func plainMomentum[T Float](po, ao, p, g, a []T, s MomentumStep[T]) {
	ao, p, g, a = ao[:len(po)], p[:len(po)], g[:len(po)], a[:len(po)]
	for k, w := range p {
		d := slope(g[k], w, s.Scale, s.Decay)
		v := T(s.Momentum*a[k]) + T(s.Damp*d)
		if s.Nesterov {
			d += T(s.Momentum * v)
		} else {
			d = v
		}
		po[k], ao[k] = w-T(s.LR*d), v
	}
}

func plainAdam[T Float](po, mo, vo, xo, p, g, m, v, x []T, s AdamStep[T]) {
	mo, vo, p, g, m, v = mo[:len(po)], vo[:len(po)], p[:len(po)], g[:len(po)], m[:len(po)], v[:len(po)]
	for k, w := range p {
		d := slope(g[k], w, s.Scale, s.Decay)
		mean, square := T(s.Beta1*m[k])+T(s.Rest1*d), T(s.Beta2*v[k])+T(T(s.Rest2*d)*d)
		mo[k], vo[k] = mean, square
		if x != nil {
			square = max(square, x[k])
			xo[k] = square
		}
		po[k] = T(s.Keep*w) - T(s.Size*mean)/(T(T(math.Sqrt(float64(square)))*s.Correct)+s.Eps)
	}
}
