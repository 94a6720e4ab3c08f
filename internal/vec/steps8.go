// Code generated from steps16.go by go test -run TestTheNarrowLoopsAreTheWideOnes -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package vec

import "simd/archsimd"

func descend8(o, p, g []float32, lr, scale, decay float32) {
	decays := isSet(decay)
	by, pull := all8(scale), all8(decay)
	if !decays {
		zip8(o, p, g, all8(lr), func(p, g, lr f32x8) f32x8 { return p.Sub(g.Mul(by).Mul(lr)) })
		return
	}
	zip8(o, p, g, all8(lr), func(p, g, lr f32x8) f32x8 { return p.Sub(g.Mul(by).Add(p.Mul(pull)).Mul(lr)) })
}

// slope8 is slope.
func slope8(g, w, scale, decay f32x8, decays bool) f32x8 {
	if decays {
		return g.Mul(scale).Add(w.Mul(decay))
	}
	return g.Mul(scale)
}

func momentum8(po, ao, p, g, a []float32, s MomentumStep[float32]) {
	ao, p, g, a = ao[:len(po)], p[:len(po)], g[:len(po)], a[:len(po)]
	lr, scale, decay, momentum, damp := all8(s.LR), all8(s.Scale), all8(s.Decay), all8(s.Momentum), all8(s.Damp)
	decays, nesterov := isSet(s.Decay), s.Nesterov
	for i := 0; i < len(po); i += width8 {
		m := first8(len(po) - i)
		w := loadFirst8(p, i, m)
		d := slope8(loadFirst8(g, i, m), w, scale, decay, decays)
		v := loadFirst8(a, i, m).Mul(momentum).Add(d.Mul(damp))
		if nesterov {
			d = d.Add(v.Mul(momentum))
		} else {
			d = v
		}
		w.Sub(d.Mul(lr)).StoreMasked(at8(po, i), m)
		v.StoreMasked(at8(ao, i), m)
	}
	archsimd.ClearAVXUpperBits()
}

func adam8(po, mo, vo, xo, p, g, m, v, x []float32, s AdamStep[float32]) {
	mo, vo, p, g, m, v = mo[:len(po)], vo[:len(po)], p[:len(po)], g[:len(po)], m[:len(po)], v[:len(po)]
	if x != nil {
		xo, x = xo[:len(po)], x[:len(po)]
	}
	scale, decay, decays := all8(s.Scale), all8(s.Decay), isSet(s.Decay)
	beta1, rest1, beta2, rest2 := all8(s.Beta1), all8(s.Rest1), all8(s.Beta2), all8(s.Rest2)
	size, correct, eps, keep := all8(s.Size), all8(s.Correct), all8(s.Eps), all8(s.Keep)
	for i := 0; i < len(po); i += width8 {
		part := first8(len(po) - i)
		w := loadFirst8(p, i, part)
		d := slope8(loadFirst8(g, i, part), w, scale, decay, decays)
		mean := loadFirst8(m, i, part).Mul(beta1).Add(d.Mul(rest1))
		square := loadFirst8(v, i, part).Mul(beta2).Add(d.Mul(rest2).Mul(d))
		mean.StoreMasked(at8(mo, i), part)
		square.StoreMasked(at8(vo, i), part)
		if x != nil {
			square = maximum8(square, loadFirst8(x, i, part))
			square.StoreMasked(at8(xo, i), part)
		}
		w.Mul(keep).Sub(mean.Mul(size).Div(square.Sqrt().Mul(correct).Add(eps))).StoreMasked(at8(po, i), part)
	}
	archsimd.ClearAVXUpperBits()
}
