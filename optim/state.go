package optim

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// ErrState says that a state does not fit the optimizer, or could not be had.
var ErrState = errors.New("bad optimizer state")

// State is all that an optimizer keeps: an optimizer of the same rules and parameters that loads it goes on bit for bit as the one that it
// was taken from. It is the same for a [Local] and a [Distributed], wherever the parameters are; the values of the parameters are not in it.
type State struct {
	// Tensors holds the state of each parameter that was stepped, by the parameter's number, counted over all groups as they were given,
	// and torch's name of the state: "3.exp_avg".
	Tensors map[string]*autodiff.Tensor
	Meta    Meta
}

// Meta is the part of a State that is no tensor. It may be written as JSON.
type Meta struct {
	Groups   []GroupMeta
	Steps    []int // per parameter
	Advanced int   // calls of Advance
}

// GroupMeta describes a group.
type GroupMeta struct {
	Rule   kernels.Update // Rule.LR is the group's own learning rate when the state was taken
	Params int
}

// State is what the optimizer keeps. Each parameter's is that of one moment; the whole is, where no step is under way.
func (o *Local) State() (State, error) {
	params, err := o.keep()
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	return newState(&o.rates, o.groups, o.sizes(), params), nil
}

// Load makes the optimizer go on from a state. A state that does not fit is refused, with ErrState, and changes nothing. The schedule is
// no part of a state: set the same one with SetSchedule, before or after.
func (o *Local) Load(s State) error {
	params, err := s.params(o.groups, o.sizes())
	if err != nil {
		return err
	}
	if err := o.restore(params); err != nil {
		return err
	}
	s.setRates(&o.rates)
	return nil
}

func (o *Local) sizes() []int {
	sizes := make([]int, len(o.groups))
	for _, p := range o.params {
		sizes[p.group]++
	}
	return sizes
}

// keep takes what is kept of each parameter; the tensors share the present values, which later steps leave alone.
func (o *Local) keep() ([]kept, error) {
	out := make([]kept, len(o.params))
	for i, p := range o.params {
		p.mu.Lock()
		out[i] = kept{p.Steps, make([]*autodiff.Tensor, len(p.Slots))}
		for k, s := range p.Slots {
			out[i].Slots[k] = s.Detach()
		}
		p.mu.Unlock()
		for _, s := range out[i].Slots {
			if err := s.Err(); err != nil {
				return nil, fmt.Errorf("parameter %d: %w", i, err)
			}
		}
	}
	return out, nil
}

// restore checks everything, and then replaces what is kept.
func (o *Local) restore(from []kept) error {
	if len(from) != len(o.params) {
		return fmt.Errorf("%w: it is of %d parameters; there are %d", ErrState, len(from), len(o.params))
	}
	fresh := make([]kept, len(from))
	for i, p := range o.params {
		slots, f := o.groups[p.group].Slots(), from[i]
		if f.Steps < 0 || f.Steps == 0 && len(f.Slots) > 0 || f.Steps > 0 && len(f.Slots) != len(slots) {
			return fmt.Errorf("%w: parameter %d has %d tensors after %d steps; %s keeps %d", ErrState, i, len(f.Slots), f.Steps, o.groups[p.group].Rule, len(slots))
		}
		fresh[i].Steps = f.Steps
		for k, t := range f.Slots {
			mine, err := takeOver(t, p.of)
			if err != nil {
				return fmt.Errorf("%w: %s of parameter %d: %w", ErrState, slots[k].Name, i, err)
			}
			fresh[i].Slots = append(fresh[i].Slots, mine)
		}
	}
	for i, p := range o.params {
		p.mu.Lock()
		p.kept = fresh[i]
		p.mu.Unlock()
	}
	return nil
}

// takeOver gives a tensor for a parameter's state that shares t's value where it can.
func takeOver(t, param *autodiff.Tensor) (*autodiff.Tensor, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	if owner := t.Owner(); owner != nil {
		return nil, fmt.Errorf("it belongs to %v, and would be freed with it", owner)
	}
	if !t.Type().Equal(param.Type()) {
		return nil, fmt.Errorf("it is %v; the parameter is %v", t.Type(), param.Type())
	}
	mine := onto(t, param).Detach()
	return mine, mine.Err()
}

// newState puts together what is kept of all parameters.
func newState(r *rates, groups []kernels.Update, sizes []int, params []kept) State {
	base, advanced := r.saved()
	s := State{map[string]*autodiff.Tensor{}, Meta{Advanced: advanced}}
	i := 0
	for g, rule := range groups {
		rule.LR = base[g]
		s.Meta.Groups = append(s.Meta.Groups, GroupMeta{rule, sizes[g]})
		for range sizes[g] {
			s.Meta.Steps = append(s.Meta.Steps, params[i].Steps)
			for k, t := range params[i].Slots {
				s.Tensors[slotName(i, rule.Slots()[k])] = t
			}
			i++
		}
	}
	return s
}

func slotName(param int, s kernels.Slot) string { return strconv.Itoa(param) + "." + s.Name }

// params is what is kept of each parameter, if the state is one of such groups.
func (s State) params(groups []kernels.Update, sizes []int) ([]kept, error) {
	if err := s.Meta.fits(groups, sizes); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	out, used, missing := make([]kept, len(s.Meta.Steps)), 0, []string{}
	i := 0
	for g, rule := range groups {
		for range sizes[g] {
			out[i].Steps = s.Meta.Steps[i]
			for _, slot := range rule.Slots() {
				if out[i].Steps == 0 {
					break
				}
				name := slotName(i, slot)
				t, ok := s.Tensors[name]
				if !ok {
					missing = append(missing, name)
				}
				out[i].Slots = append(out[i].Slots, t)
				used++
			}
			i++
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: %d tensors are missing, such as %s", ErrState, len(missing), missing[0])
	}
	if used != len(s.Tensors) {
		return nil, fmt.Errorf("%w: it has %d tensors where its steps need %d", ErrState, len(s.Tensors), used)
	}
	return out, nil
}

// fits says where a state is not one of such groups. Learning rates may differ: they are loaded.
func (m Meta) fits(groups []kernels.Update, sizes []int) error {
	if len(m.Groups) != len(groups) {
		return fmt.Errorf("it is of %d groups; there are %d", len(m.Groups), len(groups))
	}
	var errs []error
	total := 0
	for g, was := range m.Groups {
		if was.Params != sizes[g] {
			errs = append(errs, fmt.Errorf("group %d has %d parameters; there are %d", g, was.Params, sizes[g]))
		}
		now := groups[g]
		now.LR = was.Rule.LR
		if was.Rule != now {
			errs = append(errs, fmt.Errorf("group %d is stepped by %v; here it is %v", g, was.Rule, groups[g]))
		}
		if err := was.Rule.Check(); err != nil {
			errs = append(errs, fmt.Errorf("group %d: %w", g, err))
		}
		total += sizes[g]
	}
	if len(m.Steps) != total {
		errs = append(errs, fmt.Errorf("it counts the steps of %d parameters; there are %d", len(m.Steps), total))
	}
	for i, n := range m.Steps {
		if n < 0 {
			errs = append(errs, fmt.Errorf("parameter %d has made %d steps", i, n))
		}
	}
	if m.Advanced < 0 {
		errs = append(errs, fmt.Errorf("the schedule is at %d", m.Advanced))
	}
	return errors.Join(errs...)
}

func (s State) setRates(r *rates) {
	var base []float64
	for _, g := range s.Meta.Groups {
		base = append(base, g.Rule.LR)
	}
	r.restore(base, s.Meta.Advanced)
}

// State gathers what the optimizers keep from all owners at once. c must carry no pass. See [Local.State].
func (d *Distributed) State(c context.Context) (State, error) {
	parts, err := onAll(c, d, false, ErrState, keepLocal, func(int) struct{} { return struct{}{} })
	if err != nil {
		return State{}, err
	}
	n := 0
	for _, p := range d.parts {
		n += len(p.params)
	}
	params := make([]kept, n)
	for i, p := range d.parts {
		if len(parts[i]) != len(p.params) {
			return State{}, fmt.Errorf("%w: %s keeps %d parameters instead of %d", ErrState, p.owner, len(parts[i]), len(p.params))
		}
		for k, number := range p.params {
			if most := len(d.groups[d.groupOf(number)].Slots()); len(parts[i][k].Slots) > most {
				return State{}, fmt.Errorf("%w: %s keeps %d tensors of a parameter instead of %d", ErrState, p.owner, len(parts[i][k].Slots), most)
			}
			params[number] = parts[i][k]
		}
	}
	return newState(&d.rates, d.groups, d.sizes, params), nil
}

// groupOf is the group of a parameter.
func (d *Distributed) groupOf(number int) int {
	for g, n := range d.sizes {
		if number < n {
			return g
		}
		number -= n
	}
	return len(d.sizes) - 1
}

// Load makes the optimizers on all owners go on from a state. c must carry no pass. A state that does not fit the rules or their
// parameters' number is refused and changes nothing; where only a tensor does not fit a parameter on one owner, the others have loaded
// theirs. See [Local.Load].
func (d *Distributed) Load(c context.Context, s State) error {
	params, err := s.params(d.groups, d.sizes)
	if err != nil {
		return err
	}
	_, err = onAll(c, d, false, ErrState, restoreLocal, func(i int) []kept {
		var theirs []kept
		for _, number := range d.parts[i].params {
			theirs = append(theirs, params[number])
		}
		return theirs
	})
	if err == nil {
		s.setRates(&d.rates)
	}
	return err
}

var keepLocal = define("weft.optim.keep", func(_ context.Context, o *Local, _ struct{}) ([]kept, error) { return o.keep() })

var restoreLocal = define("weft.optim.restore", func(_ context.Context, o *Local, from []kept) (struct{}, error) {
	return struct{}{}, o.restore(from)
})
