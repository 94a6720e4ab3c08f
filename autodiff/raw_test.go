package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/gpu"
)

func TestOnAGPUARoundedCopyOfTheOldValueIsNotTakenForThatOfAnAssignedOne(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	in := movedTo(dev, []*Tensor{narrowTensor(1, 4, 8), narrowTensor(2, 8, 8), narrowTensor(3, 8), narrowTensor(4, 8, 3)})
	held := twoProducts.Call(in...) // has saved rounded copies
	require.NoError(t, held.Err())
	require.True(t, hasCopy(in[3]))
	require.NoError(t, Assign(in[3:], []*Tensor{narrowTensor(5, 8, 3).Detach()}))
	require.False(t, hasCopy(in[3]))
	want := twoProducts.Call(append(in[:3:3], To(narrowTensor(5, 8, 3).Detach(), dev).RequireGrad())...)
	require.Equal(t, floats(t, want), floats(t, twoProducts.Call(in...)))
}

func TestAValueGoesToBytesAndBack(t *testing.T) {
	far := device.NewSim(device.SimConfig{})
	for want, x := range map[string]*Tensor{
		"F32": New([]float32{1, -2, 3}, 3, 1), "F64": Scalar(0.1), "I32": New([]int32{7, -8}), "I64": To(New([]int64{1 << 40}), far),
	} {
		dtype, shape, data, err := x.Raw()
		require.NoError(t, err)
		require.Equal(t, want, dtype)
		y := FromRaw(dtype, shape, data)
		require.Equal(t, x.Type().String(), y.Type().String())
		_, _, again, err := y.Raw()
		require.NoError(t, err)
		require.Equal(t, data, again)
		for _, bad := range []*Tensor{FromRaw(dtype, shape, data[1:]), FromRaw("BF16", shape, data), FromRaw(dtype, []int{-1}, data)} {
			require.ErrorContains(t, bad.Err(), "raw_test.go:")
		}
	}
	_, _, data, err := New([]float32{1}).Raw()
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0x80, 0x3f}, data, "little-endian")
	_, _, _, err = (*Tensor)(nil).Raw()
	require.ErrorIs(t, err, ErrNil)
	require.ErrorContains(t, err, "raw_test.go:")
}

func TestAssigningReplacesTheValuesOfLeavesOrOfNone(t *testing.T) {
	far := device.NewSim(device.SimConfig{})
	a, b := New([]float64{1, 2}).RequireGrad(), To(New([]float64{3}), far).RequireGrad()
	square := Sum(Mul(a, a)) // holds a's old value
	one, two := New([]float64{10, 20}), To(New([]float64{30}), far)
	require.NoError(t, Assign([]*Tensor{a, b}, []*Tensor{one, two}))
	require.Equal(t, []float64{10, 20}, numbers(t, a))
	require.Equal(t, []float64{30}, numbers(t, b))
	require.Equal(t, far.ID(), b.Device())
	g, err := Backward(square)
	require.NoError(t, err)
	require.Equal(t, []float64{2, 4}, numbers(t, g.Of(a)), "the gradient of a forward is that of the value it read")
	require.NoError(t, Apply(sgd, []*Tensor{a, New([]float64{1, 1})}, 0))
	require.Equal(t, []float64{10, 20}, numbers(t, one), "what was assigned is a copy")

	arena := NewArena("gone")
	freed := New([]float64{1})
	require.NoError(t, arena.Adopt(freed))
	arena.Free()
	before := numbers(t, a)
	for why, bad := range map[string][2]*Tensor{
		"a nil tensor": {b, nil}, "a nil tensor ": {nil, b}, "float64(2) for a tensor float64(1)": {b, one}, "is no leaf": {Add(b, b), two},
		"freed": {freed, two}, "was freed": {b, freed},
	} {
		err := Assign([]*Tensor{a, bad[0]}, []*Tensor{one, bad[1]})
		require.Error(t, err, why)
		require.ErrorContains(t, err, "raw_test.go:")
		require.ErrorContains(t, err, "tensor 1: ")
		require.Equal(t, before, numbers(t, a))
	}
	require.ErrorIs(t, Assign([]*Tensor{a}, nil), ErrFunction)
}
