package kerneltest

import (
	"math"

	"github.com/weft-project/weft/kernels"
)

// updateAll is Oracle for updates: element by element, by the formulas of torch's documentation.
func updateAll(i kernels.Update, in []Tensor) []Tensor {
	if last := len(in) - 1; i.Missed {
		missed := in[last]
		i.Missed, i.Step = false, i.Step-int(missed.V[0])
		return append(updateAll(i, in[:last]), missed)
	}
	outs := []Tensor{build(in[0].Type, func([]int) float64 { return 0 })}
	for range in[2:] {
		outs = append(outs, build(in[0].Type, func([]int) float64 { return 0 }))
	}
	for k := range in[0].V {
		state := map[string]float64{}
		for n, slot := range i.Slots() {
			state[slot.Name] = in[2+n].V[k]
		}
		outs[0].V[k] = updated(i, in[0].V[k], in[1].V[k], state)
		for n, slot := range i.Slots() {
			outs[1+n].V[k] = state[slot.Name]
		}
	}
	return outs
}

// updated is the weight after a step; the state is stepped too.
func updated(i kernels.Update, w, g float64, s map[string]float64) float64 {
	t := float64(i.Step)
	if i.Scale != 0 {
		g *= i.Scale
	}
	switch i.Rule {
	case kernels.AdamW:
		w -= i.LR * i.WeightDecay * w
	case kernels.Rprop:
	default:
		g += i.WeightDecay * w
	}
	switch i.Rule {
	case kernels.SGD:
		if i.Momentum == 0 {
			return w - i.LR*g
		}
		if i.Step == 1 {
			s["momentum_buffer"] = i.Momentum*s["momentum_buffer"] + g
		} else {
			s["momentum_buffer"] = i.Momentum*s["momentum_buffer"] + (1-i.Dampening)*g
		}
		if i.Nesterov {
			return w - i.LR*(g+i.Momentum*s["momentum_buffer"])
		}
		return w - i.LR*s["momentum_buffer"]
	case kernels.Adam, kernels.AdamW:
		s["exp_avg"] = i.Beta1*s["exp_avg"] + (1-i.Beta1)*g
		s["exp_avg_sq"] = i.Beta2*s["exp_avg_sq"] + (1-i.Beta2)*g*g
		v := s["exp_avg_sq"]
		if i.AMSGrad {
			v = math.Max(v, s["max_exp_avg_sq"])
			s["max_exp_avg_sq"] = v
		}
		if i.EpsFirst {
			return w - i.LR/(1-math.Pow(i.Beta1, t))*math.Sqrt(1-math.Pow(i.Beta2, t))*s["exp_avg"]/(math.Sqrt(v)+i.Eps)
		}
		return w - i.LR*(s["exp_avg"]/(1-math.Pow(i.Beta1, t)))/(math.Sqrt(v/(1-math.Pow(i.Beta2, t)))+i.Eps)
	case kernels.Adagrad:
		s["sum"] += g * g
		return w - i.LR/(1+(t-1)*i.LRDecay)*g/(math.Sqrt(s["sum"])+i.Eps)
	case kernels.Adadelta:
		s["square_avg"] = i.Beta2*s["square_avg"] + (1-i.Beta2)*g*g
		delta := math.Sqrt(s["acc_delta"]+i.Eps) / math.Sqrt(s["square_avg"]+i.Eps) * g
		s["acc_delta"] = i.Beta2*s["acc_delta"] + (1-i.Beta2)*delta*delta
		return w - i.LR*delta
	case kernels.RMSprop:
		s["square_avg"] = i.Beta2*s["square_avg"] + (1-i.Beta2)*g*g
		v := s["square_avg"]
		if i.Centered {
			s["grad_avg"] = i.Beta2*s["grad_avg"] + (1-i.Beta2)*g
			v -= s["grad_avg"] * s["grad_avg"]
		}
		g /= math.Sqrt(v) + i.Eps
		if i.Momentum != 0 {
			s["momentum_buffer"] = i.Momentum*s["momentum_buffer"] + g
			g = s["momentum_buffer"]
		}
		return w - i.LR*g
	case kernels.Rprop:
		return rprop(i, w, g, s)
	case kernels.Adamax:
		s["exp_avg"] = i.Beta1*s["exp_avg"] + (1-i.Beta1)*g
		s["exp_inf"] = math.Max(i.Beta2*s["exp_inf"], math.Abs(g)+i.Eps)
		return w - i.LR/(1-math.Pow(i.Beta1, t))*s["exp_avg"]/s["exp_inf"]
	}
	panic("no oracle for " + i.String())
}

func rprop(i kernels.Update, w, g float64, s map[string]float64) float64 {
	if g*s["prev"] > 0 {
		s["step_size"] *= i.EtaPlus
	}
	if g*s["prev"] < 0 {
		s["step_size"] *= i.EtaMinus
		g = 0
	}
	s["step_size"] = math.Min(math.Max(s["step_size"], i.MinStep), i.MaxStep)
	s["prev"] = g
	if g == 0 {
		return w
	}
	return w - math.Copysign(s["step_size"], g)
}
