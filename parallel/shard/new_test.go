package shard_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
)

func TestParametersThatDifferAreNamedOnAllRanks(t *testing.T) {
	w := newWorld(t, 3)
	for what, k := range map[string]struct {
		other   func() [][]*autodiff.Tensor
		here    string
		there   string
		configs shard.Config
	}{
		"a shape": {other: func() [][]*autodiff.Tensor { return vectors(5, 8) }, here: "1 of layer 1: float32(7)", there: "1 of layer 1: float32(8)"},
		"a dtype": {other: func() [][]*autodiff.Tensor {
			l := vectors(5)
			return append(l, []*autodiff.Tensor{autodiff.Ones(device.Float64, 7).RequireGrad()})
		}, here: "1 of layer 1: float32(7)", there: "1 of layer 1: float64(7)"},
		"fewer": {other: func() [][]*autodiff.Tensor { return vectors(5) }, here: "1 of layer 1: float32(7)"},
		"another layer": {other: func() [][]*autodiff.Tensor {
			l := vectors(5, 7)
			return [][]*autodiff.Tensor{{l[0][0], l[1][0]}}
		}, here: "1 of layer 1: float32(7)", there: "1 of layer 0: float32(7)"},
	} {
		for r, err := range w.Attempt(func(r int) error {
			layers := vectors(5, 7)
			if r == 2 {
				layers = k.other()
			}
			_, err := shard.New(t.Context(), w.Gs[r], layers, shard.Config{})
			if layers[0][0].RequiresGrad() && !layers[0][0].IsLeaf() {
				return errors.New("a parameter has changed")
			}
			return err
		}) {
			var e *parallel.DifferenceError
			require.ErrorAs(t, err, &e, "%s, rank %d", what, r)
			require.Equal(t, parallel.DifferenceError{Rank: 2, Here: k.here, There: k.there, Worker: "worker0", Other: "worker2"}, *e, what)
		}
	}
	for _, err := range w.Attempt(func(r int) error {
		_, err := shard.New(t.Context(), w.Gs[r], vectors(5), shard.Config{Stage: shard.Stage(r % 2)})
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrParameters)
		require.ErrorContains(t, err, `"Config.Stage: 0" where rank 1, worker1, has "Config.Stage: 1"`)
	}
}

func TestWhatCannotBeSpreadIsToldToAllRanks(t *testing.T) {
	w := newWorld(t, 2)
	stepped := vectors(3)
	_, err := optim.New(optim.SGD{LR: 1}, stepped[0]...)
	require.NoError(t, err)
	twice := vectors(3, 4)
	owned := vectors(3)
	arena := autodiff.NewArena("test")
	defer arena.Free()
	require.NoError(t, arena.Adopt(owned[0][0]))
	for says, k := range map[string]struct {
		layers [][]*autodiff.Tensor
		config shard.Config
	}{
		"there are no layers":            {},
		"layer 1 has no parameters":      {layers: [][]*autodiff.Tensor{vectors(3)[0], nil}},
		"1 is in layers 0 and 1":         {layers: [][]*autodiff.Tensor{{twice[0][0], twice[1][0]}, {twice[1][0]}}},
		"1 is in layers 1 and 1":         {layers: [][]*autodiff.Tensor{vectors(1)[0], {twice[0][0], twice[1][0], twice[0][0]}}},
		"must be a leaf":                 {layers: [][]*autodiff.Tensor{{autodiff.Ones(device.Float32, 3)}}},
		"a leaf of nobody's":             {layers: owned},
		"has an optimizer already":       {layers: stepped},
		"Config.Stage is 7":              {layers: vectors(3), config: shard.Config{Stage: 7}},
		"Config.Keep has layer 1 of 1":   {layers: vectors(3), config: shard.Config{Keep: []int{0, 1}}},
		"Config.Names has no name":       {layers: vectors(3), config: shard.Config{Names: map[string]*autodiff.Tensor{"a": twice[0][0]}}},
		"2 names of 1 parameters":        {layers: twice[:1], config: shard.Config{Names: map[string]*autodiff.Tensor{"a": twice[0][0], "b": twice[1][0]}}},
		"is the absent tensor of a test": {layers: [][]*autodiff.Tensor{{autodiff.Failed(errors.New("is the absent tensor of a test"))}}},
	} {
		for r, err := range w.Attempt(func(r int) error {
			layers, config := k.layers, k.config
			if r == 0 {
				layers, config = vectors(3), shard.Config{}
			}
			_, err := shard.New(t.Context(), w.Gs[r], layers, config)
			return err
		}) {
			var f *parallel.FailureError
			require.ErrorAs(t, err, &f, "%s, rank %d", says, r)
			require.Equal(t, 1, f.Rank)
			require.ErrorContains(t, err, says)
			require.Equal(t, r == 1, errors.Is(err, parallel.ErrParameters))
		}
	}
}
