package program

import (
	"slices"

	"github.com/weft-project/weft/kernels"
)

// joinedGradients has attention's gradient write its results where a Concat would put them: side by
// side, as when queries, keys and values are slices of what one linear layer has made. The parts
// are results as they are, or with heads and elements as one axis.
func (r *rewriting) joinedGradients(op kernels.Concat, parts []Value) (Value, bool) {
	if len(parts) != 3 || op.Axis != 2 {
		return 0, false
	}
	var grad Inst
	for k, v := range parts {
		if !r.alone(v) {
			return 0, false
		}
		if _, x, ok := from[kernels.Reshape](r, v); ok {
			if s := r.shape(x); len(s) != 4 || !r.shape(v).Equal(append(slices.Clone(s[:2]), s[2]*s[3])) || !r.alone(x) {
				return 0, false
			}
			v = x
		}
		m := r.made(v)
		if i, ok := m.Instr.(kernels.AttentionGrad); !ok || i.Joined || m.Out[k] != v || k > 0 && m.Out[0] != grad.Out[0] {
			return 0, false
		}
		grad = m
	}
	i := grad.Instr.(kernels.AttentionGrad)
	i.Joined = true
	v, ok := r.apply(i, grad.In...)
	if !ok {
		return 0, false
	}
	types := r.typesOf(parts)
	out, err := op.Infer(types)
	if err != nil {
		return 0, false
	}
	return r.apply(kernels.Reshape{Shape: out[0].Shape}, v)
}
