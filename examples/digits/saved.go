package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic/checkpoint"
)

// saver saves a model in checkpoints. Those are the same whatever workers there are: the one that
// leads writes all, by name. A nil saver saves nothing.
type saver struct {
	dir   *checkpoint.Dir
	every int
	run   string // the settings that a checkpoint is of
	last  int    // step that was saved or loaded
}

// openSaved opens the checkpoints, and has the model go on from the newest if it is to: losses are
// those of the steps so far.
func (s settings) openSaved(c context.Context, m model, stderr io.Writer) (saved *saver, losses []float64, err error) {
	if s.checkpoint == "" {
		return nil, nil, nil
	}
	dir, err := checkpoint.Open(s.checkpoint, checkpoint.Config{})
	if err == nil {
		err = usable(s.checkpoint)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--checkpoint: %w", err)
	}
	saved = &saver{dir: dir, every: s.every, run: s.fingerprint()}
	k, err := dir.Latest()
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		if s.resume {
			fmt.Fprintf(stderr, "digits: no checkpoint in %s yet: training starts anew\n", s.checkpoint)
		}
		return saved, nil, nil
	case err != nil:
		return nil, nil, err
	}
	defer k.Close() //nolint:errcheck // it was only read
	if !s.resume {
		return nil, nil, fmt.Errorf("%s has a checkpoint of step %d; go on from it with --resume, or name another folder", s.checkpoint, k.Step)
	}
	if losses, err = saved.load(c, m, k); err != nil {
		return nil, nil, fmt.Errorf("checkpoint of step %d in %s: %w", k.Step, s.checkpoint, err)
	}
	return saved, losses, nil
}

// usable tries to write in the folder: steps whose checkpoint cannot be saved are lost.
func usable(folder string) error {
	file, err := os.CreateTemp(folder, ".try-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// fingerprint is what must be the same where training goes on: the network, the optimizer, and what
// decides which rows and rates come next.
func (s settings) fingerprint() string {
	run := fmt.Sprintf("--data %q --seed %d --batch %d --hidden %d --optimizer %s --lr %g --dropout %g --schedule %s",
		s.data, s.seed, s.batch, s.hidden, s.optimizer, s.lr, s.dropout, s.schedule)
	if s.schedule == "cosine" {
		run += fmt.Sprintf(" --epochs %d", s.epochs)
	}
	return run
}

func (v *saver) due(step int) bool { return v != nil && step%v.every == 0 }

// save saves what the next step depends on, if it is not there yet.
func (v *saver) save(c context.Context, m model, losses []float64) error {
	if v == nil || len(losses) == v.last {
		return nil
	}
	k, err := m.keep(c)
	if err != nil {
		return err
	}
	k.Net["losses"] = autodiff.New(losses)
	net, err := checkpoint.Pieces("net.", k.Net)
	if err != nil {
		return err
	}
	slots, err := checkpoint.Pieces("optim.", k.Optim.Tensors)
	if err != nil {
		return err
	}
	meta, err := json.Marshal(k.Optim.Meta)
	if err != nil {
		return err
	}
	v.last = len(losses)
	return v.dir.Save(c, checkpoint.Part{
		Step: int64(len(losses)), Pieces: append(net, slots...), Notes: map[string]string{"run": v.run, "optim": string(meta)},
	})
}

// load has the model go on from a checkpoint.
func (v *saver) load(c context.Context, m model, from *checkpoint.Checkpoint) (losses []float64, err error) {
	if run := from.Notes["run"]; run != v.run {
		return nil, fmt.Errorf("it is of a run with %s, and this one has %s; give the same, or name another folder", run, v.run)
	}
	var k kept
	if k.Net, err = checkpoint.Tensors(from, "net.", autodiff.FromRaw); err != nil {
		return nil, err
	}
	if k.Optim.Tensors, err = checkpoint.Tensors(from, "optim.", autodiff.FromRaw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(from.Notes["optim"]), &k.Optim.Meta); err != nil {
		return nil, err
	}
	if losses, err = autodiff.Values[float64](k.Net["losses"]); err != nil {
		return nil, err
	}
	delete(k.Net, "losses")
	v.last = len(losses)
	return losses, m.restore(c, k)
}
