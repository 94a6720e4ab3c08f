package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// leastSquares is the line by its formula, over the points of all.
func leastSquares(workers int) (slope, offset float64) {
	var n, sx, sy, sxx, sxy float64
	for rank := range workers {
		xs, ys := points(rank)
		for i, x := range xs {
			n, sx, sy, sxx, sxy = n+1, sx+x, sy+ys[i], sxx+x*x, sxy+x*ys[i]
		}
	}
	slope = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	return slope, (sy - slope*sx) / n
}

func TestAllWorkersFindTheLineOfAllPoints(t *testing.T) {
	out := exampletest.Job(t, 3)
	lines := regexp.MustCompile(`rank \d of 3: y = (\S+)·x (\S+)`).FindAllStringSubmatch(out, -1)
	require.Len(t, lines, 3, out)
	slope, offset := leastSquares(3)
	for _, m := range lines {
		require.Equal(t, lines[0][1:], m[1:], "all have the same bits")
		for i, want := range []float64{slope, offset} {
			got, err := strconv.ParseFloat(m[1+i], 64)
			require.NoError(t, err)
			require.InDelta(t, want, got, 1e-6)
		}
	}
}
