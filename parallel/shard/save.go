package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/internal/names"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/internal/losses"
)

// In a checkpoint each parameter is a vector, of which each rank writes its part, and so is each
// tensor of an optimizer's state. What they are is in a note.
const (
	noteName  = "shards"
	modelPart = "model."
	optimPart = "optim."
)

// note is what a checkpoint says of itself.
type note struct {
	Shapes map[string]device.Shape `json:"shapes"` // of parameters
	Rows   float64                 `json:"rows"`   // of the latest step: the next one's weights are for so many
	Optim  *optim.Meta             `json:"optim,omitempty"`
}

// Pieces are what this rank writes to a checkpoint, and the notes of that: give both to a
// checkpoint.Part, with the group's rank and size. opt steps the shards ([Shards.Named]), and may
// be nil. Of a hybrid one group is enough.
func (s *Shards) Pieces(opt *optim.Local) (pieces []checkpoint.Piece, notes map[string]string, err error) {
	n := note{Shapes: map[string]device.Shape{}, Rows: s.total}
	var state optim.State
	if opt != nil {
		if state, err = opt.State(); err != nil {
			return nil, nil, fmt.Errorf("shard: Pieces: %w", err)
		}
		n.Optim = &state.Meta
	}
	slots, err := s.slots(n.Optim)
	if err != nil {
		return nil, nil, fmt.Errorf("shard: Pieces: %w", err)
	}
	s.each(func(i int, f *flat, j int) {
		n.Shapes[s.names[i]] = s.whole[i].Type().Shape
		add := func(name string, t *autodiff.Tensor) {
			lo, hi := f.mine(j)
			if lo == hi && (f.size[j] > 0 || s.g.Rank() > 0) {
				return
			}
			p := checkpoint.Piece{Name: name, Shape: []int{f.size[j]}, Begin: lo}
			var e error
			p.DType, _, p.Data, e = t.Raw()
			pieces, err = append(pieces, p), errors.Join(err, e)
		}
		add(modelPart+s.names[i], s.parts[i])
		for _, slot := range slots[s.names[i]] {
			add(optimPart+slot, state.Tensors[slot])
		}
	})
	text, e := json.Marshal(n)
	if err = errors.Join(err, e); err != nil {
		return nil, nil, fmt.Errorf("shard: Pieces: %w", err)
	}
	return pieces, map[string]string{noteName: string(text)}, nil
}

// each visits all parameters, as the j-th of a flat.
func (s *Shards) each(visit func(i int, f *flat, j int)) {
	for _, l := range s.layers {
		for _, f := range l.flats {
			for j, i := range f.params {
				visit(i, f, j)
			}
		}
	}
}

// slots are the names of the tensors that an optimizer keeps, by parameter; none without a meta.
func (s *Shards) slots(meta *optim.Meta) (map[string][]string, error) {
	all := map[string][]string{}
	if meta == nil {
		return all, nil
	}
	for _, g := range meta.Groups {
		for name, steps := range g.Steps {
			if !slices.Contains(s.names, name) {
				return nil, fmt.Errorf("%w: the optimizer steps %q, which is no part of these shards", ErrCheckpoint, name)
			}
			for _, slot := range g.Rule.Slots() {
				if steps > 0 {
					all[name] = append(all[name], name+"."+slot.Name)
				}
			}
		}
	}
	return all, nil
}

// Load makes the shards, and the optimizer of the shards if one is given, what they were when a
// checkpoint was saved, by however many ranks. All ranks call it, with the same checkpoint. Where
// it fails it fails on all, and no shard has changed; the error of the rank with a checkpoint of
// another model is ErrCheckpoint.
func (s *Shards) Load(c context.Context, k *checkpoint.Checkpoint, opt *optim.Local) error {
	n, err := noteOf(k)
	if err == nil {
		err = s.fits(n, opt != nil)
	}
	var values []*autodiff.Tensor
	var state optim.State
	if err == nil {
		values, state, err = s.readParts(k, n, opt != nil)
	}
	if err := s.outcome(c, err); err != nil {
		return fmt.Errorf("shard: Load: %w", err)
	}
	was, err := s.takeValues(values, opt, state)
	if err := s.outcome(c, err); err != nil {
		return fmt.Errorf("shard: Load: %w", errors.Join(err, was.back()))
	}
	s.total = n.Rows
	drop(was.values, was.state.Tensors) // or steps could not overwrite what nobody else holds
	drop(values, state.Tensors)
	return nil
}

// former is what shards were, and the state of their optimizer.
type former struct {
	parts, values []*autodiff.Tensor
	opt           *optim.Local // nil: there is nothing to put back
	state         optim.State
}

// takeValues gives this rank's shards, and their optimizer, other values.
func (s *Shards) takeValues(values []*autodiff.Tensor, opt *optim.Local, state optim.State) (was former, err error) {
	var before optim.State
	if opt != nil {
		if before, err = opt.State(); err != nil {
			return was, err
		}
	}
	old := make([]*autodiff.Tensor, len(s.parts))
	for i, p := range s.parts {
		old[i] = p.Detach()
	}
	if err = autodiff.Assign(s.parts, values); err != nil {
		return was, err
	}
	was = former{s.parts, old, opt, before}
	if opt != nil {
		err = opt.Load(state)
	}
	return was, err
}

// back undoes takeValues.
func (was former) back() error {
	var errs []error
	for i, old := range was.values { // one by one, which needs the least memory
		errs = append(errs, autodiff.Assign(was.parts[i:i+1], []*autodiff.Tensor{old}))
		was.values[i] = nil
	}
	if was.opt != nil {
		errs = append(errs, was.opt.Load(was.state))
	}
	return errors.Join(errs...)
}

func drop(values []*autodiff.Tensor, state map[string]*autodiff.Tensor) {
	autodiff.Release(values...)
	autodiff.Release(slices.Collect(maps.Values(state))...)
}

// readParts reads this rank's shards.
func (s *Shards) readParts(k *checkpoint.Checkpoint, n note, withState bool) (values []*autodiff.Tensor, state optim.State, err error) {
	state.Tensors, values = map[string]*autodiff.Tensor{}, make([]*autodiff.Tensor, len(s.whole))
	var slots map[string][]string
	if withState {
		state.Meta = *n.Optim
		if slots, err = s.slots(n.Optim); err != nil {
			return nil, state, err
		}
	}
	s.each(func(i int, f *flat, j int) {
		rows := func(name string) *autodiff.Tensor {
			lo, hi := f.mine(j)
			p, e := k.ReadRows(name, lo, hi-lo)
			err = errors.Join(err, e)
			if e != nil {
				return autodiff.Failed(e)
			}
			return autodiff.FromRaw(p.DType, []int{hi - lo}, p.Data)
		}
		values[i] = rows(modelPart + s.names[i])
		for _, slot := range slots[s.names[i]] {
			state.Tensors[slot] = rows(optimPart + slot)
		}
		if t := values[i]; t.Err() == nil && t.Dtype() != f.dtype {
			err = errors.Join(err, fmt.Errorf("%w: %s is of %v there, and of %v here", ErrCheckpoint, s.names[i], t.Dtype(), f.dtype))
		}
	})
	return values, state, err
}

func noteOf(k *checkpoint.Checkpoint) (n note, err error) {
	text, there := k.Notes[noteName]
	if !there {
		return n, fmt.Errorf("%w: it has no note %q", ErrCheckpoint, noteName)
	}
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return n, fmt.Errorf("%w: its note %q: %w", ErrCheckpoint, noteName, err)
	}
	return n, nil
}

// fits says all in which a checkpoint differs from the model.
func (s *Shards) fits(n note, withState bool) error {
	var errs []error
	var missing []string
	rest := maps.Clone(n.Shapes)
	for i, name := range s.names {
		shape, there := n.Shapes[name]
		delete(rest, name)
		switch mine := s.whole[i].Type().Shape; {
		case !there:
			missing = append(missing, name)
		case !shape.Equal(mine):
			errs = append(errs, fmt.Errorf("%w: %s is %v there, and %v here", ErrCheckpoint, name, shape, mine))
		}
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("%w: it lacks the parameters %s", ErrCheckpoint, names.List(missing)))
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("%w: it has parameters that are not here: %s", ErrCheckpoint, names.List(slices.Collect(maps.Keys(rest)))))
	}
	if !(n.Rows >= 1) || n.Rows > losses.MostRows {
		errs = append(errs, fmt.Errorf("%w: its latest step had %g rows", ErrCheckpoint, n.Rows))
	}
	if withState && n.Optim == nil {
		errs = append(errs, fmt.Errorf("%w: it has no optimizer state", ErrCheckpoint))
	}
	return errors.Join(errs...)
}

// Values are the whole parameters in a checkpoint of shards, by name: what nn.Load takes, for a
// worker that has the whole model.
func Values(k *checkpoint.Checkpoint) (map[string]*autodiff.Tensor, error) {
	n, err := noteOf(k)
	if err != nil {
		return nil, fmt.Errorf("shard: Values: %w", err)
	}
	all := map[string]*autodiff.Tensor{}
	for name, shape := range n.Shapes {
		p, err := k.Read(modelPart + name)
		if err != nil {
			return nil, fmt.Errorf("shard: Values: %w", err)
		}
		if all[name] = autodiff.FromRaw(p.DType, shape, p.Data); all[name].Err() != nil {
			return nil, fmt.Errorf("shard: Values: %s: %w: %w", name, ErrCheckpoint, all[name].Err())
		}
	}
	return all, nil
}
