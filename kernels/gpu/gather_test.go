package gpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

func TestRowsOfEqualIDsAreAddedUpHoweverManyThereAre(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, c := range []struct{ ids, rows, width int }{
			{0, 3, 2}, {1, 1, 1}, {31, 2, 3}, {32, 1, 4}, {33, 1, 5}, {64, 2, 8}, {65, 3, 0}, {1000, 5, 4}, {1000, 700, 3}, {4100, 40, 1}, {2049, 2049, 1},
		} {
			t.Run(fmt.Sprint(c), func(t *testing.T) {
				ids, x := drawnIDs(r, device.Int32, c.rows, c.ids), drawn(r, d, c.ids, c.width)
				kerneltest.Check(t, g, kernels.ScatterAdd{Rows: c.rows}, ids, x)
				kerneltest.Check(t, g, kernels.Gather{}, drawn(r, d, c.rows, c.width), ids)
			})
		}
	})
}

func TestRowsAreUpdatedInTheOrderOfTheirIDs(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, c := range []struct{ ids, rows, width int }{{1, 4, 3}, {70, 4, 4}, {300, 290, 1}} {
			ids := drawnIDs(r, device.Int64, c.rows, c.ids)
			table, rows := drawn(r, d, c.rows, c.width), drawn(r, d, c.ids, c.width)
			for _, fn := range binaries {
				if fn == kernels.Mul || fn == kernels.Div { // of many the result would be of any size
					continue
				}
				kerneltest.Check(t, g, kernels.OnRows{Of: kernels.Binary{Fn: fn}}, table, rows, ids)
			}
			adagrad := kernels.Update{Rule: kernels.Adagrad, LR: 0.1, Eps: 1e-8, Step: 3}
			kerneltest.Check(t, g, kernels.OnRows{Of: adagrad}, table, rows, kerneltest.New(d, table.Shape, 1, 2), ids)
		}
		kerneltest.Check(t, g, kernels.OnRows{Of: kernels.Binary{Fn: kernels.Mul}}, drawn(r, d, 5, 3), drawn(r, d, 4, 3), drawnIDs(r, device.Int32, 5, 4))
		kerneltest.Check(t, g, kernels.OnRows{Of: kernels.Binary{Fn: kernels.Div}}, drawn(r, d, 5, 3), drawn(r, d, 4, 3), drawnIDs(r, device.Int32, 5, 4))
	})
}

func TestOfManyBadIDsTheFirstIsTold(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		const n = 2100
		for _, wide := range []device.Dtype{device.Int32, device.Int64} {
			ids := drawnIDs(r, wide, 3, n)
			for range 9 {
				ids.V[r.IntN(n)] = []float64{-1, 3, 1000, math.MinInt32}[r.IntN(4)]
			}
			x := drawn(r, d, n, 3)
			kerneltest.Check(t, g, kernels.Gather{}, drawn(r, d, 3, 2), ids)
			kerneltest.Check(t, g, kernels.ScatterAdd{Rows: 3}, ids, x)
			kerneltest.Check(t, g, kernels.CrossEntropy{}, x, ids)
			kerneltest.Check(t, g, kernels.CrossEntropyGrad{}, x, ids, drawn(r, d))
			kerneltest.Check(t, g, kernels.OnRows{Of: kernels.Binary{Fn: kernels.Add}}, drawn(r, d, 3, 3), x, ids)
		}
	})
}
