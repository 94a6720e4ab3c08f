package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/soak"
)

// best is choose, looked for from the highest step down.
func best(all []having, params int) (step int, live bool) {
	for step = 100; step > 0; step-- {
		var there []int
		everywhere := true
		for _, h := range all {
			if h.Step == step {
				there = append(there, h.Params...)
			}
			everywhere = everywhere && slices.Contains(h.Saved, int64(step))
		}
		slices.Sort(there)
		if len(slices.Compact(there)) == params {
			return step, true
		}
		if everywhere {
			return step, false
		}
	}
	return 0, false
}

func TestTrainingGoesOnFromTheHighestStepThatCanBeHad(t *testing.T) {
	found := map[bool]int{}
	for seed := range uint64(soak.Cases(2000)) {
		r := rand.New(rand.NewPCG(seed, 8))
		params := 1 + r.IntN(4)
		all := make([]having, 1+r.IntN(4))
		for i := range all {
			h := &all[i]
			if h.Step = -1; r.IntN(4) > 0 {
				h.Step = 1 + r.IntN(3)
				for k := range params {
					if r.IntN(2) == 0 {
						h.Params = append(h.Params, k)
					}
				}
			}
			for s := range int64(3) {
				if r.IntN(3) > 0 {
					h.Saved = append(h.Saved, 1+s)
				}
			}
		}
		p := choose(all, params)
		step, live := best(all, params)
		require.Equal(t, step, p.step, "seed %d: %+v", seed, all)
		require.Equal(t, live, len(p.from) > 0, "seed %d: %+v", seed, all)
		for k, rank := range p.from {
			require.Equal(t, step, all[rank].Step)
			require.Contains(t, all[rank].Params, k)
		}
		found[live]++
	}
	require.Greater(t, found[true], 100)
	require.Greater(t, found[false], 100)
}

func TestAParameterGoesOnBitForBitAfterItWasMovedAndAfterItWasSaved(t *testing.T) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	tr := &trainer{settings: settings{hidden: 4, batch: 8, lr: 0.1, seed: 1, epochs: 1}, data: data}
	d, err := checkpoint.Open(t.TempDir(), checkpoint.Config{})
	require.NoError(t, err)
	first := tr.firstParams()[2]
	grad := autodiff.RandFrom(rand.New(rand.NewPCG(1, 1)), first.Shape()...)
	p, err := newParam(tr.rule(), 2, first, nil)
	require.NoError(t, err)
	step := func(p *param) []float32 {
		require.NoError(t, p.opt.Step(map[*autodiff.Tensor]*autodiff.Tensor{p.value: grad}))
		v, err := autodiff.Values[float32](p.value)
		require.NoError(t, err)
		return v
	}
	for n := range 4 { // before the first step, there is no momentum
		m, err := p.move()
		require.NoError(t, err)
		moved, err := newParam(tr.rule(), 2, autodiff.Scale(m.Value, 1), &m.State) // a copy, as one that has travelled is
		require.NoError(t, err)
		s := shard{step: n, params: map[int]*param{2: p}}
		pieces, err := s.pieces()
		require.NoError(t, err)
		require.NoError(t, d.Save(t.Context(), checkpoint.Part{Step: int64(n), Pieces: pieces}))
		k, err := d.Latest()
		require.NoError(t, err)
		saved, err := readParam(tr.rule(), k, 2, first.Shape())
		require.NoError(t, err)
		_, err = readParam(tr.rule(), k, 1, nil)
		require.ErrorContains(t, err, "param1")
		_, err = readParam(tr.rule(), k, 2, []int{4, 3})
		require.ErrorContains(t, err, "--hidden")
		require.NoError(t, k.Close())
		want := step(p)
		require.Equal(t, want, step(moved))
		require.Equal(t, want, step(saved))
	}
}

func TestACheckpointThatWasCutIsPassedOver(t *testing.T) {
	folder := t.TempDir()
	d, err := checkpoint.Open(folder, checkpoint.Config{})
	require.NoError(t, err)
	var said bytes.Buffer
	tr := &trainer{saved: d, out: newReporter(settings{}, &said)}
	for step := range int64(2) {
		piece := checkpoint.Piece{Name: "x", DType: "F32", Shape: []int{2}, Data: littleEndian([]float32{1, 2})}
		require.NoError(t, d.Save(t.Context(), checkpoint.Part{Step: 1 + step, Pieces: []checkpoint.Piece{piece}}))
	}
	steps, err := tr.readable()
	require.NoError(t, err)
	require.Equal(t, []int64{2, 1}, steps)
	files, err := filepath.Glob(filepath.Join(folder, "*2.0", "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Truncate(files[0], 10))
	for range 2 {
		steps, err = tr.readable()
		require.NoError(t, err)
		require.Equal(t, []int64{1}, steps)
	}
	require.Regexp(t, `^the checkpoint of step 2 is refused: corrupt checkpoint: `+regexp.QuoteMeta(files[0])+` has 10 bytes.*\n$`, said.String())
}

func TestEveryExampleIsInOneStepOfAnEpochWhateverTheWorld(t *testing.T) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	tr := &trainer{settings: settings{batch: 100, seed: 1, epochs: 2}, data: data}
	for epoch := range 2 {
		var seen []int
		for step := range tr.perEpoch() {
			rows := tr.rows(epoch*tr.perEpoch() + step)
			world := 1 + step%5
			for rank := range world {
				from, to := share(len(rows), rank, world)
				seen = append(seen, rows[from:to]...)
			}
		}
		slices.Sort(seen)
		require.Len(t, slices.Compact(seen), len(data.Train.Y))
		require.Len(t, seen, len(data.Train.Y))
	}
	require.NotEqual(t, tr.rows(0), tr.rows(tr.perEpoch()))
}
