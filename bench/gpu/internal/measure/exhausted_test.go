//go:build gpu && linux && (amd64 || arm64) && !race

package measure

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
)

// trainingRun trains a small network on a GPU that it opens: what is made is freed, and the GPU is
// closed. met is how often what was planted had struck before that.
func trainingRun(lib *fakecuda.Library) (met int, err error) {
	driver, err := native.Open(0)
	if err != nil {
		return lib.Seen().Hits, err
	}
	dev, err := gpu.On(driver, device.CUDA(0))
	if err != nil {
		return lib.Seen().Hits, err
	}
	arena := autodiff.NewArena("training")
	err = trainedIn(arena, dev)
	met = lib.Seen().Hits
	arena.Free()
	for range 100 {
		if len(device.Held(dev)) == 0 {
			break
		}
		runtime.GC() // the optimizer's own memory is the collector's
	}
	return met, errors.Join(err, dev.Close())
}

func trainedIn(arena *autodiff.Arena, dev device.Device) error {
	m := newSmall(tinyCheck.small).on(dev)
	var errs []error
	for _, t := range slices.Concat(m.params, m.batch) {
		errs = append(errs, arena.Adopt(t))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	opt, err := optim.New(m.rule, m.params...)
	if err != nil {
		return err
	}
	for range 3 { // the third time it is a graph
		loss := m.loss(m.params, m.batch)
		grads, err := autodiff.Backward(loss)
		if err != nil {
			return err
		}
		err = opt.Step(grads.All())
		grads.Free()
		if err != nil {
			return err
		}
		if _, err := loss.Item(); err != nil {
			return err
		}
	}
	return nil
}

func TestMemoryThatRunsOutAtAnyCallOfTrainingIsAnErrorAndLeavesNothingThroughTheDriver(t *testing.T) {
	lib := fakecuda.Alone(t)
	if lib == nil {
		return
	}
	_, err := trainingRun(lib)
	require.NoError(t, err)
	require.Empty(t, lib.Seen().Left)
	calls := 0
	before := lib.Seen().Calls
	_, err = trainingRun(lib)
	require.NoError(t, err)
	for name, n := range lib.Seen().Calls {
		calls += n - before[name]
	}
	require.Greater(t, calls, 500)
	for _, k := range rand.Perm(calls)[:min(calls, soak.Cases(60))] {
		was := lib.Seen()
		lib.Plant(fmt.Sprintf("*@%d:memory", k+1))
		met, err := trainingRun(lib)
		lib.Plant("")
		is := lib.Seen()
		what := fmt.Sprintf("call %d: %s", k+1, is.Met)
		if err != nil {
			require.ErrorIs(t, err, device.ErrMemory, what)
			require.Regexp(t, fakecuda.Plain(is.Met)+": |alloc: ", err.Error(), what)
		}
		if met > was.Hits && !fakecuda.GivesBack(is.Met) { // it was before all was given back
			require.Equal(t, was.Left, is.Left, what)
		}
	}
}
