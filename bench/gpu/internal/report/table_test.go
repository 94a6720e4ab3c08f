package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ours(text string) Outcome   { return Outcome{Lines: linesIn(text)} }
func theirs(text string) Outcome { return Outcome{Lines: linesIn(text), Aside: true} }

func TestTheTableComparesWeftWithPyTorchsBestAndShowsAllItsModes(t *testing.T) {
	table := benchTable([]Outcome{
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
	require.Contains(t, table, `
- bound: an op that waits for memory alone, and how its bandwidth compares with that of copy.
- mlp: a step of training of a network of dense layers, compiled as one function.

| benchmark | Weft, ms | PyTorch's best, ms | PyTorch : Weft | all of PyTorch's, ms | |
| --- | --- | --- | --- | --- | --- |
| mlp-small (function) | 0.3 | 0.7 | 2.33 | eager 3, compile 0.7, reduce-overhead – **no\|graph** |  |
| bound exp | 2 |  |  |  | 1000 GB/s |
| large | – | 5 |  | eager 5 | **out of memory** |
| gpt | | – | | | **Out\|of memory** |
`)
	require.Empty(t, benchTable(nil))
}

func TestWhereBothSidesHaveAModeItIsComparedWithItself(t *testing.T) {
	table := benchTable([]Outcome{
		ours(`{"case":"p","mode":"tensors of float32","ms":4}` + "\n" + `{"case":"p","mode":"tensors of bfloat16","ms":2}`),
		theirs(`{"case":"p","mode":"tensors of float32","ms":8}` + "\n" + `{"case":"p","mode":"tensors of bfloat16","ms":1}`),
	})
	require.Contains(t, table, "| p (tensors of float32) | 4 | 8 | 2.00 | tensors of float32 8 |")
	require.Contains(t, table, "| p (tensors of bfloat16) | 2 | 1 | 0.50 | tensors of bfloat16 1 |")
}

func TestTheFiguresOfTheTableAreInWords(t *testing.T) {
	table := benchTable([]Outcome{ours(`{"case":"split","op":"mlp-small","mode":"two processes","ms":8,"off":3.4e-6,"off_allowed":1e-4,` +
		`"of_one_process":0.839,"bytes_by_lane":{"cuda":0,"local":14365},"around_lane_cuda":2,"new_figure":7}
{"case":"bound","op":"exp","ms":1,"gbps":900,"of_copy":0.45}`)})
	require.Contains(t, table, "| 0.84 of the speed of one process, losses off by 3.4e-06, 0.0001 allowed, messages around lane cuda: 2, bytes by lane: local 14365, new figure 7 |")
	require.Contains(t, table, "| 900 GB/s, 0.45 of copy's GB/s |")
	require.Contains(t, table, "\n- split: ")
	require.NotContains(t, table, "\n- launch: ", "there is none")
}

func TestWhatIsRightHasATableOfItsOwnWithWhatIsAllowed(t *testing.T) {
	steps := []Outcome{ours(`{"case":"correct","op":"convnet","mode":"bf16","gradients_off":0.0673,"gradients_allowed":0.166,"off":9e-4,"off_allowed":0.03}
{"case":"correct","op":"gpt2-small","mode":"f32","error":"out|of memory"}`)}
	require.Contains(t, rightTable(steps), `
| convnet | bf16 | 0.067 | 0.17 | 0.0009 | 0.03 |  |
| gpt2-small | f32 | – | – | – | – | **out\|of memory** |
`)
	require.Empty(t, benchTable(steps))
	require.Empty(t, rightTable(nil))
}

func TestThePageSaysByWhatProductsWereMade(t *testing.T) {
	const why = "product by kernels, as there is no library"
	steps := []Outcome{ours(`{"case":"ways","op":"mlp-small","` + why + `":8,"graph by recording":1}
{"case":"ways","op":"gpt2-small","` + why + `":15}`)}
	require.Contains(t, waysList(steps), "\n- graph by recording: 1 (mlp-small)\n- "+why+": 23 (mlp-small, gpt2-small)\n")
	require.Empty(t, waysList(nil))
}

func TestTheTableSaysWhichSoftwareWasComparedWithWhich(t *testing.T) {
	const measured = "\n" + `{"case":"copy","ms":1}`
	torch := `{"case":"device","name":"x","torch":"2.11.0","cuda":"13.0","cudnn":"91002","triton":"3.6","cublaslt":"/lib/a, version 130101","attention":"CUDNN_ATTENTION"}`
	both := benchTable([]Outcome{ours(`{"case":"device","cublaslt":"/lib/a, version 130101"}` + measured), theirs(torch)})
	require.Contains(t, both, "\nPyTorch 2.11.0. CUDA 13.0. cuDNN 91002. triton 3.6. attention by CUDNN_ATTENTION. cuBLASLt of both: /lib/a, version 130101.\n")
	other := benchTable([]Outcome{ours(`{"case":"device","cublaslt":"/lib/b, version 12"}` + measured), theirs(torch)})
	require.Contains(t, other, "cuBLASLt of Weft: /lib/b, version 12; of PyTorch: /lib/a, version 130101.")
	require.Contains(t, benchTable([]Outcome{ours(measured), theirs(torch)}), "cuBLASLt of Weft: unknown; of PyTorch: /lib/a")
	require.NotContains(t, benchTable([]Outcome{ours(measured)}), "cuBLASLt")
	alone := benchTable([]Outcome{ours(`{"case":"device","cublaslt":"/lib/b, version 12"}` + measured)})
	require.Contains(t, alone, "\ncuBLASLt of Weft: /lib/b, version 12.\n", "nothing is said of a PyTorch that is not there")
}

// linesIn are the lines of JSON in a text.
func linesIn(text string) (lines []map[string]any) {
	for line := range strings.Lines(text) {
		var l map[string]any
		if json.Unmarshal([]byte(line), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}
