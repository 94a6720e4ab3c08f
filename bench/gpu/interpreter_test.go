//go:build !race

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The interpreter runs on one goroutine, ten times slower under the race detector, which has nothing to see there.

func TestEveryBenchmarkRunsOnTheInterpreterAndItsLossesAreTheCPUs(t *testing.T) {
	_, out, errs := gpucheck(t, "bench", "-device", "interpreter", "-rounds", "1")
	require.Empty(t, errs)
	seen, printed := map[string]int{}, map[string]bool{}
	for _, l := range linesOf(out) {
		name := l["case"].(string)
		require.NotContains(t, l, "error", "%v", l)
		seen[name]++
		if op, has := l["op"]; has {
			name += " " + op.(string)
		}
		printed[name] = true
		name = l["case"].(string)
		switch name {
		case "device":
		case "ways":
			if l["op"] != "launch" {
				require.Contains(t, fmt.Sprint(l), "product by kernels, as there is no library:", "%v", l)
			}
		case "correct":
			most := 1e-5
			if l["mode"] == "bf16" {
				most = 2e-2
				require.Greater(t, l["off"].(float64), 1e-6, "it is not float32: %v", l)
			}
			require.LessOrEqual(t, l["off"].(float64), most, "%v", l)
			for parameter, by := range l["gradients"].(map[string]any) {
				require.Positive(t, by, "%s: %v", parameter, l)
				require.LessOrEqual(t, by.(float64), l["gradients_off"], "%s: %v", parameter, l)
			}
		default:
			require.Positive(t, l["ms"], "%v", l)
		}
		require.Equal(t, "weft unknown", l["peer"])
	}
	require.Equal(t, map[string]int{
		"device": 1, "correct": 12, "copy": 1, "product-f32": 1, "product-tf32": 1, "product-bf16": 1, "mlp-small": 1, "mlp-large": 1,
		"gpt2-small": 1, "bound": 6, "launch": 2, "split": 4, "ways": 21,
	}, seen)
	for name, lines := range peerLines(t) {
		for _, l := range lines {
			require.True(t, printed[l], "PyTorch's case %s prints %q, which Weft's does not", name, l)
		}
	}
}
