package optim

import (
	"math"
	"slices"

	"github.com/weft-project/weft/internal/zero"
)

// Schedule says what learning rates are multiplied by after n calls of Advance, counted from 0. Any
// function will do; those here are torch.optim.lr_scheduler's. Numbers of steps below 1 count as 1.
type Schedule func(n int) float64

// StepLR multiplies by gamma after every so many steps.
func StepLR(every int, gamma float64) Schedule {
	return func(n int) float64 { return math.Pow(gamma, float64(n/max(every, 1))) }
}

// MultiStep multiplies by gamma at each milestone.
func MultiStep(gamma float64, milestones ...int) Schedule {
	milestones = slices.Sorted(slices.Values(milestones))
	return func(n int) float64 {
		at, _ := slices.BinarySearch(milestones, n+1)
		return math.Pow(gamma, float64(at))
	}
}

// Exponential multiplies by gamma at every step.
func Exponential(gamma float64) Schedule { return StepLR(1, gamma) }

// Polynomial falls to 0 at total, linearly with power 1.
func Polynomial(total int, power float64) Schedule {
	return func(n int) float64 { return math.Pow(1-fraction(n, total), power) }
}

// LinearWarmup rises linearly from a first factor to 1 at total.
func LinearWarmup(first float64, total int) Schedule {
	return func(n int) float64 { return first + (1-first)*fraction(n, total) }
}

// fraction is n/total, at most 1.
func fraction(n, total int) float64 {
	total = max(total, 1)
	return float64(min(n, total)) / float64(total)
}

// Cosine falls from 1 to floor (torch's eta_min as a part of the learning rate) at total, as half a
// cosine's period. After that it rises again.
func Cosine(total int, floor float64) Schedule {
	return func(n int) float64 { return cosine(1, floor, float64(n)/float64(max(total, 1))) }
}

// CosineRestarts falls as Cosine does and begins again, after first steps, and then each time after
// grow times as many.
func CosineRestarts(first, grow int, floor float64) Schedule {
	return func(n int) float64 {
		total := max(first, 1)
		for n >= total {
			n -= total
			total *= max(grow, 1)
		}
		return cosine(1, floor, float64(n)/float64(total))
	}
}

// cosine goes from one number to another while at goes from 0 to 1.
func cosine(from, to, at float64) float64 { return to + (from-to)*(1+math.Cos(math.Pi*at))/2 }

// OneCycle rises from a part of the learning rate to all of it, and then falls to next to nothing
// (Smith and Topin, arXiv:1708.07120). The rule's LR is torch's max_lr. Other zero fields than
// Total take torch's defaults, [Zero] is 0 itself. Momentum stays as it is (torch's
// cycle_momentum=False).
type OneCycle struct {
	Total      int     // steps of the cycle; must be given
	Rise       float64 // part of the steps in which it rises; default 0.3
	Divide     float64 // it begins with 1/Divide; default 25
	FinalDiv   float64 // and ends with 1/(Divide·FinalDiv); default 1e4
	Linear     bool    // straight lines in place of cosines
	ThreePhase bool    // fall as long as it rose, and then further
}

// Schedule is the cycle as a schedule. After the last step it stays as it is.
func (o OneCycle) Schedule() Schedule {
	last := float64(max(o.Total, 1) - 1)
	rise, low := zero.Or(o.Rise, 0.3)*(last+1), 1/zero.Or(o.Divide, 25)
	end := low / zero.Or(o.FinalDiv, 1e4)
	type phase struct{ until, from, to float64 }
	phases := []phase{{rise - 1, low, 1}, {last, 1, end}}
	if o.ThreePhase {
		phases = []phase{{rise - 1, low, 1}, {2*rise - 2, 1, low}, {last, low, end}}
	}
	return func(n int) float64 {
		at, start := min(float64(n), last), 0.0
		for _, p := range phases {
			if at <= p.until {
				done := min((at-start)/max(p.until-start, math.SmallestNonzeroFloat64), 1)
				if o.Linear {
					return p.from + (p.to-p.from)*done
				}
				return cosine(p.from, p.to, done)
			}
			start = p.until
		}
		return end
	}
}

// Then follows s until n, and next, counted from 0, from there on.
func (s Schedule) Then(n int, next Schedule) Schedule {
	return func(at int) float64 {
		if at < n {
			return s(at)
		}
		return next(at - n)
	}
}

// Times multiplies two schedules.
func (s Schedule) Times(other Schedule) Schedule {
	return func(n int) float64 { return s(n) * other(n) }
}
