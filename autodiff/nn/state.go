package nn

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/names"
)

// ErrState says that tensors are not those of a layer.
var ErrState = errors.New("bad layer state")

// Randomized is a layer that draws random numbers: those of a seed, of which it has used so many.
type Randomized interface {
	Random() (seed, uses uint64)
	SetRandom(seed, uses uint64)
}

// State names every tensor of a layer that a checkpoint of a model must hold: parameters, running
// statistics, and where its random numbers are (of a [Randomized], a *rand.PCG, and an
// autodiff.Func that was taken from Gorgonia; int64 (2), a copy). The tensors are those in exported
// fields of structs, in elements and in maps by name, also of the layers there, with paths such as
// "0.W", "Body.3.RunningMean" or "1.Random". [Load] is the way back. A parameter that l.Params
// lists and no exported field leads to is there as a tensor that carries an error.
func State(l Layer) iter.Seq2[string, *autodiff.Tensor] {
	met := map[*autodiff.Tensor]bool{}
	w := walk{tensor: func(_ string, at place) bool { met[at.Tensor] = true; return true }}
	w.visit("", reflect.ValueOf(l), nil)
	var bad *autodiff.Tensor
	if err := hidden(l, met); err != nil {
		bad = autodiff.Failed(err) // with the line of this call
	}
	return func(yield func(string, *autodiff.Tensor) bool) {
		on := true
		w := walk{
			tensor: func(path string, at place) bool { on = yield(path, at.Tensor); return on },
			random: func(path string, r Randomized) {
				if on {
					on = yield(path, autodiff.RandomKey(r.Random()))
				}
			},
		}
		w.visit("", reflect.ValueOf(l), nil)
		if on && bad != nil {
			yield("a parameter without a name", bad)
		}
	}
}

// hidden says which parameters were not met.
func hidden(l Layer, met map[*autodiff.Tensor]bool) error {
	if missing(l) {
		return nil
	}
	for k, p := range l.Params() {
		if p != nil && !met[p] {
			return fmt.Errorf("%w: parameter %d of %T (%v) lies where no exported field leads, and has no name", ErrState, k, l, p)
		}
	}
	return nil
}

// Parameters names the tensors of [State] that require gradients: those that an optimizer steps.
// One that lies in several places has the name of the first.
func Parameters(l Layer) iter.Seq2[string, *autodiff.Tensor] {
	all := State(l)
	return func(yield func(string, *autodiff.Tensor) bool) {
		seen := map[*autodiff.Tensor]bool{}
		for name, t := range all {
			if wanted := t.RequiresGrad() || t.Err() != nil; wanted && !seen[t] && !yield(name, t) {
				return
			}
			seen[t] = true
		}
	}
}

// Load gives a layer the values that [State] named, maybe of another process's layer of the same
// structure: its tensors stay the same ones, so an optimizer may have them already. Tensors that do
// not fit are refused, with ErrState, and change nothing. The error names what is missing or too
// many (the first few, and how many more there are), and what is of another type.
func Load(l Layer, tensors map[string]*autodiff.Tensor) error {
	if err := load(l, tensors); err != nil {
		return autodiff.Failed(err).Err()
	}
	return nil
}

func load(l Layer, tensors map[string]*autodiff.Tensor) error {
	var errs []error
	var missing []string
	var to, from []*autodiff.Tensor
	extra := maps.Clone(tensors)
	fits := func(name string, like *autodiff.Tensor) bool {
		t, there := tensors[name]
		delete(extra, name)
		switch {
		case !there:
			missing = append(missing, name)
		case errors.Join(like.Err(), t.Err()) != nil:
			errs = append(errs, fmt.Errorf("%s: %w", name, errors.Join(like.Err(), t.Err())))
		case !t.Type().Equal(like.Type()):
			errs = append(errs, fmt.Errorf("%s is %v, and here %v", name, t.Type(), like.Type()))
		default:
			return true
		}
		return false
	}
	met, random := map[*autodiff.Tensor]bool{}, map[Randomized]*autodiff.Tensor{}
	w := walk{
		tensor: func(path string, at place) bool {
			if met[at.Tensor] = true; fits(path, at.Tensor) {
				to, from = append(to, at.Tensor), append(from, tensors[path])
			}
			return true
		},
		random: func(path string, r Randomized) {
			if fits(path, autodiff.RandomKey(r.Random())) {
				random[r] = tensors[path]
			}
		},
	}
	w.visit("", reflect.ValueOf(l), nil)
	errs = append(errs, hidden(l, met))
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("there is no %s", names.List(missing)))
	}
	if len(extra) > 0 {
		errs = append(errs, fmt.Errorf("the layer has no %s", names.List(slices.Collect(maps.Keys(extra)))))
	}
	keys := map[Randomized][]int64{}
	for r, t := range random {
		v, err := autodiff.Values[int64](t)
		keys[r], errs = v, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if err := autodiff.Assign(to, from); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	for r, v := range keys {
		r.SetRandom(uint64(v[0]), uint64(v[1]))
	}
	return nil
}
