package measure

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/median"
)

func TestAPanicOfACaseIsItsError(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: json.NewEncoder(&out)}
	require.ErrorIs(t, b.report(line{Case: "x"}, func(*line) error { panic("oh") }), flags.ErrFailed)
	require.Contains(t, out.String(), "panic: oh")
	out.Reset()
	b.say(line{Case: "x", MS: math.Inf(1)})
	require.Contains(t, out.String(), "unsupported value")
}

func TestLossesThatDifferAreSeen(t *testing.T) {
	require.Zero(t, off([]float64{1, 2}, []float64{1, 2}))
	require.InDelta(t, 0.5, off([]float64{1, 3}, []float64{1, 2}), 1e-12)
	require.Equal(t, math.MaxFloat64, off([]float64{1, math.NaN()}, []float64{1, 2}))
	require.Equal(t, 2.5, median.Of([]float64{4, 1, 2, 3}))
}
