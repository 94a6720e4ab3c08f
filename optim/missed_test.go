package optim_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/optim"
)

// gradientOf is rows of a table by ids, of which none is there where it is to be bad: so nobody
// knows it before the device has looked.
func gradientOf(r *rand.Rand, table *autodiff.Tensor, rows int, bad bool) *autodiff.Tensor {
	ids := make([]int64, rows)
	for k := range ids {
		ids[k] = r.Int64N(7)
	}
	if bad {
		ids[r.IntN(rows)] = 77
	}
	return autodiff.Embedding(table, autodiff.To(autodiff.New(ids), tableDevice(table)))
}

func tableDevice(t *autodiff.Tensor) device.Device {
	b, err := t.Acquire()
	if err != nil {
		panic(err)
	}
	defer b.Release() //nolint:errcheck // the tensor has one, too
	return b.Device()
}

// stepper is two parameters with their optimizer.
type stepper struct {
	table  *autodiff.Tensor
	params []*autodiff.Tensor
	o      *optim.Local
}

func newStepper(t *testing.T, rule optim.Rule, d device.Device) stepper {
	some := func(n int) []float32 {
		v := make([]float32, n)
		for k := range v {
			v[k] = float32(k%5) - 1.75
		}
		return v
	}
	s := stepper{table: autodiff.To(autodiff.New(some(21), 7, 3), d)}
	for _, rows := range []int{2, 5} {
		s.params = append(s.params, autodiff.To(autodiff.New(some(3*rows), rows, 3), d).RequireGrad())
	}
	var err error
	s.o, err = optim.NewGroups(optim.Named(rule, named(s.params)))
	require.NoError(t, err)
	return s
}

// gives is a gradient for one parameter: rows of it alone, where it is to be sparse.
func (s stepper) gives(k int, seed uint64, bad, sparse bool) *autodiff.Tensor {
	r := rand.New(rand.NewPCG(seed, uint64(k)))
	p := s.params[k].Type()
	rows := p.Shape[0]
	if !sparse {
		return gradientOf(r, s.table, rows, bad)
	}
	ids := make([]int64, 1+r.IntN(4))
	for n := range ids {
		ids[n] = r.Int64N(int64(rows))
	}
	return autodiff.Sparse(rows, autodiff.To(autodiff.New(ids), tableDevice(s.table)), gradientOf(r, s.table, len(ids), bad))
}

// kept is everything: parameters, state and counts. A device may tell of a bad index first.
func (s stepper) kept(t *testing.T) (map[string][]float32, map[string]int) {
	state, err := s.o.State()
	for n := 0; n < 3 && err != nil; n++ {
		require.ErrorIs(t, err, kernels.ErrIndex)
		state, err = s.o.State()
	}
	require.NoError(t, err)
	all := maps.Clone(state.Tensors)
	for k, p := range s.params {
		all[fmt.Sprint(k)] = p
	}
	values := map[string][]float32{}
	for name, x := range all {
		v, err := autodiff.Values[float32](x)
		if errors.Is(err, kernels.ErrIndex) {
			v, err = autodiff.Values[float32](x)
		}
		require.NoError(t, err)
		values[name] = v
	}
	return values, state.Meta.Groups[0].Steps
}

// The definition is an optimizer on the host that is asked for those steps alone that a GPU makes.
func TestAnOptimizerOnAGPUCountsTheStepsThatWereMade(t *testing.T) {
	for name, rule := range map[string]optim.Rule{
		"Adam": optim.Adam{LR: 0.1, Beta2: 0.9}, "AdamW": optim.AdamW{LR: 0.1, AMSGrad: true}, "Adamax": optim.Adamax{LR: 0.1},
		"Adagrad": optim.Adagrad{LR: 0.1, LRDecay: 0.5}, "SGD": optim.SGD{LR: 0.1, Momentum: 0.9, Dampening: 0.5}, "plain": optim.SGD{LR: 0.1},
		"sparse Adam": optim.Adam{LR: 0.1, Beta2: 0.9, Eps: 1e-2}, "sparse Adagrad": optim.Adagrad{LR: 0.1, LRDecay: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			sparse := len(name) > 6 && name[:6] == "sparse"
			for seed := range uint64(soak.Cases(6)) {
				r := rand.New(rand.NewPCG(seed, 5))
				d := faultyGPU(t, seed, 1+int(seed%3))
				here, there := newStepper(t, rule, device.Host()), newStepper(t, rule, d)
				for n := range 12 {
					bad, want, have := r.IntN(3) == 0, gradientsBy{}, gradientsBy{}
					for k := range here.params {
						if r.IntN(4) > 0 || k == n%2 {
							have[there.params[k]] = there.gives(k, seed<<8|uint64(n), bad, sparse)
							want[here.params[k]] = here.gives(k, seed<<8|uint64(n), false, sparse)
						}
					}
					switch err := there.o.Step(have); {
					case err != nil:
						require.ErrorIs(t, err, kernels.ErrIndex)
					case !bad:
						require.NoError(t, here.o.Step(want))
					}
					if r.IntN(5) == 0 {
						_, err := autodiff.Sum(there.gives(0, 1, false, false)).Item()
						require.NoError(t, err)
					}
				}
				values, steps := here.kept(t)
				values2, steps2 := there.kept(t)
				require.Equal(t, steps, steps2, "seed %d", seed)
				require.ElementsMatch(t, slices.Collect(maps.Keys(values)), slices.Collect(maps.Keys(values2)))
				for name, v := range values {
					require.InDeltaSlice(t, v, values2[name], 1e-6, "seed %d: %s", seed, name)
				}
				require.NoError(t, d.Close())
			}
		})
	}
}
