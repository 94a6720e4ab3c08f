package gpus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/shard"
)

// trainSpread trains a model that is spread over a group, on this rank's device, and gives the
// losses of its rows.
func trainSpread(c context.Context, g *collective.Group, dev device.Device) (losses []float64, err error) {
	model := nn.NewMLP(rand.New(rand.NewPCG(1, 1)), autodiff.GELU, 16, 32, 24, 8)
	var layers [][]*autodiff.Tensor
	for _, l := range model {
		if ps := l.Params(); len(ps) > 0 {
			layers = append(layers, ps)
		}
	}
	s, err := shard.New(c, g, layers, shard.Config{Device: dev})
	if err != nil {
		return nil, err
	}
	opt, err := optim.NewGroups(s.Named(optim.Adam{LR: 0.01}))
	if err != nil {
		return nil, err
	}
	src := rand.New(rand.NewPCG(2, uint64(g.Rank())))
	x, y := autodiff.To(autodiff.NormalFrom(src, 1, 6, 16), dev), autodiff.To(autodiff.New([]int64{1, 7, 3, 0, 5, 2}), dev)
	for range 8 {
		owner := autodiff.NewArena("step")
		in := x.Copy()
		if err := owner.Adopt(in); err != nil {
			return nil, err
		}
		loss, err := spreadStep(c, s, opt, model, in, y)
		owner.Free()
		if err != nil {
			return nil, err
		}
		losses = append(losses, loss)
	}
	return losses, s.Finish(c)
}

func spreadStep(c context.Context, s *shard.Shards, opt *optim.Local, model nn.Sequential, x, y *autodiff.Tensor) (float64, error) {
	k := 0
	for _, l := range model {
		if len(l.Params()) == 0 {
			x = l.Forward(x)
			continue
		}
		x = s.Layer(c, k, func() *autodiff.Tensor { return l.Forward(x) })
		k++
	}
	loss := autodiff.CrossEntropy(x, y)
	grads, err := s.Backward(c, loss, 6)
	if err != nil {
		return 0, err
	}
	if err := opt.Step(grads); err != nil {
		return 0, err
	}
	return loss.Item()
}

func TestShardsOnGPUsTrainAsOnTheHost(t *testing.T) {
	var want [2][]float64
	for _, k := range []struct {
		name  string
		gpu   *gpu.Config
		delta float64
	}{{name: "the host"}, {"float32", &gpu.Config{}, 1e-4}, {"bfloat16", &gpu.Config{Precision: gpu.BF16}, 0.05}} {
		t.Run(k.name, func(t *testing.T) {
			ws := rpctest.World(t, rpctest.Net(), 2)
			var got [2][]float64
			for r, err := range rpctest.Attempt(2, func(r int) (err error) {
				dev := device.Device(device.Host())
				if k.gpu != nil {
					a, err := k.gpu.On(testgpu.Open(t, ptx.Config{Late: rand.New(rand.NewPCG(uint64(r), 3))}), device.CUDA(0))
					if err != nil {
						return err
					}
					defer a.Close()
					dev = a
				}
				g, err := collective.Open(t.Context(), ws[r], "shards")
				if err != nil {
					return err
				}
				got[r], err = trainSpread(t.Context(), g, dev)
				if n := dev.Stats().LiveBytes; k.gpu != nil && n != 0 {
					err = errors.Join(err, fmt.Errorf("%d bytes of the GPU were not given back", n))
				}
				return errors.Join(err, g.Barrier(t.Context()), g.Close())
			}) {
				require.NoError(t, err, "rank %d", r)
			}
			if k.gpu == nil {
				want = got
				require.Less(t, want[0][7], want[0][0]/1.5)
				return
			}
			for r := range got {
				require.InDeltaSlice(t, want[r], got[r], k.delta)
			}
		})
	}
}
