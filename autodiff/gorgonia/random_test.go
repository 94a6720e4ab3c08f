package gorgonia

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
)

// randomTheirs grows a graph of Gorgonia's functions: each takes nodes that are there and squashes
// its result, so that values stay small. The result is a number that depends on all.
type randomTheirs struct {
	*rand.Rand
	nodes []*gorgonia.Node
}

func (r *randomTheirs) any() *gorgonia.Node { return r.nodes[r.IntN(len(r.nodes))] }

// with is a node of a rank, or nil.
func (r *randomTheirs) with(rank int) *gorgonia.Node {
	for range 20 {
		if n := r.any(); len(n.Shape()) == rank {
			return n
		}
	}
	return nil
}

// like is a node of the same shape; n itself where there is no other.
func (r *randomTheirs) like(n *gorgonia.Node) *gorgonia.Node {
	for range 20 {
		if m := r.any(); fmt.Sprint(m.Shape()) == fmt.Sprint(n.Shape()) {
			return m
		}
	}
	return n
}

// grow applies one function, or nothing where it finds no operands.
func (r *randomTheirs) grow() (*gorgonia.Node, error) {
	x := r.any()
	rank := len(x.Shape())
	switch r.IntN(12) {
	case 0:
		fs := []func(*gorgonia.Node) (*gorgonia.Node, error){gorgonia.Tanh, gorgonia.Sigmoid, gorgonia.Square, gorgonia.Neg, gorgonia.Softplus,
			gorgonia.Sin, gorgonia.Exp, gorgonia.Rectify}
		return fs[r.IntN(len(fs))](x)
	case 1:
		fs := []func(a, b *gorgonia.Node) (*gorgonia.Node, error){gorgonia.Add, gorgonia.Sub, gorgonia.HadamardProd}
		return fs[r.IntN(len(fs))](x, r.like(x))
	case 2:
		if s := r.with(0); s != nil && rank > 0 {
			return gorgonia.HadamardProd(s, x)
		}
	case 3:
		if y := r.with(2); y != nil && rank == 2 && x.Shape()[1] == y.Shape()[0] && x.Shape()[0]*y.Shape()[1] <= mostTheirs {
			return gorgonia.Mul(x, y)
		}
	case 4:
		if v := r.with(1); v != nil && rank == 2 && x.Shape()[1] == v.Shape()[0] {
			return gorgonia.Mul(x, v)
		}
	case 5:
		if v := r.with(1); v != nil && rank == 1 && v.Shape()[0] == x.Shape()[0] {
			return gorgonia.Mul(x, v)
		}
	case 6:
		if rank > 0 {
			return gorgonia.Sum(x, r.IntN(rank))
		}
	case 7:
		if rank > 0 {
			return gorgonia.Mean(x, r.IntN(rank))
		}
	case 8:
		if rank == 2 {
			return gorgonia.Transpose(x)
		}
	case 9:
		if rank > 0 && x.Shape()[0] > 2 {
			return gorgonia.Slice(x, gorgonia.S(1, 3))
		}
	case 10:
		if v := r.with(1); v != nil && rank == 2 && x.Shape()[1] == v.Shape()[0] {
			return gorgonia.BroadcastAdd(x, v, nil, []byte{0})
		}
	case 11:
		if y := r.like(x); rank > 0 && x.Shape().TotalSize() <= mostTheirs/2 {
			return gorgonia.Concat(r.IntN(rank), x, y)
		}
	}
	return nil, nil
}

// mostTheirs is how many elements a value has at most: outer products and what is joined again and
// again would grow without end.
const mostTheirs = 40_000

func TestRandomGraphsOfGorgoniasGiveTheResultsAndGradientsOfItsOwnMachine(t *testing.T) {
	sizes := thresholds.Around(thresholds.Programs, thresholds.Bytes)
	for seed := range uint64(soak.Cases(60)) {
		long, tol := 4, 1e-10
		if seed%5 == 1 { // three rows of as many elements as at a threshold
			at, side := sizes.Next()
			long, tol = max((at.Elems(8, 0)+2)/3+side, 3), 1e-8
		}
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			g, r := gorgonia.NewGraph(), &randomTheirs{Rand: rng(seed)}
			var in []*gorgonia.Node
			var args []arg
			for k, s := range [][]int{{3, 3}, {3, long}, {long}, {3}, {}} {
				in = append(in, leafOf(g, tensor.Float64, fmt.Sprint("in", k), s))
				args = append(args, normal(r.Rand, s...))
			}
			r.nodes = append(r.nodes, in...)
			for len(r.nodes) < 25 {
				n, err := r.grow()
				require.NoError(t, err)
				if n != nil {
					r.nodes = append(r.nodes, must(gorgonia.Tanh(n)))
				}
			}
			loss := in[4]
			for _, n := range r.nodes {
				loss = must(gorgonia.Add(loss, must(gorgonia.Sum(n))))
			}
			f, err := From(in, []node{loss})
			require.NoError(t, err)
			grads, err := gorgonia.Grad(loss, in...)
			require.NoError(t, err)
			for k, a := range args {
				require.NoError(t, gorgonia.Let(in[k], theirValue(a)))
			}
			read := make([]gorgonia.Value, len(in)+1)
			gorgonia.Read(loss, &read[len(in)])
			for k, d := range grads {
				gorgonia.Read(d, &read[k])
			}
			vm := gorgonia.NewTapeMachine(g)
			defer vm.Close() //nolint:errcheck // it holds nothing
			require.NoError(t, vm.RunAll())
			o := outcomeOf(t, f, args, device.Float64)
			requireClose(t, theirNumbers(t, read[len(in)]), o.y, tol, "loss")
			for k := range in {
				want := theirNumbers(t, read[k])
				for i := range want {
					want[i] *= weights(1)[0] // Grad begins with 1
				}
				requireClose(t, want, o.grads[k], 10*tol, fmt.Sprint("gradient ", k))
			}
		})
	}
	require.Empty(t, sizes.Missing())
}
