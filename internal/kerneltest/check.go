package kerneltest

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// Check runs an instruction on a device, twice, and compares with [Oracle]: both runs must give the
// same bits, the numbers must be within rounding of the oracle's, operands must be as before, and
// an id out of range must be an error where the oracle has one.
func Check(t testing.TB, d device.Device, i kernels.Instr, in ...Tensor) {
	t.Helper()
	out, err := i.Infer(types(in))
	require.NoError(t, err)
	want, slack, wantErr := oracle(i, in, out)
	got, err := RunOn(t, d, i, out, in)
	if wantErr != nil {
		var at, expected *kernels.IndexError
		require.ErrorIs(t, err, kernels.ErrIndex, "%v of %v", i, types(in))
		require.True(t, errors.As(err, &at) && errors.As(wantErr, &expected))
		require.Equal(t, [3]int64{expected.ID, int64(expected.At), int64(expected.N)}, [3]int64{at.ID, int64(at.At), int64(at.N)})
		return
	}
	require.NoError(t, err, "%v of %v", i, types(in))
	again, err := RunOn(t, d, i, out, in)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for k := range want {
		require.Equal(t, got[k].encode(), again[k].encode(), "%v of %v: result %d changes from run to run", i, types(in), k)
		if at := differ(i, got[k], want[k], slack[k]); at >= 0 {
			require.Failf(t, "wrong result", "%v of %v: result %d at %v: got %v, want %v",
				i, types(in), k, index(at, want[k].Shape), got[k].V[at], want[k].V[at])
		}
	}
}

// RunOn runs an instruction on a device with buffers of its own, and checks that the operands are
// left alone.
func RunOn(t testing.TB, d device.Device, i kernels.Instr, out []kernels.Type, in []Tensor) ([]Tensor, error) {
	t.Helper()
	b, err := backend.For(d)
	require.NoError(t, err)
	k, err := b.Prepare(i, types(in))
	require.NoError(t, err)
	var ins, outs []*device.Buffer
	defer func() { release(t, append(ins, outs...)) }()
	for _, x := range in {
		ins = append(ins, upload(t, d, x))
	}
	for _, o := range out {
		outs = append(outs, garbage(t, d, o.Bytes()))
	}
	if err := k.Run(outs, ins); err != nil {
		return nil, err
	}
	if err := late(t, d); err != nil {
		return nil, err
	}
	for n, x := range in {
		require.Equal(t, string(x.encode()), string(bytesOf(t, d, ins[n])), "%v of %v: operand %d was changed", i, types(in), n)
	}
	got := make([]Tensor, len(out))
	for n, o := range out {
		got[n] = decode(o, bytesOf(t, d, outs[n]))
	}
	return got, nil
}

// late is a bad index that an accelerator of its own tells of when it is asked; others have told it
// by then.
func late(t testing.TB, d device.Device) error {
	acc, ok := d.(*device.Accelerator)
	if !ok {
		return nil
	}
	err := acc.Check()
	if !errors.Is(err, kernels.ErrIndex) {
		require.NoError(t, err)
	}
	require.NoError(t, acc.Check(), "it is told of more than once")
	return err
}

// Differ is the first position where two results are further apart than rounding explains, or -1.
// slack, where it is given, is Slack's of the result.
func Differ(i kernels.Instr, got, want Tensor, slack ...float64) int {
	return differ(i, got, want, slack)
}

// differ is Differ with how much more than rounding each element may be off, where that is known.
//
//go:norace
func differ(i kernels.Instr, got, want Tensor, slack []float64) int {
	tol := tolerance(want.Dtype)
	if n, ok := i.(kernels.Narrow); ok {
		i = n.Of
	}
	switch kernels.Unviewed(i).(type) {
	case kernels.MatMul, kernels.MatMulThen, kernels.Attention, kernels.AttentionGrad, kernels.Conv2d, kernels.Conv2dGradX, kernels.Conv2dGradW:
		tol *= inProducts
	}
	narrow := want.Dtype == device.BFloat16
	for k, w := range want.V {
		g, more := got.V[k], 0.0
		if slack != nil {
			more = slack[k]
		}
		if narrow { // nothing may be further than it has to
			more += halfStep(w)
		} else {
			w = round(want.Dtype, w)
		}
		switch {
		case math.IsInf(more, 1):
		case g == w || math.IsNaN(g) && math.IsNaN(w):
		case !want.Dtype.IsFloat() && !narrow, math.IsInf(w, 0), !(math.Abs(g-w) <= tol*(1+math.Abs(w))+more):
			return k
		}
	}
	return -1
}

// inProducts is by how much more matrix products may be off: sums of products of a few units, in
// the dtype itself.
const inProducts = 20

// tolerance is how far from each other two ways to compute a number of about one may come.
func tolerance(d device.Dtype) float64 {
	if d == device.Float32 || d == device.BFloat16 { // which is rounded from that
		return 4e-6
	}
	return 1e-12
}
