package optim_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
)

// trained is what came of training an embedding and a layer on it for some batches.
type trained struct {
	params []float32
	told   []string // where it was told of a bad index: "backward 3"
}

// trainOn trains on a GPU; the batch numbered bad has an id that is not there. Where it looks, it
// reads each loss.
func trainOn(t assert.TestingT, d *device.Accelerator, bad int, looks bool) (r trained) {
	src := rand.New(rand.NewPCG(1, 1))
	s := nn.Sequential{nn.NewEmbedding(src, 10, 8), nn.NewLinear(src, 8, 4)}
	moved := nn.To(s, d)
	o, err := optim.New(optim.Adam{LR: 0.1}, s.Params()...)
	if !assert.NoError(t, errors.Join(moved, err)) {
		return r
	}
	met := func(where string, k int, err error) bool {
		if err != nil {
			assert.ErrorIs(t, err, kernels.ErrIndex)
			r.told = append(r.told, fmt.Sprint(where, " ", k))
		}
		return err != nil
	}
	for k := range 6 {
		ids := []int64{1, 2, 3}
		if k == bad {
			ids[1] = 77
		}
		loss := nn.CrossEntropy(s.Forward(autodiff.To(autodiff.New(ids), d)), autodiff.To(autodiff.New([]int64{0, 1, 2}), d))
		grads, err := autodiff.Backward(loss)
		if met("backward", k, err) {
			continue
		}
		of := map[*autodiff.Tensor]*autodiff.Tensor{}
		for _, p := range s.Params() {
			of[p] = grads.Of(p)
		}
		met("step", k, o.Step(of))
		if looks {
			_, err := loss.Item()
			met("loss", k, err)
		}
	}
	for k, p := range s.Params() {
		v, err := autodiff.Values[float32](p)
		if met("parameter", k, err) {
			v, err = autodiff.Values[float32](p)
			assert.NoError(t, err, "it holds what it was stepped to before")
		}
		r.params = append(r.params, v...)
	}
	return r
}

func faultyGPU(t *testing.T, seed uint64, streams int) *device.Accelerator {
	d, err := gpu.Config{Streams: streams}.On(testgpu.Open(t, ptx.Config{Late: rand.New(rand.NewPCG(seed, 3))}), device.CUDA(0))
	require.NoError(t, err)
	return d
}

func TestATrainingThatMeetsABadIndexOnAGPUIsToldOnceAndGoesOn(t *testing.T) {
	for seed, want := range []string{"loss 2", "parameter 0"} {
		d := faultyGPU(t, uint64(seed), 0)
		r := trainOn(t, d, 2, seed == 0)
		require.Equal(t, []string{want}, r.told)
		require.NoError(t, d.Check(), "it has been told")
		require.NoError(t, d.Close())
	}
}

func TestOfTwoTrainingsOnOneGPUOnlyTheOneThatMeetsABadIndexIsDisturbed(t *testing.T) {
	for seed := range uint64(soak.Cases(4)) {
		for _, looks := range []bool{true, false} {
			d := faultyGPU(t, seed, 1+int(seed%2)*3)
			clean := trainOn(t, d, -1, looks)
			require.Empty(t, clean.told)
			var both sync.WaitGroup
			both.Go(func() {
				r := trainOn(t, d, 2, looks)
				assert.NotEmpty(t, r.told, "seed %d: it met one", seed)
				for _, v := range r.params {
					assert.False(t, math.IsNaN(float64(v)), "seed %d: told: %v", seed, r.told)
				}
			})
			both.Go(func() {
				assert.Equal(t, clean, trainOn(t, d, -1, looks), "seed %d", seed)
			})
			both.Wait()
			require.NoError(t, d.Check(), "somebody was told")
			require.NoError(t, d.Close())
		}
	}
}
