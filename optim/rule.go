package optim

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/internal/zero"
	"github.com/weft-project/weft/kernels"
)

// ErrRule wraps everything that is wrong with a rule's settings.
var ErrRule = errors.New("invalid optimizer settings")

// Zero is 0 itself in a setting whose zero value stands for a default, in every rule and in
// [OneCycle]: AdamW{WeightDecay: optim.Zero} does not decay, AdamW{} decays by 0.01.
const Zero = zero.Itself

// Rule is how a parameter is stepped: [SGD], [Adam], [AdamW], [Adagrad], [Adadelta], [RMSprop],
// [Rprop] or [Adamax], with the formulas, names and defaults of torch.optim. A field that is zero
// takes torch's default; [Zero] is 0 itself.
type Rule interface {
	// Update is the rule's instruction with all defaults filled in: what travels, and is saved.
	// Step is 0, and Scale 1, or −1 to climb instead of descend.
	Update() kernels.Update
}

// SGD is stochastic gradient descent. LR must be given.
type SGD struct {
	LR          float64 // learning rate
	Momentum    float64 // 0: none
	Dampening   float64 // of momentum
	WeightDecay float64 // L2 penalty
	Nesterov    bool    // needs Momentum and no Dampening
	Maximize    bool    // climb
}

// Update implements Rule.
func (r SGD) Update() kernels.Update {
	return kernels.Update{Rule: kernels.SGD, LR: zero.Or(r.LR, 0), Momentum: zero.Or(r.Momentum, 0), Dampening: zero.Or(r.Dampening, 0), WeightDecay: zero.Or(r.WeightDecay, 0),
		Nesterov: r.Nesterov, Scale: sign(r.Maximize)}
}

// Adam is Kingma and Ba's optimizer (arXiv:1412.6980).
type Adam struct {
	LR           float64 // default 1e-3
	Beta1, Beta2 float64 // default 0.9, 0.999
	Eps          float64 // default 1e-8
	WeightDecay  float64 // L2 penalty; default 0
	AMSGrad      bool    // divide by the largest mean of squares so far
	Maximize     bool    // climb
}

// Update implements Rule.
func (r Adam) Update() kernels.Update {
	return kernels.Update{Rule: kernels.Adam, LR: zero.Or(r.LR, 1e-3), Beta1: zero.Or(r.Beta1, 0.9), Beta2: zero.Or(r.Beta2, 0.999), Eps: zero.Or(r.Eps, 1e-8),
		WeightDecay: zero.Or(r.WeightDecay, 0), AMSGrad: r.AMSGrad, Scale: sign(r.Maximize)}
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), by default
// 0.01; with [Zero], which means none, it is Adam.
type AdamW Adam

// Update implements Rule.
func (r AdamW) Update() kernels.Update {
	u := Adam(r).Update()
	u.Rule, u.WeightDecay = kernels.AdamW, zero.Or(r.WeightDecay, 0.01)
	return u
}

// Adagrad is Duchi, Hazan and Singer's optimizer.
type Adagrad struct {
	LR                 float64 // default 1e-2
	LRDecay            float64 // the rate of step n is LR / (1 + (n-1)·LRDecay)
	WeightDecay        float64 // L2 penalty
	InitialAccumulator float64 // what the sum of squares begins with
	Eps                float64 // default 1e-10
	Maximize           bool    // climb
}

// Update implements Rule.
func (r Adagrad) Update() kernels.Update {
	return kernels.Update{Rule: kernels.Adagrad, LR: zero.Or(r.LR, 1e-2), LRDecay: zero.Or(r.LRDecay, 0), WeightDecay: zero.Or(r.WeightDecay, 0), Initial: zero.Or(r.InitialAccumulator, 0),
		Eps: zero.Or(r.Eps, 1e-10), Scale: sign(r.Maximize)}
}

// Adadelta is Zeiler's optimizer (arXiv:1212.5701).
type Adadelta struct {
	LR          float64 // default 1
	Rho         float64 // decay of the mean of squares; default 0.9
	Eps         float64 // default 1e-6
	WeightDecay float64 // L2 penalty
	Maximize    bool    // climb
}

// Update implements Rule.
func (r Adadelta) Update() kernels.Update {
	return kernels.Update{Rule: kernels.Adadelta, LR: zero.Or(r.LR, 1), Beta2: zero.Or(r.Rho, 0.9), Eps: zero.Or(r.Eps, 1e-6), WeightDecay: zero.Or(r.WeightDecay, 0), Scale: sign(r.Maximize)}
}

// RMSprop is Hinton's optimizer.
type RMSprop struct {
	LR          float64 // default 1e-2
	Alpha       float64 // decay of the mean of squares; default 0.99
	Eps         float64 // default 1e-8
	WeightDecay float64 // L2 penalty
	Momentum    float64 // 0: none
	Centered    bool    // divide by an estimate of the deviation
	Maximize    bool    // climb
}

// Update implements Rule.
func (r RMSprop) Update() kernels.Update {
	return kernels.Update{Rule: kernels.RMSprop, LR: zero.Or(r.LR, 1e-2), Beta2: zero.Or(r.Alpha, 0.99), Eps: zero.Or(r.Eps, 1e-8), WeightDecay: zero.Or(r.WeightDecay, 0),
		Momentum: zero.Or(r.Momentum, 0), Centered: r.Centered, Scale: sign(r.Maximize)}
}

// Rprop is resilient backpropagation, for full batches. A learning rate set after a parameter's
// first step changes nothing for it.
type Rprop struct {
	LR                float64 // the first step's size; default 1e-2
	EtaMinus, EtaPlus float64 // how steps shrink and grow; default 0.5, 1.2
	MinStep, MaxStep  float64 // default 1e-6, 50
	Maximize          bool    // climb
}

// Update implements Rule.
func (r Rprop) Update() kernels.Update {
	return kernels.Update{Rule: kernels.Rprop, LR: zero.Or(r.LR, 1e-2), EtaMinus: zero.Or(r.EtaMinus, 0.5), EtaPlus: zero.Or(r.EtaPlus, 1.2),
		MinStep: zero.Or(r.MinStep, 1e-6), MaxStep: zero.Or(r.MaxStep, 50), Scale: sign(r.Maximize)}
}

// Adamax is Adam with the largest gradient in place of the mean of squares (arXiv:1412.6980,
// section 7).
type Adamax struct {
	LR           float64 // default 2e-3
	Beta1, Beta2 float64 // default 0.9, 0.999
	Eps          float64 // default 1e-8
	WeightDecay  float64 // L2 penalty
	Maximize     bool    // climb
}

// Update implements Rule.
func (r Adamax) Update() kernels.Update {
	return kernels.Update{Rule: kernels.Adamax, LR: zero.Or(r.LR, 2e-3), Beta1: zero.Or(r.Beta1, 0.9), Beta2: zero.Or(r.Beta2, 0.999), Eps: zero.Or(r.Eps, 1e-8),
		WeightDecay: zero.Or(r.WeightDecay, 0), Scale: sign(r.Maximize)}
}

func sign(climb bool) float64 {
	if climb {
		return -1
	}
	return 1
}

// checked is the instruction of a rule, wherever it came from, or all that is wrong with it.
func checked(u kernels.Update) (kernels.Update, error) {
	errs := []error{u.Check()}
	if u.LR == 0 {
		errs = append(errs, fmt.Errorf("%.40s: learning rate 0; expected a positive one (SetLR may set 0 later)", string(u.Rule)))
	}
	if u.Rule == kernels.SGD && u.Dampening != 0 && u.Momentum == 0 {
		errs = append(errs, errors.New("SGD: dampening is of momentum, and there is none"))
	}
	if u.Scale != 1 && u.Scale != -1 || u.Step != 0 {
		errs = append(errs, fmt.Errorf("%.40s: scale %g and step %d; expected 1 or -1, and 0", string(u.Rule), u.Scale, u.Step))
	}
	if err := errors.Join(errs...); err != nil {
		return u, fmt.Errorf("%w: %w", ErrRule, err)
	}
	return u, nil
}
