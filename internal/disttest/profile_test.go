//go:build linux && (amd64 || arm64)

package disttest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/transport/simnet"
)

// It happens in a process of its own, in which a profiler is asked for before anything else.
func TestAProfilerSeesFunctionsBackwardsStepsPassesAndOperations(t *testing.T) {
	const alone = "WEFT_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cc, err := exec.LookPath("gcc")
		if err != nil {
			t.Skip("there is no C compiler, which makes the profiler")
		}
		dir := t.TempDir()
		lib, out := filepath.Join(dir, "profiler.so"), filepath.Join(dir, "out")
		said, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-o", lib, "../nvtx/testdata/profiler.c").CombinedOutput()
		require.NoError(t, err, "%s", said)
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), alone+"=1", "NVTX_INJECTION64_PATH="+lib, "WEFT_FAKE_PROFILE="+out)
		said, err = again.CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), "--- PASS: "+t.Name())
		seen, err := os.ReadFile(out)
		require.NoError(t, err)
		for _, want := range []string{
			`begin \d+ profiled, called at \S*profile_test.go:\d+\n`, `begin \d+ profiled backward, called at \S*profile_test.go:\d+\n`,
			`begin \d+ optimizer step\n`, `begin \d+ pass 0\.\d+\n`, `begin \d+ AllReduce in group "both"\n`, `end \d+\n`,
		} {
			require.Regexp(t, want, string(seen))
		}
		return
	}
	ws := rpctest.World(t, simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler)}), 2)
	w := autodiff.New([]float32{1, 2}).RequireGrad()
	opt, err := optim.New(optim.SGD{LR: 0.1}, w)
	require.NoError(t, err)
	f := autodiff.Define("profiled", func(g *autodiff.Graph, w *gorgonia.Node) *gorgonia.Node { return g.Sum(g.Mul(w, w)) })
	require.NoError(t, ws[0].Pass(t.Context(), func(context.Context) error {
		grads, err := autodiff.Backward(f.Call(w))
		if err != nil {
			return err
		}
		return opt.Step(grads.All())
	}))
	var both sync.WaitGroup
	var errs [2]error
	for k, w := range ws {
		both.Go(func() {
			g, err := collective.Open(t.Context(), w, "both", ws[0].Name(), ws[1].Name())
			if err == nil {
				err = errors.Join(collective.AllReduce(t.Context(), g, []float32{1}, collective.Sum), g.Close())
			}
			errs[k] = err
		})
	}
	both.Wait()
	require.NoError(t, errors.Join(errs[:]...))
}
