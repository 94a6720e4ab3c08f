package optim

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/kernels"
)

// ErrRule wraps everything that is wrong with a rule's settings.
var ErrRule = errors.New("invalid optimizer settings")

// Rule is how a parameter is stepped: SGD, Adam or AdamW.
type Rule interface {
	// Check reports all violations at once.
	Check() error
	fmt.Stringer

	states() int // tensors of state per parameter, like the parameter and zero at first
	instr(step int) kernels.Instr
}

// SGD is stochastic gradient descent, as torch.optim.SGD without dampening. LR must be given.
type SGD struct {
	LR          float64 // learning rate
	Momentum    float64 // 0: none
	WeightDecay float64 // L2 penalty
	Nesterov    bool    // needs Momentum
}

// Adam is Kingma and Ba's optimizer (arXiv:1412.6980), as torch.optim.Adam. Zero fields take torch's defaults.
type Adam struct {
	LR           float64 // default 1e-3
	Beta1, Beta2 float64 // default 0.9, 0.999
	Eps          float64 // default 1e-8
	WeightDecay  float64 // L2 penalty; default 0
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), as torch.optim.AdamW, but its
// WeightDecay is 0 unless given (torch: 0.01).
type AdamW Adam

// Check implements Rule.
func (r SGD) Check() error {
	return check("SGD",
		r.LR > 0, fmt.Sprintf("learning rate %g; expected a positive one", r.LR),
		r.Momentum >= 0, fmt.Sprintf("momentum %g; expected 0 or more", r.Momentum),
		r.WeightDecay >= 0, fmt.Sprintf("weight decay %g; expected 0 or more", r.WeightDecay),
		!r.Nesterov || r.Momentum > 0, "Nesterov needs a momentum")
}

// Check implements Rule.
func (r Adam) Check() error { return r.filled().check("Adam") }

// Check implements Rule.
func (r AdamW) Check() error { return Adam(r).filled().check("AdamW") }

func (r Adam) check(name string) error {
	return check(name,
		r.LR > 0, fmt.Sprintf("learning rate %g; expected a positive one", r.LR),
		r.Beta1 > 0 && r.Beta1 < 1, fmt.Sprintf("beta1 %g; expected it between 0 and 1", r.Beta1),
		r.Beta2 > 0 && r.Beta2 < 1, fmt.Sprintf("beta2 %g; expected it between 0 and 1", r.Beta2),
		r.Eps > 0, fmt.Sprintf("eps %g; expected a positive one", r.Eps),
		r.WeightDecay >= 0, fmt.Sprintf("weight decay %g; expected 0 or more", r.WeightDecay))
}

// check takes pairs of a condition and what to say where it does not hold.
func check(name string, pairs ...any) error {
	var errs []error
	for i := 0; i < len(pairs); i += 2 {
		if !pairs[i].(bool) {
			errs = append(errs, fmt.Errorf("%w: %s: %s", ErrRule, name, pairs[i+1]))
		}
	}
	return errors.Join(errs...)
}

func (r Adam) filled() Adam {
	fill := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	fill(&r.LR, 1e-3)
	fill(&r.Beta1, 0.9)
	fill(&r.Beta2, 0.999)
	fill(&r.Eps, 1e-8)
	return r
}

// String prints the settings.
func (r SGD) String() string {
	type plain SGD // without String
	return fmt.Sprintf("SGD%+v", plain(r))
}

// String prints the settings, with the defaults filled in.
func (r Adam) String() string { return r.print("Adam") }

// String prints the settings, with the defaults filled in.
func (r AdamW) String() string { return Adam(r).print("AdamW") }

func (r Adam) print(name string) string {
	type plain Adam // without String
	return fmt.Sprintf("%s%+v", name, plain(r.filled()))
}

func (r SGD) states() int {
	if r.Momentum != 0 {
		return 1
	}
	return 0
}
func (Adam) states() int  { return 2 }
func (AdamW) states() int { return 2 }

func (r SGD) instr(int) kernels.Instr {
	return kernels.SGD{LR: r.LR, Momentum: r.Momentum, WeightDecay: r.WeightDecay, Nesterov: r.Nesterov}
}
func (r Adam) instr(step int) kernels.Instr  { return r.filled().at(step, false) }
func (r AdamW) instr(step int) kernels.Instr { return Adam(r).filled().at(step, true) }

func (r Adam) at(step int, decoupled bool) kernels.Instr {
	return kernels.Adam{
		LR: r.LR, Beta1: r.Beta1, Beta2: r.Beta2, Eps: r.Eps, WeightDecay: r.WeightDecay,
		Decoupled: decoupled, Step: step,
	}
}
