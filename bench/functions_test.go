package bench

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

const peer = "worker1"

type pair struct{ A, B *autodiff.Tensor }

// forwarding is a call of a layer that lies at the callee.
type forwarding struct {
	Layer rpc.RRef[*nn.Linear]
	X     *autodiff.Tensor
}

// linearSize is a linear layer with the weights that a seed gives, as torch/dist_autograd.py makes
// them.
type linearSize struct {
	Seed    uint64
	In, Out int
}

// functions are what worker1 serves. References that arrive are the callee's to release.
func functions() []rpc.Function {
	return []rpc.Function{empty, add, numel, readAll, sinkTLS, newLinear, params, forward}
}

var (
	empty = rpc.Define("empty", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	add   = rpc.Define("add", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
		return autodiff.Add(in.A, in.B), nil
	})
	numel = rpc.Define("numel", func(_ context.Context, t *autodiff.Tensor) (int, error) {
		return t.Shape().Elems(), nil
	})
	newLinear = rpc.Define("linear", func(_ context.Context, l linearSize) (*nn.Linear, error) {
		return l.layer(), nil
	})
	params = rpc.Define("params", func(c context.Context, layer rpc.RRef[*nn.Linear]) ([]optim.Param, error) {
		defer layer.Release()
		l, err := layer.LocalValue(c)
		if err != nil {
			return nil, err
		}
		return refs(c, l)
	})
	forward = rpc.Define("forward", func(c context.Context, in forwarding) (*autodiff.Tensor, error) {
		defer in.Layer.Release()
		l, err := in.Layer.LocalValue(c)
		if err != nil {
			return nil, err
		}
		return l.Forward(in.X), nil
	})
)

func (l linearSize) layer() *nn.Linear {
	bound := 1 / math.Sqrt(float64(l.In))
	return &nn.Linear{
		W: autodiff.New(hashed(l.Seed, bound, l.In*l.Out), l.In, l.Out).RequireGrad(),
		B: autodiff.New(hashed(l.Seed+1, bound, l.Out)).RequireGrad(),
	}
}

// hashed is numbers in [−bound, bound) from a hash of their index.
func hashed(seed uint64, bound float64, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		h := (uint64(i) + seed<<32) * 0x9E3779B97F4A7C15
		h = (h ^ h>>32) * 0xD6E8FEB86659FD93
		h ^= h >> 32
		out[i] = float32((2*float64(h>>40)/(1<<24) - 1) * bound)
	}
	return out
}

// refs are references to a layer's parameters, on the worker that has it.
func refs(c context.Context, l nn.Layer) ([]optim.Param, error) {
	var out []optim.Param
	for _, p := range l.Params() {
		r, err := rpc.NewRRef(c, p)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// perSecond reports a rate: things of this kind per iteration, by what the iterations took.
func perSecond(b *testing.B, things float64, kind string) {
	b.ReportMetric(things*float64(b.N)/b.Elapsed().Seconds(), fmt.Sprintf("%s/s", kind))
}
