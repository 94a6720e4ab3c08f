package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/kernels/internal/stride/stridetest"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
)

func TestAViewLiesWithinItsOperandWhenEachOfItsElementsDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	within := 0
	for range 3000 {
		v := &View{Shape: make(device.Shape, r.IntN(4)), Offset: r.IntN(6)}
		for k := range v.Shape {
			v.Shape[k] = r.IntN(4) + r.IntN(2)
			v.Strides = append(v.Strides, r.IntN(6))
		}
		n, want := r.IntN(40), true
		stridetest.Each(v.Shape, [][]int{v.Strides}, func(off []int) { want = want && v.Offset+off[0] < n })
		require.Equal(t, want, v.within(n), "%v in %d", v, n)
		if want {
			within++
		}
	}
	require.Greater(t, within, 500)
}

func TestViewsThatDoNotFitAreRefused(t *testing.T) {
	x, scalar := f32(2, 3), &View{}
	for _, v := range []*View{
		{Shape: device.Shape{2, 3}}, {device.Shape{2}, 0, []int{1, 1}}, {device.Shape{2}, -1, []int{1}}, {device.Shape{2}, 0, []int{-1}},
		{device.Shape{2}, 5, []int{1}}, {device.Shape{7}, 0, []int{1}}, {device.Shape{2}, math.MaxInt, []int{1}}, {device.Shape{2, 2}, 1, []int{math.MaxInt, 1}},
		{device.Shape{3}, 0, []int{math.MaxInt}}, {device.Shape{-1}, 0, []int{1}}, {device.Shape{}, 6, nil}, {device.Shape{2, 2, 2}, 0, []int{math.MaxInt - 5, 3, 3}},
		{make(device.Shape, device.MaxRank+1), 0, make([]int, device.MaxRank+1)},
	} {
		_, err := Viewed{Reshape{device.Shape{2}}, []*View{v}}.Infer([]Type{x})
		require.ErrorIs(t, err, ErrOperands, "%v", v)
	}
	for _, i := range []Viewed{
		{}, {Of: Softmax{}, In: []*View{nil}}, {Of: Reshape{}, In: []*View{scalar, nil}}, {Of: Reshape{}}, {Viewed{Reshape{}, []*View{scalar}}, []*View{nil}},
	} {
		_, err := i.Infer([]Type{x})
		require.ErrorIs(t, err, ErrOperands, "%v", i)
	}
	_, err := Viewed{Reshape{device.Shape{}}, []*View{scalar}}.Infer([]Type{x})
	require.NoError(t, err)
}
