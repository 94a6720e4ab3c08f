package optim

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-project/weft/kernels"
)

// State gathers what the optimizers keep from all owners at once. c must carry no pass. See
// [Local.State].
func (d *Distributed) State(c context.Context) (State, error) {
	s, err := d.state(c)
	return s, located(err)
}

func (d *Distributed) state(c context.Context) (State, error) {
	parts, err := onAll(c, d, false, ErrState, keepLocal, func(int) struct{} { return struct{}{} })
	if err != nil {
		return State{}, err
	}
	params := make([]kept, len(d.members))
	for i, p := range d.parts {
		if len(parts[i]) != len(p.params) {
			return State{}, fmt.Errorf("%w: %s keeps %d parameters instead of %d", ErrState, p.owner, len(parts[i]), len(p.params))
		}
		for k, number := range p.params {
			if most := len(d.groups[d.members[number].group].Slots()); len(parts[i][k].Slots) > most {
				return State{}, fmt.Errorf("%w: %s keeps %d tensors of a parameter instead of %d", ErrState, p.owner, len(parts[i][k].Slots), most)
			}
			params[number] = parts[i][k]
		}
	}
	return newState(&d.rates, d.groups, d.members, params)
}

// Load makes the optimizers on all owners go on from a state. c must carry no pass. A state that
// does not fit is refused as [Local.Load] does, and changes nothing; where an owner is lost, or has
// not the memory, the others may have loaded theirs.
func (d *Distributed) Load(c context.Context, s State) error { return located(d.load(c, s)) }

func (d *Distributed) load(c context.Context, s State) error {
	types, err := onAll(c, d, false, ErrState, typesOfLocal, func(int) struct{} { return struct{}{} })
	if err != nil {
		return err
	}
	members := slices.Clone(d.members)
	for i, p := range d.parts {
		if len(types[i]) != len(p.params) {
			return fmt.Errorf("%w: %s has %d parameters instead of %d", ErrState, p.owner, len(types[i]), len(p.params))
		}
		for k, number := range p.params {
			members[number].typ = types[i][k]
		}
	}
	params, err := s.fit(d.groups, members)
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

var typesOfLocal = define("weft.optim.types", func(_ context.Context, o *Local, _ struct{}) ([]kernels.Type, error) {
	var types []kernels.Type
	for _, m := range o.members() {
		types = append(types, m.typ)
	}
	return types, nil
})

var restoreLocal = define("weft.optim.restore", func(_ context.Context, o *Local, from []kept) (struct{}, error) {
	return struct{}{}, o.restore(from)
})
