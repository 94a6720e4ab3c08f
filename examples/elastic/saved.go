package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/optim"
)

// history is the loss of every step so far, and where the workers changed.
type history struct {
	Losses []float64
	Marks  []mark
	World  int // of the last step
}

// mark is a step before which the workers have changed.
type mark struct{ Step, World int }

// notes are what a checkpoint holds beside tensors.
type notes struct {
	Seed    uint64 // which rows are for the test
	Batch   int    // rows of a step
	Optim   optim.Meta
	History history
}

// save begins to write a checkpoint, beside the training, when the one before is whole.
func (t *trainer) save(c context.Context) error {
	if err := t.saving.wait(); err != nil {
		return err
	}
	state, err := t.opt.State()
	if err != nil {
		return err
	}
	note, err := json.Marshal(notes{t.seed, t.batch, state.Meta, t.history})
	if err != nil {
		return err
	}
	values, err := checkpoint.Pieces("model.", maps.Collect(nn.State(t.model)))
	if err != nil {
		return err
	}
	slots, err := checkpoint.Pieces("optim.", state.Tensors)
	if err != nil {
		return err
	}
	part := checkpoint.Part{Step: int64(len(t.Losses)), Pieces: append(values, slots...), Notes: map[string]string{"notes": string(note)}}
	t.saving.last, err = t.saved.Start(c, part)
	return err
}

// saving is the checkpoint that is under way.
type saving struct{ last *checkpoint.Pending }

// wait returns when it is whole, or why it is not.
func (s saving) wait() error {
	if s.last == nil {
		return nil
	}
	return s.last.Wait()
}

// resume takes over the newest checkpoint that can be read: whoever wrote the newest may have had a
// disk that was full. Without one training begins at the beginning.
func (t *trainer) resume() error {
	steps, err := t.saved.Steps()
	for _, step := range steps {
		err := t.restore(step)
		if err == nil {
			return nil
		}
		if errors.Is(err, errOther) {
			return err
		}
		t.out.refused(step, err)
	}
	return err
}

// errOther is that a checkpoint is of another training.
var errOther = errors.New("name another folder (--checkpoints), or give the same")

// restore takes over the checkpoint of a step; where it fails nothing has changed.
func (t *trainer) restore(step int64) error {
	k, err := t.saved.At(step)
	if err != nil {
		return err
	}
	defer k.Close() //nolint:errcheck // it was only read
	values, err := checkpoint.Tensors(k, "model.", autodiff.FromRaw)
	if err != nil {
		return err
	}
	var state optim.State
	if state.Tensors, err = checkpoint.Tensors(k, "optim.", autodiff.FromRaw); err != nil {
		return err
	}
	var n notes
	if err := json.Unmarshal([]byte(k.Notes["notes"]), &n); err != nil {
		return err
	}
	if n.Seed != t.seed {
		return fmt.Errorf("the checkpoint of step %d is of --seed %d, and this is --seed %d: rows that it has learnt would test it; %w", step, n.Seed, t.seed, errOther)
	}
	if n.Batch != t.batch {
		return fmt.Errorf("the checkpoint of step %d is of --batch %d, and this is --batch %d: its steps are other rows; %w", step, n.Batch, t.batch, errOther)
	}
	if err := nn.Load(t.model, values); err != nil {
		return fmt.Errorf("the checkpoint of step %d is of another --hidden: %w; %w", step, err, errOther)
	}
	state.Meta, t.history = n.Optim, n.History
	return t.opt.Load(state)
}
