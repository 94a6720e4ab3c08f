package optim

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/names"
)

// Group is some parameters with a rule of their own; P is *autodiff.Tensor or [Param].
type Group[P any] struct {
	Rule   Rule
	Params []P
	Names  []string // one for each of Params, or none: by these their state is saved. See [Named]
}

// Named is a group of parameters with their names, in the order of the names, so that it is the
// same whatever order they come in:
//
//	optim.NewGroups(optim.Named(rule, nn.Parameters(model)))
//	optim.NewDistributedGroups(c, optim.Named(rule, maps.All(references)))
func Named[P any](rule Rule, params iter.Seq2[string, P]) Group[P] {
	type named struct {
		name string
		p    P
	}
	var all []named
	for name, p := range params {
		all = append(all, named{name, p})
	}
	slices.SortStableFunc(all, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	g := Group[P]{Rule: rule}
	for _, n := range all {
		g.Params, g.Names = append(g.Params, n.p), append(g.Names, n.name)
	}
	return g
}

// checkNames says what is wrong with the names of groups.
func checkNames[P any](groups []Group[P]) error {
	var errs []error
	in := map[string]int{}
	for g, group := range groups {
		if n := len(group.Names); n > 0 && n != len(group.Params) {
			errs = append(errs, fmt.Errorf("%w: group %d has %d names for %d parameters", ErrParameters, g, n, len(group.Params)))
		}
		for k, name := range group.Names {
			switch before, twice := in[name]; {
			case name == "":
				errs = append(errs, fmt.Errorf("%w: the name of parameter %d of group %d is empty", ErrParameters, k, g))
			case twice:
				errs = append(errs, fmt.Errorf("%w: two parameters are called %.80q, in group %d and group %d", ErrParameters, name, before, g))
			}
			in[name] = g
		}
	}
	return errors.Join(errs...)
}

// called is how errors speak of a parameter: by its name, or where it has none by its number,
// counted over all groups.
type called struct {
	name   string
	number int
}

func (c called) String() string {
	if c.name == "" {
		return fmt.Sprintf("parameter %d", c.number)
	}
	return fmt.Sprintf("parameter %.80q", c.name)
}

// located adds the user's line to an error.
func located(err error) error {
	if err == nil {
		return nil
	}
	return autodiff.Failed(err).Err()
}

// serves says which gradients a step would leave out unsaid.
func (o *Local) serves(grads map[*autodiff.Tensor]*autodiff.Tensor) error {
	var errs []error
	for _, p := range o.params {
		if g, given := grads[p.of]; given && g == nil {
			errs = append(errs, fmt.Errorf("%w: the gradient of %v is nil; leave it out where there is none", ErrStep, p))
		}
	}
	var unknown []string
	for leaf := range grads {
		if leaf == nil {
			errs = append(errs, fmt.Errorf("%w: a key of the gradients is a nil tensor; the keys are the parameters", ErrStep))
			continue
		}
		if !o.of[leaf] && !leaf.IsStepped() && leaf.Owner() == nil {
			unknown = append(unknown, leaf.String())
		}
	}
	if len(unknown) > 0 {
		errs = append(errs, fmt.Errorf("%w: there are gradients of what no optimizer steps: %s; give it to an optimizer (after nn.To, which replaces "+
			"tensors), Detach it where it is used, or let it belong to the pass", ErrStep, names.List(unknown)))
	}
	return errors.Join(errs...)
}
