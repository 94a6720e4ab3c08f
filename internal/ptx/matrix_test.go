package ptx

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProductsOfMatricesAreThoseOfTheirParts(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["matrix80"])
	out := up(r, make([]float32, 128))
	a, b := make([]uint16, 256), make([]uint16, 128)
	for k, v := range normal(256, 1) {
		a[k] = nearestBrain(v)
		b[k%128] = nearestBrain(v * 0.7)
	}
	want := make([]float64, 128)
	brain := func(v uint16) float64 { return float64(math.Float32frombits(uint32(v) << 16)) }
	for i := range 16 {
		for j := range 8 {
			want[i*8+j] = 1
			for k := range 16 {
				want[i*8+j] += brain(a[i*16+k]) * brain(b[j*16+k])
			}
		}
	}
	require.NoError(t, r.launch("bf16", 1, 32, 0, up(r, a), up(r, b), out))
	near(t, want, down[float32](r, out, 128), 1e-6)

	x, y := normal(128, 1), normal(64, 1)
	clear(want)
	for i := range 16 {
		for j := range 8 {
			for k := range 8 {
				want[i*8+j] += float64(x[i*8+k]) * float64(y[j*8+k])
			}
		}
	}
	require.NoError(t, r.launch("tf32", 1, 32, 0, up(r, x), up(r, y), out))
	near(t, want, down[float32](r, out, 128), 4e-3)

	for k := range a {
		a[k] = uint16(k)
	}
	require.NoError(t, r.launch("transpose", 1, 32, 0, up(r, a[:64]), out))
	for l, v := range down[uint32](r, out, 32) {
		require.Equal(t, uint32(16*(l&3)+l>>2)|uint32(16*(l&3)+8+l>>2)<<16, v, "lane %d", l)
	}
	require.ErrorContains(t, r.launch("tf32", 1, 24, 0, up(r, x), up(r, y), out), "a part of a warp")
}

func TestASumOfTensorCoresIsCutOffAndNotRounded(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["matrix80"])
	a, b, out := make([]uint16, 256), make([]uint16, 128), up(r, make([]float32, 128))
	a[0], b[0] = nearestBrain(0x1.8p-12), nearestBrain(0x1p-12) // the nearest to 1 and their product is 1+2⁻²³
	require.NoError(t, r.launch("bf16", 1, 32, 0, up(r, a), up(r, b), out))
	require.Equal(t, float32(1), down[float32](r, out, 1)[0])
}

func TestACopyThatIsNotWaitedForHasNotCome(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["matrix80"])
	a := up(r, make([]uint32, 32))
	require.ErrorContains(t, r.launch("not_waited", 1, 32, 0, a, a, a), "race")
}
