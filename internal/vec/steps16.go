//go:build goexperiment.simd && amd64

package vec

import "simd/archsimd"

func descend16(o, p, g []float32, lr, scale, decay float32) {
	decays := isSet(decay)
	by, pull := all16(scale), all16(decay)
	if !decays {
		zip16(o, p, g, all16(lr), func(p, g, lr f32x16) f32x16 { return p.Sub(g.Mul(by).Mul(lr)) })
		return
	}
	zip16(o, p, g, all16(lr), func(p, g, lr f32x16) f32x16 { return p.Sub(g.Mul(by).Add(p.Mul(pull)).Mul(lr)) })
}

// slope16 is slope.
func slope16(g, w, scale, decay f32x16, decays bool) f32x16 {
	if decays {
		return g.Mul(scale).Add(w.Mul(decay))
	}
	return g.Mul(scale)
}

func momentum16(po, ao, p, g, a []float32, s MomentumStep[float32]) {
	ao, p, g, a = ao[:len(po)], p[:len(po)], g[:len(po)], a[:len(po)]
	lr, scale, decay, momentum, damp := all16(s.LR), all16(s.Scale), all16(s.Decay), all16(s.Momentum), all16(s.Damp)
	decays, nesterov := isSet(s.Decay), s.Nesterov
	for i := 0; i < len(po); i += width16 {
		m := first16(len(po) - i)
		w := loadFirst16(p, i, m)
		d := slope16(loadFirst16(g, i, m), w, scale, decay, decays)
		v := loadFirst16(a, i, m).Mul(momentum).Add(d.Mul(damp))
		if nesterov {
			d = d.Add(v.Mul(momentum))
		} else {
			d = v
		}
		w.Sub(d.Mul(lr)).StoreMasked(at16(po, i), m)
		v.StoreMasked(at16(ao, i), m)
	}
	archsimd.ClearAVXUpperBits()
}

func adam16(po, mo, vo, xo, p, g, m, v, x []float32, s AdamStep[float32]) {
	mo, vo, p, g, m, v = mo[:len(po)], vo[:len(po)], p[:len(po)], g[:len(po)], m[:len(po)], v[:len(po)]
	if x != nil {
		xo, x = xo[:len(po)], x[:len(po)]
	}
	scale, decay, decays := all16(s.Scale), all16(s.Decay), isSet(s.Decay)
	beta1, rest1, beta2, rest2 := all16(s.Beta1), all16(s.Rest1), all16(s.Beta2), all16(s.Rest2)
	size, correct, eps, keep := all16(s.Size), all16(s.Correct), all16(s.Eps), all16(s.Keep)
	for i := 0; i < len(po); i += width16 {
		part := first16(len(po) - i)
		w := loadFirst16(p, i, part)
		d := slope16(loadFirst16(g, i, part), w, scale, decay, decays)
		mean := loadFirst16(m, i, part).Mul(beta1).Add(d.Mul(rest1))
		square := loadFirst16(v, i, part).Mul(beta2).Add(d.Mul(rest2).Mul(d))
		mean.StoreMasked(at16(mo, i), part)
		square.StoreMasked(at16(vo, i), part)
		if x != nil {
			square = maximum16(square, loadFirst16(x, i, part))
			square.StoreMasked(at16(xo, i), part)
		}
		w.Mul(keep).Sub(mean.Mul(size).Div(square.Sqrt().Mul(correct).Add(eps))).StoreMasked(at16(po, i), part)
	}
	archsimd.ClearAVXUpperBits()
}
