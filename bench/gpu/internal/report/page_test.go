package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGreenIsWhatLacksNothingOfWefts(t *testing.T) {
	at := func(verdict string, must, aside bool) bool {
		return Green(Result{State: Complete, GPU: &GPU{}, Steps: []Outcome{{Verdict: verdict, Must: must, Aside: aside}}})
	}
	require.True(t, at(Failed, false, true), "PyTorch's failures are its own")
	require.True(t, at(LeftOut, false, false))
	for _, verdict := range []string{OK, Failed, Late, LeftOut} {
		steps := []Outcome{{Name: "kernels", Verdict: OK, Must: true}, {Name: "hopper", Verdict: verdict, Experiment: true}}
		require.True(t, Green(Result{State: Complete, GPU: &GPU{}, Steps: steps}), verdict)
		steps[0].Verdict = Failed
		require.False(t, Green(Result{State: Complete, GPU: &GPU{}, Steps: steps}))
	}
	require.False(t, at(Failed, false, false))
	require.False(t, at(Late, false, false))
	require.True(t, Green(Result{State: Complete, GPU: &GPU{}}))
	require.False(t, Green(Result{State: Complete, GPU: &GPU{LoadErrors: map[string]string{"rows": "bad"}}}))
	require.False(t, Green(Result{State: Complete}), "the GPU has said nothing")
	require.False(t, Green(Result{State: Running, GPU: &GPU{}}))
}

// page is the page of steps that have said something.
func page(steps ...Outcome) string {
	r := Result{State: Complete, Date: "2026-11-23", GPU: &GPU{Name: "x"}, Steps: steps}
	r.Learn()
	r.Green = Green(r)
	return r.Markdown()
}

func TestThePageLeavesOutWhatEveryStepPrintsThatEndsWell(t *testing.T) {
	device := progress + "opening the driver\n" + progress + "closing the driver\ndone"
	well := page(Outcome{Name: "a", Verdict: OK, Output: "PASS"}, Outcome{Name: "b", Verdict: OK, Output: device}, Outcome{Name: "c", Verdict: OK, Output: "a warning\ndone"})
	require.NotContains(t, well, "What a printed")
	require.NotContains(t, well, "What b printed")
	require.Contains(t, well, "## What c printed\n\n\ta warning\n")
	require.NotContains(t, well, "done")
	require.Contains(t, page(Outcome{Name: "b", Verdict: Late, Output: device}), "opening the driver", "it says where it hung")
}

func TestThePageSaysInItsHeadHowItWent(t *testing.T) {
	for want, text := range map[string]string{
		"**complete, and not all is well**: 1 of 1 steps in 0 s, 1 failed.": page(Outcome{Name: "a", Verdict: Failed}),
		"**complete, and all is well but for experiments: b, c**: 4 of 4 steps in 0 s, 2 ok, 1 failed, 1 late.": Result{State: Complete, Green: true, Date: "2026-11-23", GPU: &GPU{}, Steps: []Outcome{
			{Name: "a", Verdict: OK}, {Name: "b", Verdict: Failed, Experiment: true}, {Name: "c", Verdict: Late, Experiment: true}, {Name: "d", Verdict: OK, Experiment: true},
		}}.Markdown(),
		"| b (an experiment) | ok | 0.0 |":                        page(Outcome{Name: "b", Verdict: OK, Experiment: true}),
		"**running**: 0 of 2 steps in 0 s, 1 running, 1 not run.": Result{State: Running, Date: "2026-11-23", Steps: []Outcome{{Verdict: Running}, {Verdict: Waiting}}}.Markdown(),
		"**complete, and all is well**":                           Result{State: Complete, Green: true, Date: "2026-11-23", GPU: &GPU{}}.Markdown(),
	} {
		require.Contains(t, text, want)
	}
}

func TestWhatPythonLacksIsToldInWords(t *testing.T) {
	require.Equal(t, "Python: no cublaslt, no cuda, python 3.13.1, torch 2.11.0+cpu.\n\n",
		python(map[string]any{"case": "python", "torch": "2.11.0+cpu", "cuda": nil, "cublaslt": "", "python": "3.13.1"}))
	require.Equal(t, "Python: there is no PyTorch (ImportError: no torch), python 3.\n\n", python(map[string]any{"case": "python", "error": "ImportError: no torch", "python": "3"}))
}
