package shard_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
	"github.com/weft-project/weft/store"
)

// saver is a rank that trains, and may be saved.
type saver struct {
	c   context.Context
	r   int
	n   int
	m   model
	s   *shard.Shards
	opt *optim.Local
}

func newSaver(w *world, r int, widths ...int) (k *saver, err error) {
	k = &saver{c: w.T.Context(), r: r, n: len(w.Gs), m: newModel(uint64(7+r), widths...)}
	if k.s, err = shard.New(k.c, w.Gs[r], k.m.layers(), shard.Config{Names: k.m.names()}); err != nil {
		return nil, err
	}
	k.opt, err = optim.NewGroups(k.s.Named(optim.Adam{LR: 0.01}))
	return k, err
}

// train makes some steps, and gives the losses of this rank's rows, times their number.
func (k *saver) train(from, to uint64) (losses []float64, err error) {
	rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 14}
	data := newTable()
	for step := from; step < to; step++ {
		mine := rows.Of(step, k.r, k.n)
		x, y, err := data.rows(nil, mine)
		if err != nil {
			return nil, err
		}
		loss := autodiff.CrossEntropy(k.m.sharded(k.c, k.s, x), y)
		grads, err := k.s.Backward(k.c, loss, len(mine))
		if err == nil {
			err = k.opt.Step(grads)
		}
		if err != nil {
			return nil, err
		}
		v, err := loss.Item()
		if err != nil {
			return nil, err
		}
		losses = append(losses, v*float64(len(mine)))
	}
	return losses, nil
}

func (k *saver) save(dir *checkpoint.Dir, meet store.Store, step int64) error {
	pieces, notes, err := k.s.Pieces(k.opt)
	if err != nil {
		return err
	}
	return dir.Save(k.c, checkpoint.Part{Step: step, Rank: k.r, World: k.n, Store: meet, Pieces: pieces, Notes: notes})
}

func (k *saver) load(dir *checkpoint.Dir) error {
	at, err := dir.Latest()
	if err != nil {
		return err
	}
	return errors.Join(k.s.Load(k.c, at, k.opt), at.Close())
}

// contents are all tensors of the newest checkpoint.
func contents(t *testing.T, dir *checkpoint.Dir) (all map[string][]byte, notes map[string]string) {
	at, err := dir.Latest()
	require.NoError(t, err)
	defer at.Close()
	all = map[string][]byte{}
	for _, name := range at.Names() {
		p, err := at.Read(name)
		require.NoError(t, err)
		all[name] = p.Data
	}
	return all, at.Notes
}

func openDir(t *testing.T) *checkpoint.Dir {
	dir, err := checkpoint.Open(filepath.Join(t.TempDir(), "all"), checkpoint.Config{})
	require.NoError(t, err)
	return dir
}

// savedByFour is a checkpoint after 4 steps, and the losses of 4 more.
func savedByFour(t *testing.T, widths []int) (dir *checkpoint.Dir, losses [][]float64) {
	dir = openDir(t)
	losses = make([][]float64, 4)
	t.Run("saved", func(t *testing.T) {
		w := newWorld(t, 4)
		meet := store.NewMemory()
		defer meet.Close()
		w.Each(func(r int) error {
			k, err := newSaver(w, r, widths...)
			if err == nil {
				_, err = k.train(0, 4)
			}
			if err == nil {
				err = k.save(dir, meet, 4)
			}
			if err == nil {
				losses[r], err = k.train(4, 8)
			}
			return err
		})
	})
	return dir, losses
}

// sums are over all ranks.
func sums(of [][]float64) []float64 {
	all := make([]float64, len(of[0]))
	for _, x := range of {
		for i, v := range x {
			all[i] += v
		}
	}
	return all
}

func TestACheckpointIsReadByAnyNumberOfRanks(t *testing.T) {
	for name, widths := range map[string][]int{"several layers": {features, 31, 17, 8, classes}, "tiny layers": {features, 1, 1, classes}} {
		t.Run(name, func(t *testing.T) {
			dir, want := savedByFour(t, widths)
			tensors, notes := contents(t, dir)
			for ranks := 1; ranks <= 4; ranks++ {
				t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
					w := newWorld(t, ranks)
					meet, again := store.NewMemory(), openDir(t)
					defer meet.Close()
					got := make([][]float64, ranks)
					w.Each(func(r int) error {
						k, err := newSaver(w, r, widths...)
						if err == nil {
							err = k.load(dir)
						}
						if err == nil {
							err = k.save(again, meet, 5)
						}
						if err == nil {
							got[r], err = k.train(4, 8)
						}
						return err
					})
					same, notesAgain := contents(t, again)
					require.Equal(t, tensors, same)
					require.Equal(t, notes, notesAgain)
					require.InDeltaSlice(t, sums(want), sums(got), 1e-4)
					if ranks == 4 {
						require.Equal(t, want, got)
					}
				})
			}
			values, err := latestValues(dir)
			require.NoError(t, err)
			require.NoError(t, nn.Load(newModel(3, widths...).Sequential, values))
		})
	}
}

func latestValues(dir *checkpoint.Dir) (map[string]*autodiff.Tensor, error) {
	at, err := dir.Latest()
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return shard.Values(at)
}

func TestACheckpointOfAnotherModelIsRefusedOnAllRanks(t *testing.T) {
	widths := []int{features, 7, classes}
	dir, _ := savedByFour(t, widths)
	for says, other := range map[string][]int{
		"0.W is (12, 7) there, and (12, 8) here": {features, 8, classes},
		"it lacks the parameters 4.":             {features, 7, 7, classes},
		"parameters that are not here: 2.":       {features, 7},
	} {
		t.Run(says, func(t *testing.T) {
			w := newWorld(t, 2)
			for r, err := range w.Attempt(func(r int) error {
				k, err := newSaver(w, r, other...)
				if err != nil {
					return err
				}
				return k.load(dir)
			}) {
				require.ErrorIs(t, err, shard.ErrCheckpoint, "rank %d", r)
				require.ErrorIs(t, err, parallel.ErrFailed)
				require.ErrorContains(t, err, says)
			}
		})
	}
	t.Run("not of shards", func(t *testing.T) {
		w := newWorld(t, 2)
		plain := openDir(t)
		require.NoError(t, plain.Save(t.Context(), checkpoint.Part{Step: 1}))
		for _, err := range w.Attempt(func(r int) error {
			k, err := newSaver(w, r, widths...)
			if err != nil {
				return err
			}
			if r == 0 { // the other one has the right one, and is told
				return k.load(plain)
			}
			return k.load(dir)
		}) {
			require.ErrorIs(t, err, parallel.ErrFailed)
			require.ErrorContains(t, err, "it has no note")
		}
		_, err := latestValues(plain)
		require.ErrorIs(t, err, shard.ErrCheckpoint)
	})
	t.Run("another optimizer", func(t *testing.T) {
		w := newWorld(t, 2)
		for _, err := range w.Attempt(func(r int) error {
			k, err := newSaver(w, r, widths...)
			if err == nil {
				k.opt, err = optim.NewGroups(k.s.Named(optim.SGD{LR: 1, Momentum: 0.5}))
			}
			if err != nil {
				return err
			}
			return k.load(dir)
		}) {
			require.ErrorIs(t, err, optim.ErrState)
			require.ErrorIs(t, err, parallel.ErrFailed)
		}
	})
}
