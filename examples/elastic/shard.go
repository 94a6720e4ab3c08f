package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/optim"
)

// shard is what one worker has of the training at a step: some of the parameters, each with its
// optimizer, and what all have alike.
type shard struct {
	step   int
	params map[int]*param // by number
	history
}

// history is the loss of every step so far, and where the workers changed.
type history struct {
	Losses []float64
	Marks  []mark
}

// mark is a step before which the workers have changed.
type mark struct {
	Step, World int
	Why         string
}

// param is a parameter with what its optimizer keeps.
type param struct {
	value *autodiff.Tensor
	opt   *optim.Local
}

// moving is a parameter on its way to another worker.
type moving struct {
	Value *autodiff.Tensor
	State optim.State
}

func (p *param) move() (m moving, err error) {
	m.State, err = p.opt.State()
	m.Value = p.value.Detach()
	return m, err
}

// newParam takes over parameter k's value, and where there is one a state.
func newParam(rule optim.Rule, k int, value *autodiff.Tensor, s *optim.State) (*param, error) {
	p := &param{value: value.RequireGrad()}
	var err error
	if p.opt, err = optim.NewGroups(optim.Group[*autodiff.Tensor]{Rule: rule, Params: []*autodiff.Tensor{p.value}, Names: []string{paramName(k)}}); err == nil && s != nil {
		err = p.opt.Load(*s)
	}
	return p, err
}

func paramName(k int) string { return fmt.Sprint("param", k) }

// pieces are the tensors that are here, as a checkpoint holds them.
func (s *shard) pieces() ([]checkpoint.Piece, error) {
	tensors := map[string]*autodiff.Tensor{}
	for k, p := range s.params {
		state, err := p.opt.State()
		if err != nil {
			return nil, err
		}
		tensors[paramName(k)] = p.value
		maps.Copy(tensors, state.Tensors)
	}
	return checkpoint.Pieces("", tensors)
}

// readParam is a parameter from a checkpoint, which is to have a shape.
func readParam(rule optim.Rule, from *checkpoint.Checkpoint, k int, shape []int) (*param, error) {
	x, err := from.Read(paramName(k))
	if err != nil {
		return nil, err
	}
	value := autodiff.FromRaw(x.DType, x.Shape, x.Data)
	if !slices.Equal(value.Shape(), shape) {
		return nil, elastic.Final(fmt.Errorf("the checkpoint of step %d has %s with the shape %v instead of %v; it is of another --hidden: name another folder, or the same --hidden",
			from.Step, paramName(k), value.Shape(), shape))
	}
	p, err := newParam(rule, k, value, nil)
	if err != nil {
		return nil, err
	}
	s, err := p.opt.State()
	if err != nil {
		return nil, err
	}
	s.Meta.Groups[0].Steps[paramName(k)] = int(from.Step)
	slots, err := checkpoint.Tensors(from, paramName(k)+".", autodiff.FromRaw)
	if err != nil {
		return nil, err
	}
	for slot, t := range slots {
		s.Tensors[paramName(k)+"."+slot] = t
	}
	return p, p.opt.Load(s)
}
