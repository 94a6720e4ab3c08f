package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/internal/kerneltest/exact"
	"github.com/weft-project/weft/internal/soak"
)

func TestLogarithmsExponentialsAndPowersOfFloat64AreWithinTwoUnitsOfTheLastPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	var most [3]float64
	for range soak.Cases(1500) {
		x := exact.AnyPositive(r)
		for _, l := range All[float64]() {
			o := []float64{0}
			l.Log(o, []float64{x})
			off := exact.Ulps(o[0], exact.Log(x))
			require.LessOrEqual(t, off, 2.0, "%s: log %v = %v", l.Name, x, o[0])
			most[0] = max(most[0], off)
			e := (r.Float64() - 0.51) * 1460
			switch r.IntN(4) {
			case 0:
				e = math.Copysign(x, r.Float64()-0.5)
			case 1:
				e = 709 + r.Float64() // about where it becomes infinite
			}
			if math.Abs(e) > 800 {
				continue
			}
			l.Exp(o, []float64{e})
			off = exact.Ulps(o[0], exact.Exp(exact.Float(e)))
			require.LessOrEqual(t, off, 2.0, "%s: exp %v = %v", l.Name, e, o[0])
			most[1] = max(most[1], off)
		}
		log := exact.Log(x)
		logX, _ := log.Float64()
		if logX == 0 {
			continue
		}
		y := (r.Float64() - 0.51) * 1460 / logX // the power is anything from 0 to infinity
		if r.IntN(2) == 0 {
			y = math.Round(y)
		}
		if math.IsInf(y, 0) || math.Abs(y*logX) > 760 {
			continue
		}
		off := exact.Ulps(Pow(x, y), exact.Exp(log.Mul(log, exact.Float(y))))
		require.LessOrEqual(t, off, 2.0, "%v to the %v = %v", x, y, Pow(x, y))
		most[2] = max(most[2], off)
	}
	t.Logf("log is off by %.3f, exp by %.3f, pow by %.3f", most[0], most[1], most[2])
}

func TestPowersThatAreNumbersAreExact(t *testing.T) {
	for n := 1.; n <= 200; n++ {
		for p, want := 0., 1.; want < 1<<53; p, want = p+1, want*max(n, 2) {
			if n == 1 {
				want = 1
				if p > 60 {
					break
				}
			}
			require.Equal(t, want, Pow(n, p), "%v to the %v", n, p)
			require.Equal(t, want*(1-2*math.Mod(p, 2)), Pow(-n, p), "%v to the %v", -n, p)
		}
		require.Equal(t, n, Pow(n*n, 0.5))
		require.Equal(t, 0x1p-1074, Pow(0.5, 1074))
	}
}

func TestPowersOfSpecialNumbersAreThoseOfPackageMath(t *testing.T) {
	inf := math.Inf(1)
	special := []float64{0, math.Copysign(0, -1), 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1e300, -1e300, 5e-324, -5e-324, inf, -inf, math.NaN()}
	for _, x := range special {
		for _, y := range special {
			got, want := Pow(x, y), math.Pow(x, y)
			require.True(t, got == want && math.Signbit(got) == math.Signbit(want) || got != got && want != want || math.Abs(got-want) <= 4e-16*math.Abs(want), "%v to the %v is %v, want %v", x, y, got, want)
		}
	}
}
