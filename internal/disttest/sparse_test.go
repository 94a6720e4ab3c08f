package disttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// lookupFn is an embedding where the table arrives with the call: its gradient goes back over the
// wire.
func lookupFn() *rpc.Func[pair, *autodiff.Tensor] { return apply("lookup", autodiff.EmbeddingSparse) }

// bagFn looks rows of a table up that stays where it is, and sums each bag.
func bagFn(table *nn.Embedding) *rpc.Func[*autodiff.Tensor, *autodiff.Tensor] {
	return rpc.Define("bag", func(_ context.Context, ids *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Sum(table.Forward(ids), 1), nil
	})
}

func table(r *rand.Rand, v, d int) *autodiff.Tensor {
	return autodiff.Cast(autodiff.NormalFrom(r, 1, v, d), device.Float64).Detach().RequireGrad()
}

func randomIDs(r *rand.Rand, v int, shape ...int) *autodiff.Tensor {
	ids := make([]int64, device.Shape(shape).Elems())
	for i := range ids {
		ids[i] = r.Int64N(int64(v))
	}
	return autodiff.New(ids, shape...)
}

// Lookups on random workers, of a table that some of them have already looked up, changed or handed
// on.
func TestSparseGradientsOverWorkersEqualTheDenseOnesOfOneProcess(t *testing.T) {
	lookup, add := lookupFn(), addFn()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, 3, delays, func(t *testing.T, w *world) {
				r := rand.New(rand.NewPCG(seed, 3))
				tab := table(r, 2+r.IntN(6), 2)
				v := tab.Shape()[0]
				dense := r.IntN(3) == 0
				var ids, weights []*autodiff.Tensor
				var to []int
				for range 1 + r.IntN(4) {
					n := r.IntN(6)
					ids, weights, to = append(ids, randomIDs(r, v, n)), append(weights, table(r, n, 2).Detach()), append(to, r.IntN(3))
				}
				loss := func(look func(i int) *autodiff.Tensor, sum func(a, b *autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
					l := autodiff.Scalar(0.0)
					for i := range ids {
						l = autodiff.Add(l, autodiff.Sum(autodiff.Mul(autodiff.Tanh(look(i)), weights[i])))
					}
					if dense {
						l = autodiff.Add(l, autodiff.Sum(sum(tab, tab)))
					}
					return l
				}
				want := must(autodiff.Backward(loss(func(i int) *autodiff.Tensor { return autodiff.Embedding(tab, ids[i]) }, autodiff.Add)))
				w.pass(t, 0, func(c context.Context) {
					root := loss(func(i int) *autodiff.Tensor { return must(lookup.Call(c, name(to[i]), pair{tab, ids[i]})) },
						func(a, b *autodiff.Tensor) *autodiff.Tensor { return must(add.Call(c, "worker1", pair{a, b})) })
					require.NoError(t, ctx.Backward(c, root))
					g := must(ctx.Gradients(c))[tab]
					require.Equal(t, !dense, g.IsSparse(), "rows stay rows until something dense is added")
					require.InDeltaSlice(t, values(t, want.Of(tab)), values(t, g), 1e-12)
				})
			}, lookup, add)
		})
	}
}

// PyTorch's test_embedding_bag_with_no_grad_tensors: no tensor of the call requires a gradient, two
// backwards in one pass accumulate.
func TestTwoBackwardsOfARemoteEmbeddingBagAccumulateItsSparseGradients(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	emb := &nn.Embedding{Table: table(r, 10, 3), Sparse: true}
	bag := bagFn(emb)
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		ids, weights := autodiff.New([]int64{1, 2, 4, 5, 4, 3, 2, 9}, 2, 4), table(r, 2, 3).Detach()
		loss := func(y *autodiff.Tensor) *autodiff.Tensor { return autodiff.Sum(autodiff.Mul(y, weights)) }
		dense := nn.Embedding{Table: emb.Table}
		want := values(t, must(autodiff.Backward(loss(autodiff.Sum(dense.Forward(ids), 1)))).Of(emb.Table))
		w.pass(t, 0, func(c context.Context) {
			y := loss(must(bag.Call(c, "worker1", ids)))
			require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, y))
			require.NoError(t, ctx.Backward(c, y))
			require.Empty(t, must(ctx.Gradients(c)), "the table is not here")
			g := must(w.part(t, c, 1).Gradients())[emb.Table]
			require.True(t, g.IsSparse())
			for i := range want {
				want[i] *= 2
			}
			require.InDeltaSlice(t, want, values(t, g), 1e-12)
		})
	}, bag)
}

// The whole gradient would take 8 MB.
func TestASparseGradientArrivesAsItsRowsAndCostsNoMoreInThePass(t *testing.T) {
	lookup := lookupFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		tab := autodiff.Ones(device.Float64, 1<<20, 1).RequireGrad()
		w.pass(t, 0, func(c context.Context) {
			rows := must(lookup.Call(c, "worker1", pair{tab, autodiff.New([]int64{5, 7, 5})}))
			loss := autodiff.Sum(rows)
			held := current(c).Arena().Bytes()
			require.NoError(t, ctx.Backward(c, loss))
			at, v, ok := must(ctx.Gradients(c))[tab].Rows()
			require.True(t, ok)
			require.Equal(t, []int64{5, 7}, must(autodiff.Values[int64](at)))
			require.Equal(t, []float64{2, 1}, values(t, v))
			require.Equal(t, held+2*8+2*8, current(c).Arena().Bytes())
		})
	}, lookup)
}

// What takes no rows gets the whole: an op between the table and its lookup, and a call with the
// gradient itself.
func TestASparseGradientIsMadeDenseWhereItHasToBe(t *testing.T) {
	lookup, add := lookupFn(), addFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		tab := autodiff.New([]float64{1, 2, 3}, 3, 1).RequireGrad()
		w.pass(t, 0, func(c context.Context) {
			rows := must(lookup.Call(c, "worker1", pair{autodiff.Mul(tab, tab), autodiff.New([]int64{2, 2})}))
			require.NoError(t, ctx.Backward(c, autodiff.Sum(rows)))
			g := must(ctx.Gradients(c))[tab]
			require.False(t, g.IsSparse())
			require.Equal(t, []float64{0, 0, 12}, values(t, g))

			require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.EmbeddingSparse(tab, autodiff.New([]int64{1})))))
			g = must(ctx.Gradients(c))[tab]
			require.False(t, g.IsSparse())
			require.Equal(t, []float64{0, 1, 12}, values(t, g))
			sum := must(add.Call(ctx.NoGrad(c), "worker1", pair{autodiff.Sparse(3, autodiff.New([]int64{1}), autodiff.New([]float64{5}, 1, 1)), g}))
			require.Equal(t, []float64{0, 6, 12}, values(t, sum))
		})
	}, lookup, add)
}
