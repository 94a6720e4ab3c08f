package gpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

// parameter is the operands of an update: a mean's square is less than the mean square.
func parameter(r *rand.Rand, i kernels.Update, d device.Dtype, n int) []kerneltest.Tensor {
	in := []kerneltest.Tensor{drawn(r, d, n), drawn(r, d, n)}
	for _, s := range i.Slots() {
		x := drawn(r, d, n)
		for k := range x.V {
			x.V[k] = math.Tanh(x.V[k]) * 0.9
			switch s.Name {
			case "momentum_buffer", "exp_avg", "grad_avg", "prev":
			default:
				x.V[k] = 1 + math.Abs(x.V[k])
			}
		}
		in = append(in, kerneltest.New(d, x.Shape, append(x.V, 0)...))
	}
	if i.Missed {
		in = append(in, kerneltest.New(device.Int64, nil, float64(r.IntN(i.Step))))
	}
	return in
}

func TestUpdatesStepToTheBitsOfTheHost(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for k, i := range kerneltest.Updates() {
			i.WeightDecay, i.Scale, i.Step, i.EpsFirst = float64(k%2)*0.01, []float64{0, 0.3, -1}[k%3], 1+k%4, k%2 == 0
			for _, n := range []int{0, 1, 31, 33, 4099} {
				for _, i.Missed = range []bool{false, true} {
					in := parameter(r, i, d, n)
					require.Equal(t, results(t, device.Host(), i, in...), results(t, g, i, in...), "%v of %d", i, n)
				}
			}
		}
	})
}

func TestUpdateManyStepsMoreParametersThanALaunchTakes(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, i := range []kernels.Update{
			{Rule: kernels.SGD, LR: 0.1, Step: 1},
			{Rule: kernels.Adam, AMSGrad: true, LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 2, Missed: true},
		} {
			for _, many := range []int{1, 35, 36, 72, 73, 205} { // and one more
				var in []kerneltest.Tensor
				for k := range many {
					in = append(in, parameter(r, i, d, []int{3, 0, 64, 1, 17}[k%5])...)
				}
				in = append(in, parameter(r, i, d, 9001)...)
				t.Run(fmt.Sprint(i.Rule, many), func(t *testing.T) {
					all := kernels.UpdateMany{Of: i}
					require.Equal(t, results(t, device.Host(), all, in...), results(t, g, all, in...))
				})
			}
		}
	})
}

func TestUpdatesPassOnWhatIsNoNumber(t *testing.T) {
	g := machine(t)
	for _, i := range kerneltest.Updates() {
		in := parameter(rand.New(rand.NewPCG(1, 2)), i, device.Float32, 8)
		in[0].V[1], in[1].V[2], in[1].V[3] = math.Inf(1), math.NaN(), math.Inf(-1)
		for k := range in[2:] {
			in[2+k].V[4+k] = math.NaN()
		}
		for k, want := range results(t, device.Host(), i, in...) {
			require.Negative(t, kerneltest.Differ(i, results(t, g, i, in...)[k], want), "%v: result %d", i, k)
		}
	}
}

func TestALaunchTakesAsManyParametersAsItsArgumentsHold(t *testing.T) {
	b := machine(t).Memory().(*memory).backend
	for _, c := range []struct {
		of   kernels.Update
		most int
	}{
		{kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, 73}, {kernels.Update{Rule: kernels.SGD, LR: 1, Momentum: 0.5, Step: 1}, 55},
		{kernels.Update{Rule: kernels.AdamW, LR: 1, Step: 1}, 44}, {kernels.Update{Rule: kernels.AdamW, LR: 1, AMSGrad: true, Step: 1}, 36},
	} {
		for _, c.of.Missed = range []bool{false, true} {
			for _, many := range []int{1, c.most, c.most + 1, 2 * c.most, 2*c.most + 1} {
				var in []kernels.Type
				for range many {
					for _, x := range parameter(rand.New(rand.NewPCG(1, 1)), c.of, device.Float32, 5) {
						in = append(in, x.Type)
					}
				}
				_, code, err := b.ready(kernels.UpdateMany{Of: c.of}, in)
				require.NoError(t, err)
				require.Len(t, code.launches, (many+c.most-1)/c.most, "%v", c.of)
			}
		}
	}
}

// The definition sums rows in the order of their ids in float64, and steps one row after another.
func TestRowsOfOneIDMakeOneStepByTheirSum(t *testing.T) {
	const rows = 11
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for n, ids := range [][]float64{
			{}, {3}, {3, 3}, {10, 0, 10}, {1, 2, 3, 4, 5}, {5, 5, 5, 5, 5, 5, 5}, drawnIDs(r, device.Int64, rows, 33).V, drawnIDs(r, device.Int64, rows, 1025).V,
			drawnIDs(r, device.Int64, rows, sortTile+1).V, make([]float64, 65), make([]float64, 2*sortTile+1),
		} {
			of := kerneltest.Updates()[[]int{4, 0, 7}[n%3]] // Adam, SGD, Adagrad: those that take sparse gradients
			for _, width := range []int{1, 3, 4, 33} {
				grad := drawn(r, d, len(ids), width)
				in := []kerneltest.Tensor{drawn(r, d, rows, width), grad}
				for range of.Slots() {
					x := drawn(r, d, rows, width)
					for k := range x.V {
						x.V[k] = 1 + math.Abs(x.V[k])
					}
					in = append(in, kerneltest.New(d, x.Shape, append(x.V, 0)...))
				}
				var want []kerneltest.Tensor
				for k := range len(of.Slots()) + 1 {
					want = append(want, kerneltest.New(d, device.Shape{rows, width}, append([]float64{}, in[kernels.Replaced(k)].V...)...))
				}
				for id := range rows {
					sum, occurs := make([]float64, width), false
					for k, is := range ids {
						if occurs = occurs || int(is) == id; int(is) == id {
							for c := range sum {
								sum[c] += grad.V[k*width+c]
							}
						}
					}
					if !occurs {
						continue
					}
					row := func(x kerneltest.Tensor) kerneltest.Tensor {
						return kerneltest.New(d, device.Shape{width}, x.V[id*width:(id+1)*width]...)
					}
					one := []kerneltest.Tensor{row(in[0]), kerneltest.New(d, device.Shape{width}, sum...)}
					for _, x := range in[2:] {
						one = append(one, row(x))
					}
					for k, x := range results(t, device.Host(), of, one...) {
						copy(want[k].V[id*width:], x.V)
					}
				}
				in = append(in, kerneltest.New(device.Int64, device.Shape{len(ids)}, append(ids, 0)...))
				i := kernels.OnRows{Of: of, Sum: true}
				require.Equal(t, want, results(t, device.Host(), i, in...), "%v of %d ids, %d wide", of, len(ids), width)
				require.Equal(t, want, results(t, g, i, in...), "%v of %d ids, %d wide", of, len(ids), width)
			}
		}
	})
}
