package optim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/names"
	"github.com/weft-project/weft/kernels"
)

// ErrState says that a state does not fit the optimizer, or could not be had.
var ErrState = errors.New("bad optimizer state")

// State is all that an optimizer keeps: an optimizer of the same rules and parameters that loads it
// goes on bit for bit as the one that it was taken from. It is the same for a [Local] and a
// [Distributed], wherever the parameters are and in whatever order they were given, as they go by
// name: see [Named]. The values of the parameters are not in it.
//
// Older versions of Weft saved states by the parameters' numbers ("3.exp_avg"). Which parameter had
// which number is not in them, so they are refused; who knows it gives Meta's groups their Steps by
// name, and Tensors their names, and loads that.
type State struct {
	// Tensors holds the state of each parameter that was stepped, by the parameter's name and
	// torch's name of the state: "2.W.exp_avg".
	Tensors map[string]*autodiff.Tensor
	Meta    Meta
}

// Meta is the part of a State that is no tensor. It may be written as JSON.
type Meta struct {
	Groups   []GroupMeta
	Advanced int // calls of Advance
}

// GroupMeta describes a group.
type GroupMeta struct {
	Rule  kernels.Update // Rule.LR is the group's own learning rate when the state was taken
	Steps map[string]int // that each parameter has made, by its name
}

// member is a parameter as a state sees it.
type member struct {
	called
	group int
	typ   kernels.Type
}

// State is what the optimizer keeps. Each parameter's is that of one moment; the whole is, where no
// step is under way.
func (o *Local) State() (State, error) {
	params, err := o.keep()
	if err != nil {
		return State{}, located(fmt.Errorf("%w: %w", ErrState, err))
	}
	s, err := newState(&o.rates, o.groups, o.members(), params)
	return s, located(err)
}

// Load makes the optimizer go on from a state. A state that does not fit is refused, with ErrState,
// and changes nothing. The error names the parameters and tensors that are missing or too many (the
// first few, and how many more there are), or one of another type. The schedule is no part of a
// state: set the same one with SetSchedule, before or after.
func (o *Local) Load(s State) error {
	params, err := s.fit(o.groups, o.members())
	if err == nil {
		err = o.restore(params)
	}
	if err != nil {
		return located(err)
	}
	s.setRates(&o.rates)
	return nil
}

func (o *Local) members() []member {
	ms := make([]member, len(o.params))
	for i, p := range o.params {
		ms[i] = member{p.called, p.group, p.of.Type()}
	}
	return ms
}

// keep takes what is kept of each parameter; the tensors share the present values, which later
// steps leave alone.
func (o *Local) keep() ([]kept, error) {
	out := make([]kept, len(o.params))
	for i, p := range o.params {
		var err error
		if out[i], err = p.state(); err != nil {
			return nil, fmt.Errorf("%v: %w", p, err)
		}
	}
	return out, nil
}

// state is what is kept of a parameter, with the count of the steps that were made. An accelerator
// may tell now of one that was not.
func (p *parameter) state() (kept, error) {
	p.mu.Lock()
	k := kept{p.Steps, make([]*autodiff.Tensor, len(p.Slots))}
	for n, s := range p.Slots {
		k.Slots[n] = s.Detach()
	}
	missed := p.missed
	if missed != nil {
		missed = missed.Detach()
	}
	p.mu.Unlock()
	errs := make([]error, 0, len(k.Slots)+1)
	for _, s := range k.Slots {
		errs = append(errs, s.Err())
	}
	if missed != nil {
		n, err := missed.Item()
		errs = append(errs, err)
		if k.Steps -= int(n); k.Steps == 0 {
			k.Slots = nil
		}
	}
	return k, errors.Join(errs...)
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
			return fmt.Errorf("%w: %v has %d tensors after %d steps; %s keeps %d", ErrState, p, len(f.Slots), f.Steps, o.groups[p.group].Rule, len(slots))
		}
		fresh[i].Steps = f.Steps
		for k, t := range f.Slots {
			mine, err := takeOver(t, p.of)
			if err != nil {
				return fmt.Errorf("%w: %s of %v: %w", ErrState, slots[k].Name, p, err)
			}
			fresh[i].Slots = append(fresh[i].Slots, mine)
		}
	}
	for i, p := range o.params {
		p.mu.Lock()
		p.kept, p.missed = fresh[i], nil
		p.mu.Unlock()
	}
	return nil
}

// takeOver gives a tensor for a parameter's state that shares t's value where it can.
func takeOver(t, param *autodiff.Tensor) (*autodiff.Tensor, error) {
	if err := fits(t, param.Type()); err != nil {
		return nil, err
	}
	mine := onto(t, param).Detach()
	return mine, mine.Err()
}

// fits says why t cannot be state of a parameter.
func fits(t *autodiff.Tensor, param kernels.Type) error {
	if err := t.Err(); err != nil {
		return err
	}
	if owner := t.Owner(); owner != nil {
		return fmt.Errorf("it belongs to %v, and would be freed with it", owner)
	}
	if !t.Type().Equal(param) {
		return fmt.Errorf("it is %v; the parameter is %v", t.Type(), param)
	}
	return nil
}

// newState puts together what is kept of all parameters.
func newState(r *rates, groups []kernels.Update, members []member, params []kept) (State, error) {
	if err := haveNames(members); err != nil {
		return State{}, err
	}
	base, advanced := r.saved()
	s := State{map[string]*autodiff.Tensor{}, Meta{Advanced: advanced}}
	for g, rule := range groups {
		rule.LR = base[g]
		s.Meta.Groups = append(s.Meta.Groups, GroupMeta{rule, map[string]int{}})
	}
	for i, m := range members {
		s.Meta.Groups[m.group].Steps[m.name] = params[i].Steps
		for k, t := range params[i].Slots {
			s.Tensors[m.slot(groups[m.group].Slots()[k])] = t
		}
	}
	return s, nil
}

func (m member) slot(s kernels.Slot) string { return m.name + "." + s.Name }

// haveNames fails where a parameter has none.
func haveNames(members []member) error {
	for _, m := range members {
		if m.name == "" {
			return fmt.Errorf("%w: %v has no name, and state goes by names: make the optimizer of optim.Named(rule, nn.Parameters(model)), "+
				"or give its Group Names", ErrState, m)
		}
	}
	return nil
}

// fit is what is kept of each parameter, if the state is one of such groups and parameters; the
// error has all that is wrong.
func (s State) fit(groups []kernels.Update, members []member) ([]kept, error) {
	if err := haveNames(members); err != nil {
		return nil, err
	}
	in, errs := s.Meta.check(groups)
	rest := maps.Clone(s.Tensors) // that no parameter needs
	out := make([]kept, len(members))
	var missing, lacking []string
	for i, m := range members {
		g, there := in[m.name]
		delete(in, m.name)
		switch {
		case !there:
			missing = append(missing, m.name)
			continue
		case g != m.group:
			errs = append(errs, fmt.Errorf("%v is in its group %d, and here in group %d", m, g, m.group))
			continue
		}
		if out[i].Steps = s.Meta.Groups[g].Steps[m.name]; out[i].Steps == 0 {
			continue
		}
		for _, slot := range groups[g].Slots() {
			name := m.slot(slot)
			t, there := s.Tensors[name]
			delete(rest, name)
			if !there {
				lacking = append(lacking, name)
			} else if err := fits(t, m.typ); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			out[i].Slots = append(out[i].Slots, t)
		}
	}
	for name := range rest { // those of parameters that are named already
		if _, extra := in[name[:max(strings.LastIndexByte(name, '.'), 0)]]; extra {
			delete(rest, name)
		}
	}
	for _, of := range []struct {
		what  string
		names []string
	}{
		{"it lacks the parameters", missing}, {"it has parameters that are not here:", slices.Collect(maps.Keys(in))},
		{"it lacks the tensors", lacking}, {"it has tensors that no parameter needs:", slices.Collect(maps.Keys(rest))},
	} {
		if len(of.names) > 0 {
			errs = append(errs, fmt.Errorf("%s %s", of.what, names.List(of.names)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return out, nil
}

// check says what is wrong with a state that is to be one of such groups, and in which group each
// of its parameters is. Learning rates may differ: they are loaded.
func (m Meta) check(groups []kernels.Update) (in map[string]int, errs []error) {
	in = map[string]int{}
	if len(m.Groups) != len(groups) {
		errs = append(errs, fmt.Errorf("it is of %d groups; there are %d", len(m.Groups), len(groups)))
	}
	for g, was := range m.Groups {
		for name, n := range was.Steps {
			if before, twice := in[name]; twice {
				errs = append(errs, fmt.Errorf("parameter %q is in its groups %d and %d", name, before, g))
			}
			if in[name] = g; n < 0 {
				errs = append(errs, fmt.Errorf("parameter %q has made %d steps", name, n))
			}
		}
		if err := was.Rule.Check(); err != nil {
			errs = append(errs, fmt.Errorf("group %d: %w", g, err))
		}
		if g >= len(groups) {
			continue
		}
		now := groups[g]
		now.LR = was.Rule.LR
		if was.Rule != now {
			errs = append(errs, fmt.Errorf("group %d is stepped by %v; here it is %v", g, was.Rule, groups[g]))
		}
	}
	if len(in) == 0 {
		errs = append(errs, errors.New(`it names no parameters; if an older Weft saved it by their numbers ("3.exp_avg"), see State for what to do`))
	}
	if m.Advanced < 0 {
		errs = append(errs, fmt.Errorf("the schedule is at %d", m.Advanced))
	}
	return in, errs
}

func (s State) setRates(r *rates) {
	var base []float64
	for _, g := range s.Meta.Groups {
		base = append(base, g.Rule.LR)
	}
	r.restore(base, s.Meta.Advanced)
}
