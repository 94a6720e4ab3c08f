package kernels

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/weft-project/weft/device"
)

// UpdateRule names an optimizer. It is a string because it travels and is saved.
type UpdateRule string

// The rules of [Update], each as torch.optim's of that name.
const (
	SGD      UpdateRule = "SGD"
	Adam     UpdateRule = "Adam"
	AdamW    UpdateRule = "AdamW" // Adam that decays the weights themselves, not by way of the gradient
	Adagrad  UpdateRule = "Adagrad"
	Adadelta UpdateRule = "Adadelta"
	RMSprop  UpdateRule = "RMSprop"
	Rprop    UpdateRule = "Rprop"
	Adamax   UpdateRule = "Adamax"
)

// updateRules lists the rules.
func updateRules() []UpdateRule {
	return []UpdateRule{SGD, Adam, AdamW, Adagrad, Adadelta, RMSprop, Rprop, Adamax}
}

// Update is one step of an optimizer as PyTorch defines it: (p, g, state…) → (p, state…), with a
// tensor of state for each of [Update.Slots], and with Missed a count at the end of both. Results
// may be written over p, the state and the count. A rule reads only the fields that it names here.
type Update struct {
	Rule        UpdateRule
	LR          float64
	WeightDecay float64 // all but Rprop

	Momentum  float64 // SGD, RMSprop
	Dampening float64 // SGD
	Nesterov  bool    // SGD; needs Momentum and no Dampening

	Beta1    float64 // Adam, AdamW, Adamax: decay of the mean of gradients
	Beta2    float64 // the same and RMSprop (alpha), Adadelta (rho): decay of the mean of squares, or of the maximum
	Eps      float64 // all but SGD and Rprop
	AMSGrad  bool    // Adam, AdamW
	EpsFirst bool    // Adam: Eps is added before the mean of squares is corrected, as torch's SparseAdam does
	Centered bool    // RMSprop

	LRDecay float64 // Adagrad
	Initial float64 // Adagrad: what the sum of squares begins with

	EtaMinus, EtaPlus float64 // Rprop: how step sizes shrink and grow
	MinStep, MaxStep  float64 // Rprop: their bounds; they begin with LR

	Scale float64 // the gradient is multiplied by it first; 0 means 1, a negative one climbs
	Step  int     // counts from 1

	// Missed says that the last operand, an int64, is how many of the steps before were not made,
	// which do not count. The last result is that, and one more where this one is not made: a GPU
	// knows it, and whoever asked for the step does not.
	Missed bool
}

// Rates are the numbers of a rule that depend on how many steps there were.
type Rates struct {
	LR      float64 // the rate, with the mean of gradients corrected
	Correct float64 // Adam, AdamW: what corrects the root of the mean of squares
	Eps     float64
	Rest    float64 // SGD with a momentum: what a gradient counts
}

// Rates are those of step n. Backends compute them by the same products, so that all have the same.
func (i Update) Rates(n int) Rates {
	r := Rates{i.LR, 1, i.Eps, 1 - i.Dampening}
	switch i.Rule {
	case SGD:
		if n == 1 { // torch begins with the gradient itself
			r.Rest = 1
		}
	case Adam, AdamW:
		r.LR, r.Correct = i.LR/(1-power(i.Beta1, n)), 1/math.Sqrt(1-power(i.Beta2, n))
		if i.EpsFirst {
			r.Eps *= r.Correct
		}
	case Adagrad:
		r.LR = i.LR / (1 + float64(float64(n-1)*i.LRDecay))
	case Adamax:
		r.LR = i.LR / (1 - power(i.Beta1, n))
	}
	return r
}

// power is x to the n. Its products are exact in their order, which math.Pow's are not everywhere.
func power(x float64, n int) float64 {
	p := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			p *= x
		}
		x *= x
	}
	return p
}

// Slot is a tensor of state, like the parameter: torch's name for it, and what it is filled with
// before the first step.
type Slot struct {
	Name string
	Init float64
}

// Slots lists the state that the rule keeps, in the order of the operands.
func (i Update) Slots() []Slot {
	s, n := i.slots()
	return s[:n]
}

// slots is Slots without memory of its own, as a step for each of many small parameters asks for
// it.
func (i Update) slots() (s [3]Slot, n int) {
	add := func(when bool, name string, init float64) {
		if when {
			s[n] = Slot{name, init}
			n++
		}
	}
	switch i.Rule {
	case SGD:
		add(i.Momentum != 0, "momentum_buffer", 0)
	case Adam, AdamW:
		add(true, "exp_avg", 0)
		add(true, "exp_avg_sq", 0)
		add(i.AMSGrad, "max_exp_avg_sq", 0)
	case Adagrad:
		add(true, "sum", i.Initial)
	case Adadelta:
		add(true, "square_avg", 0)
		add(true, "acc_delta", 0)
	case RMSprop:
		add(true, "square_avg", 0)
		add(i.Momentum != 0, "momentum_buffer", 0)
		add(i.Centered, "grad_avg", 0)
	case Rprop:
		add(true, "prev", 0)
		add(true, "step_size", i.LR)
	case Adamax:
		add(true, "exp_avg", 0)
		add(true, "exp_inf", 0)
	}
	return s, n
}

// coefficient is a field of Update with the numbers that it may be: low ≤ v < high.
type coefficient struct {
	name         string
	v, low, high float64
}

// coefficients lists the numbers that the rule reads, none for a rule that there is not.
func (i Update) coefficients() (c [6]coefficient, n int) {
	inf := math.Inf(1)
	add := func(name string, v, low, high float64) {
		c[n] = coefficient{name, v, low, high}
		n++
	}
	common := func(eps, decay bool) {
		add("learning rate", i.LR, 0, inf)
		if eps {
			add("eps", i.Eps, 0, inf)
		}
		if decay {
			add("weight decay", i.WeightDecay, 0, inf)
		}
	}
	switch i.Rule {
	case SGD:
		common(false, true)
		add("momentum", i.Momentum, 0, inf)
		add("dampening", i.Dampening, 0, inf)
	case Adam, AdamW, Adamax:
		common(true, true)
		add("beta1", i.Beta1, 0, 1)
		add("beta2", i.Beta2, 0, 1)
	case Adagrad:
		common(true, true)
		add("learning rate decay", i.LRDecay, 0, inf)
		add("initial accumulator", i.Initial, 0, inf)
	case Adadelta:
		common(true, true)
		add("rho", i.Beta2, 0, 1)
	case RMSprop:
		common(true, true)
		add("alpha", i.Beta2, 0, 1)
		add("momentum", i.Momentum, 0, inf)
	case Rprop:
		common(false, false)
		add("eta minus", i.EtaMinus, math.SmallestNonzeroFloat64, 1)
		add("eta plus", i.EtaPlus, 1, inf)
		add("smallest step", i.MinStep, 0, inf)
		add("largest step", i.MaxStep, i.MinStep, inf)
	}
	return c, n
}

// Check reports all settings that make no sense, at once; Step is not looked at.
func (i Update) Check() error {
	c, n := i.coefficients()
	if n == 0 {
		return fmt.Errorf("no such rule as %.40q; there are %v", string(i.Rule), updateRules())
	}
	var errs []error
	for _, x := range c[:n] {
		if !(x.v >= x.low && x.v < x.high) { // a NaN is nowhere
			errs = append(errs, fmt.Errorf("%v: %s %g; expected %g or more, and less than %g", i.Rule, x.name, x.v, x.low, x.high))
		}
	}
	if i.Rule == SGD && i.Nesterov && (i.Momentum == 0 || i.Dampening != 0) {
		errs = append(errs, errors.New("SGD: Nesterov needs a momentum and no dampening"))
	}
	if math.IsNaN(i.Scale) || math.IsInf(i.Scale, 0) {
		errs = append(errs, fmt.Errorf("%v: gradients cannot be scaled by %g", i.Rule, i.Scale))
	}
	return errors.Join(errs...)
}

// runnable is Check of all that a run needs.
func (i Update) runnable() error {
	if i.Step < 1 {
		return errors.Join(i.Check(), errors.New("steps count from 1"))
	}
	return i.Check()
}

func (i Update) String() string {
	b := strings.Builder{}
	fmt.Fprintf(&b, "%.40s(", string(i.Rule))
	c, n := i.coefficients()
	for _, x := range c[:n] {
		if x.v != 0 {
			fmt.Fprintf(&b, "%s=%v, ", x.name, x.v)
		}
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"Nesterov", i.Nesterov}, {"AMSGrad", i.AMSGrad}, {"centered", i.Centered}, {"eps first", i.EpsFirst}, {"missed", i.Missed}} {
		if f.on {
			b.WriteString(f.name + ", ")
		}
	}
	if i.Scale != 0 && i.Scale != 1 {
		fmt.Fprintf(&b, "scale=%v, ", i.Scale)
	}
	if i.Step != 0 {
		fmt.Fprintf(&b, "step=%d, ", i.Step)
	}
	return strings.TrimSuffix(b.String(), ", ") + ")"
}

// Width is how many operands and results there are.
func (i Update) Width() (ins, outs int) {
	_, n := i.slots()
	if i.Missed {
		n++
	}
	return 2 + n, 1 + n
}

// counted cuts off the count, if there is one.
func (i Update) counted(self Instr, in, all []Type) (rest []Type, err error) {
	if !i.Missed {
		return in, nil
	}
	last := len(in) - 1
	if count := (Type{Dtype: device.Int64}); last < 0 || !in[last].Equal(count) {
		return nil, refuse(self, all, "the count of steps that were missed must be %v", count)
	}
	return in[:last], nil
}

// Infer takes tensors of floats of one type: the parameter, the gradient, and the state.
func (i Update) Infer(in []Type) ([]Type, error) {
	var self Instr = i
	if err := i.runnable(); err != nil {
		return nil, refuse(self, in, "%v", err)
	}
	floats, err := i.counted(self, in, in)
	if err != nil {
		return nil, err
	}
	_, n := i.slots()
	if err := expectFloats(self, floats, 2+n); err != nil {
		return nil, err
	}
	if err := sameShapes(self, in, floats); err != nil {
		return nil, err
	}
	out := make([]Type, len(in)-1)
	out[0] = in[0]
	copy(out[1:], in[2:])
	return out, nil
}

// A handful for each number that is kept.
func (i Update) flops(in, out []Type) int { return 4 * len(out) * elems(in, 0) }

func (i Update) overwrites(in, out []Type, result, operand int) bool {
	return operand == Replaced(result) && in[operand].Equal(out[result])
}

// SumSquares adds the squares of all elements to a float64: (x, sum) → sum. Squares and sums are
// float64 whatever x is. The result may be written over the sum.
type SumSquares struct{}

func (SumSquares) String() string { return "SumSquares" }

// Infer takes a tensor of floats and a float64 scalar.
func (i SumSquares) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 2); err != nil {
		return nil, err
	}
	if err := sameFloats(i, in, in[:1]); err != nil {
		return nil, err
	}
	if sum := (Type{Dtype: device.Float64}); !in[1].Equal(sum) {
		return nil, refuse(i, in, "the sum must be %v", sum)
	}
	return in[1:], nil
}

func (i SumSquares) flops(in, out []Type) int { return 2 * elems(in, 0) }

func (i SumSquares) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}
