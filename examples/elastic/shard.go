package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/optim"
)

// shard is what one worker has of the training at a step: some of the parameters, each with its optimizer, and what all have alike.
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

// newParam takes over a value, and where there is one a state.
func newParam(rule optim.Rule, value *autodiff.Tensor, s *optim.State) (*param, error) {
	p := &param{value: value.RequireGrad()}
	var err error
	if p.opt, err = optim.New(rule, p.value); err == nil && s != nil {
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
		for name, x := range state.Tensors { // "0." and what the rule calls it
			tensors[paramName(k)+strings.TrimPrefix(name, "0")] = x
		}
	}
	var out []checkpoint.Piece
	for name, x := range tensors {
		v, err := autodiff.Values[float32](x)
		if err != nil {
			return nil, err
		}
		out = append(out, checkpoint.Piece{Name: name, DType: "F32", Shape: x.Shape(), Data: littleEndian(v)})
	}
	return out, nil
}

// readParam is a parameter from a checkpoint, which is to have a shape.
func readParam(rule optim.Rule, from *checkpoint.Checkpoint, k int, shape []int) (*param, error) {
	read := func(name string) (*autodiff.Tensor, error) {
		x, err := from.Read(name)
		if err != nil {
			return nil, err
		}
		v, err := numbers[float32](x.Data)
		if err != nil {
			return nil, err
		}
		return autodiff.New(v, x.Shape...), nil
	}
	value, err := read(paramName(k))
	if err != nil {
		return nil, err
	}
	if !slices.Equal(value.Shape(), shape) {
		return nil, elastic.Final(fmt.Errorf("the checkpoint of step %d has %s with the shape %v instead of %v; it is of another --hidden: name another folder, or the same --hidden",
			from.Step, paramName(k), value.Shape(), shape))
	}
	p, err := newParam(rule, value, nil)
	if err != nil {
		return nil, err
	}
	s, err := p.opt.State()
	if err != nil {
		return nil, err
	}
	s.Meta.Steps[0] = int(from.Step)
	for _, name := range from.Names() {
		if slot, ok := strings.CutPrefix(name, paramName(k)+"."); ok {
			if s.Tensors["0."+slot], err = read(name); err != nil {
				return nil, err
			}
		}
	}
	return p, p.opt.Load(s)
}
