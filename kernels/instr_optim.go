package kernels

import "fmt"

// SGD is one step of stochastic gradient descent as PyTorch defines it, with dampening 0: (p, g) → p, and with
// momentum (p, g, buf) → (p, buf). buf starts as zeros. Results may be written over p and buf.
type SGD struct {
	LR, Momentum, WeightDecay float64
	Nesterov                  bool // needs Momentum
}

func (i SGD) String() string {
	return fmt.Sprintf("SGD(lr=%v, momentum=%v, weightDecay=%v, nesterov=%t)", i.LR, i.Momentum, i.WeightDecay, i.Nesterov)
}

// Infer takes tensors of floats of one type: two, or three with momentum.
func (i SGD) Infer(in []Type) ([]Type, error) {
	n, outs := 2, []int{0}
	if i.Momentum != 0 {
		n, outs = 3, []int{0, 2}
	}
	if i.Nesterov && i.Momentum == 0 {
		return nil, refuse(i, in, "Nesterov needs a momentum")
	}
	return inferUpdate(i, in, n, outs)
}

// Adam is one step of Adam as PyTorch defines it, or of AdamW where Decoupled: (p, g, m, v) → (p, m, v). m and v
// start as zeros. Results may be written over p, m and v.
type Adam struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64

	Decoupled bool // AdamW: decay the weights themselves, not by way of the gradient
	Step      int  // counts from 1
}

func (i Adam) String() string {
	return fmt.Sprintf("Adam(lr=%v, beta1=%v, beta2=%v, eps=%v, weightDecay=%v, decoupled=%t, step=%d)",
		i.LR, i.Beta1, i.Beta2, i.Eps, i.WeightDecay, i.Decoupled, i.Step)
}

// Infer takes four tensors of floats of one type.
func (i Adam) Infer(in []Type) ([]Type, error) {
	if i.Step < 1 {
		return nil, refuse(i, in, "steps count from 1")
	}
	return inferUpdate(i, in, 4, []int{0, 2, 3})
}

// inferUpdate checks n tensors of one type; outs are the operands that have a result like them.
func inferUpdate(i Instr, in []Type, n int, outs []int) ([]Type, error) {
	if err := expectFloats(i, in, n); err != nil {
		return nil, err
	}
	if err := sameShapes(i, in, in); err != nil {
		return nil, err
	}
	res := make([]Type, len(outs))
	for k, o := range outs {
		res[k] = in[o]
	}
	return res, nil
}
