package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func ours(text string) outcome   { return outcome{Lines: linesOf(text)} }
func theirs(text string) outcome { return outcome{Lines: linesOf(text), Aside: true} }

func TestTheTableComparesWeftWithPyTorchsBestAndShowsAllItsModes(t *testing.T) {
	table := benchTable([]outcome{
		ours(`{"case":"mlp-small","mode":"function","ms":0.2}` + "\nnoise\n" + `{"case":"bound","op":"exp","ms":2,"gbps":1000}`),
		ours(`{"case":"mlp-small","mode":"function","ms":0.4}`),
		ours(`{"case":"large","error":"out of memory"}`),
		theirs(`{"case":"device","name":"x"}
{"case":"mlp-small","mode":"eager","ms":3}
{"case":"mlp-small","mode":"compile","ms":0.6}
{"case":"mlp-small","mode":"reduce-overhead","error":"no|graph"}
{"case":"large","mode":"eager","ms":5}
{"case":"gpt","error":"Out|of memory"}`),
		theirs(`{"case":"mlp-small","mode":"compile","ms":0.8}`),
	})
	require.Equal(t, `
| benchmark | Weft, ms | PyTorch's best, ms | PyTorch : Weft | all of PyTorch's, ms | |
| --- | --- | --- | --- | --- | --- |
| mlp-small (function) | 0.3 | 0.7 | 2.33 | eager 3, compile 0.7, reduce-overhead – **no\|graph** |  |
| bound exp | 2 |  |  |  | gbps 1000 |
| large | – | 5 |  | eager 5 | **out of memory** |
| gpt | | – | | | **Out\|of memory** |
`, table)
	require.Empty(t, benchTable(nil))
}

func TestWhereBothSidesHaveAModeItIsComparedWithItself(t *testing.T) {
	table := benchTable([]outcome{
		ours(`{"case":"p","mode":"tensors of float32","ms":4}` + "\n" + `{"case":"p","mode":"tensors of bfloat16","ms":2}`),
		theirs(`{"case":"p","mode":"tensors of float32","ms":8}` + "\n" + `{"case":"p","mode":"tensors of bfloat16","ms":1}`),
	})
	require.Contains(t, table, "| p (tensors of float32) | 4 | 8 | 2.00 | tensors of float32 8 |")
	require.Contains(t, table, "| p (tensors of bfloat16) | 2 | 1 | 0.50 | tensors of bfloat16 1 |")
}

func TestTheTableSaysWhichSoftwareWasComparedWithWhich(t *testing.T) {
	const measured = "\n" + `{"case":"copy","ms":1}`
	torch := `{"case":"device","name":"x","torch":"2.11.0","cuda":"13.0","cudnn":"91002","triton":"3.6","cublaslt":"/lib/a, version 130101","attention":"CUDNN_ATTENTION"}`
	both := benchTable([]outcome{ours(`{"case":"device","cublaslt":"/lib/a, version 130101"}` + measured), theirs(torch)})
	require.Contains(t, both, "\nPyTorch 2.11.0. CUDA 13.0. cuDNN 91002. triton 3.6. attention by CUDNN_ATTENTION. cuBLASLt of both: /lib/a, version 130101.\n")
	other := benchTable([]outcome{ours(`{"case":"device","cublaslt":"/lib/b, version 12"}` + measured), theirs(torch)})
	require.Contains(t, other, "cuBLASLt of Weft: /lib/b, version 12; of PyTorch: /lib/a, version 130101.")
	require.Contains(t, benchTable([]outcome{ours(measured), theirs(torch)}), "cuBLASLt of Weft: unknown; of PyTorch: /lib/a")
	require.NotContains(t, benchTable([]outcome{ours(measured)}), "cuBLASLt")
}

// peerLines are what each case of bench/torch/gpu.py prints, as it says itself; it refuses to print anything else.
func peerLines(t *testing.T) map[string][]string {
	text, err := os.ReadFile("../torch/gpu.py")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\nLINES = (\{.*?\n\})\n`).FindSubmatch(text)
	require.NotNil(t, table)
	var lines map[string][]string
	require.NoError(t, json.Unmarshal(table[1], &lines))
	runs := regexp.MustCompile(`(?m)^CASES = (.*)$`).FindSubmatch(text)
	require.NotNil(t, runs)
	for name := range lines {
		require.Contains(t, string(runs[1]), `"`+name+`": `)
	}
	return lines
}

// The names of what they print are compared where all benchmarks run, on the interpreter.
func TestPyTorchsCasesAreNamedAsWefts(t *testing.T) {
	alone := []string{"correct", "launch", "split"} // which PyTorch has nothing like
	for name := range peerLines(t) {
		require.Contains(t, caseNames(), name)
		require.NotContains(t, alone, name)
	}
	for _, name := range caseNames() {
		_, has := peerLines(t)[name]
		require.Equal(t, !slices.Contains(alone, name), has, name)
	}
}
