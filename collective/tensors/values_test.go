package tensors

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
)

func TestTensorsStayOnTheirDevice(t *testing.T) {
	w := newWorld(t, 2)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		dev := device.NewSim(device.SimConfig{Index: r})
		x := parameter(1, 2)
		y := AllGather(c, gs[r], AllReduce(c, gs[r], autodiff.To(x, dev), collective.Prod), 0)
		if y.Device() != dev.ID() {
			return fmt.Errorf("it is %v", y)
		}
		if err := ctx.Backward(c, autodiff.Sum(y)); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != "[4 8]" {
			err = fmt.Errorf("the gradient is %v", got)
		}
		return err
	})
}

func TestTheGradientOfAProductHasNoTroubleWithZeros(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	in := [][]float64{{0, 0, 2, math.Inf(1)}, {3, 0, 0, 2}, {5, 5, 0, 3}}
	want := [][]float64{{15, 0, 0, 6}, {0, 0, 0, math.Inf(1)}, {0, 0, 0, math.Inf(1)}}
	w.eachPass(func(c context.Context, r int) error {
		x := parameter(in[r]...)
		l := autodiff.Sum(AllReduce(c, gs[r], x, collective.Prod))
		if r > 0 {
			l = autodiff.Sum(parameter(1)) // rank 0 alone has a loss
		}
		if err := ctx.Backward(c, l); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want[r]) {
			err = fmt.Errorf("the gradient is %v; expected %v", got, want[r])
		}
		return err
	})
}

func TestTheGradientOfAMaximumIsSharedByThoseThatHaveIt(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	nan := math.NaN()
	in := [][]float64{{1, 2, nan, 1}, {1, 3, 1, nan}, {1, 3, 1, nan}}
	want := [][]float64{{1, 0, 3, 0}, {1, 1.5, 0, 1.5}, {1, 1.5, 0, 1.5}}
	for _, sign := range []float64{1, -1} {
		op := collective.Max
		if sign < 0 {
			op = collective.Min
		}
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(in[r]...)
			y := AllReduce(c, gs[r], autodiff.Scale(x, sign), op)
			if err := ctx.Backward(c, autodiff.Sum(autodiff.Scale(y, sign))); err != nil {
				return err
			}
			got, err := gradientOf(c, x)
			if err == nil && fmt.Sprint(got) != fmt.Sprint(want[r]) {
				err = fmt.Errorf("the gradient is %v; expected %v", got, want[r])
			}
			return err
		})
	}
}

func TestEmptyTensorsAndWholeNumbersGoTheSameWay(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		empty := func(shape ...int) *autodiff.Tensor { return autodiff.Zeros(device.Float32, shape...) }
		ids := autodiff.New([]int32{int32(r), 5})
		for i, got := range []struct {
			y    *autodiff.Tensor
			want device.Shape
		}{
			{AllReduce(c, gs[r], empty(0, 3), collective.Max), device.Shape{0, 3}},
			{AllGather(c, gs[r], empty(r+1, 0), 0), device.Shape{6, 0}},
			{AllGather(c, gs[r], empty(0, r+1), 1), device.Shape{0, 6}},
			{ReduceScatter(c, gs[r], empty(3, 0), 0, collective.Sum), device.Shape{1, 0}},
			{AllToAll(c, gs[r], empty(3, 0), []int{r, 2 - r, 1}...), device.Shape{3, 0}},
			{Scatter(c, gs[r], empty(0), 0, 1), device.Shape{0}},
			{AllReduce(c, gs[r], ids, collective.Or), device.Shape{2}},
			{AllGather(c, gs[r], autodiff.Reshape(ids, 1, 2), -1), device.Shape{1, 6}},
			{AllReduce(c, gs[r], autodiff.Scalar(1.5), collective.Min), device.Shape{}},
		} {
			if err := got.y.Err(); err != nil {
				return err
			}
			if !got.y.Shape().Equal(got.want) {
				return fmt.Errorf("result %d is %v; expected %v", i, got.y, got.want)
			}
		}
		return nil
	})
}

func TestAGroupOfOneAndFastModeNeedNothingElse(t *testing.T) {
	for size := 1; size <= 3; size++ {
		t.Run(fmt.Sprintf("p=%d", size), func(t *testing.T) {
			w := newWorld(t, size, remote)
			gs := w.group("g")
			w.works(gs)
			w.eachPass(func(c context.Context, r int) error {
				x := parameter(1)
				y, err := remote.Call(c, w.ws[(r+1)%size].Name(), AllReduce(c, gs[r], x, collective.Max))
				if err != nil {
					return err
				}
				if err := ctx.BackwardWith(c, ctx.Options{Mode: ctx.Fast}, autodiff.Sum(y)); err != nil {
					return err
				}
				got, err := gradientOf(c, x)
				if want := 0.7 * math.Cos(1); err == nil && math.Abs(got[0]-want) > 1e-12 {
					err = fmt.Errorf("the gradient is %v; expected %v", got, want)
				}
				return err
			})
		})
	}
}
