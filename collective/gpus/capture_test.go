//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/fakenccl"
)

// capture has all members capture sums of x on a stream of their own.
func (j *job) capture(t *testing.T, ms []*gpus.Comm, stream uintptr, calls func(r int) []nccl.Call) []fakenccl.Graph {
	t.Helper()
	graphs := make([]fakenccl.Graph, len(ms))
	every(t, j.ranks(), func(r int) (err error) {
		graphs[r], err = j.f.Capture(r, stream, func() error { return ms[r].Capture(t.Context(), stream, calls(r)...) })
		return err
	})
	return graphs
}

func TestCapturedOperationsAreDoneByLaunchesAndNotBefore(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	x, y := buffers(3, 4), buffers(3, 1)
	graphs := j.capture(t, ms, 7, func(r int) []nccl.Call { return []nccl.Call{sum(x[r]), sum(y[r])} })
	require.Empty(t, j.f.Records(), "nothing was submitted")
	require.Equal(t, buffers(3, 4), x)
	want := float32(2) // the mean of 1, 2 and 3
	for round := range 5 {
		want *= 3
		every(t, j.ranks(), func(r int) error { graphs[r].Replay(); return nil })
		require.Zero(t, j.f.Pending())
		for r := range ms {
			require.Equal(t, []float32{want, want, want, want}, x[r], "launch %d", round)
			require.Equal(t, []float32{want}, y[r])
		}
	}
	for _, g := range graphs { // a member may launch before the others
		g.Replay()
	}
	every(t, j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 7, sum(x[r])) }) // on streams that are not captured
	require.Equal(t, 9*want, x[0][0])
	require.Zero(t, j.f.Pending())
}

func TestWhoRunsWhatTheOthersCaptureFailsItOnAllAndNothingIsRecorded(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	x := buffers(3, 4)
	for one := range 3 {
		errs := all(j.ranks(), func(r int) error {
			if r == one {
				return ms[r].Run(t.Context(), 1, sum(x[r]))
			}
			return ms[r].Capture(t.Context(), 1, sum(x[r]))
		})
		for r, err := range errs {
			var e *gpus.MismatchError
			require.ErrorAs(t, err, &e, "rank %d", r)
			require.Contains(t, fmt.Sprint(e), "captured in a graph")
			require.Contains(t, e.Workers, j.workers[one].Name())
			require.Contains(t, e.Lines[0], "capture_test.go:")
		}
	}
	require.Empty(t, j.f.Records())
	for _, err := range all(j.ranks(), func(r int) error { return ms[r].Capture(t.Context(), 1) }) {
		require.ErrorIs(t, err, collective.ErrArguments)
	}
	every(t, j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 1, sum(x[r])) })
}

// What the documentation forbids does harm: GPUs that launch in different orders wait for ever.
func TestGraphsThatAreLaunchedInDifferentOrdersWaitUntilTheCommunicatorIsAborted(t *testing.T) {
	j := start(t, 2, 23007)
	_, ms := j.world(t)
	x, y := buffers(2, 4), buffers(2, 2)
	a := j.capture(t, ms, 1, func(r int) []nccl.Call { return []nccl.Call{sum(x[r])} })
	b := j.capture(t, ms, 2, func(r int) []nccl.Call { return []nccl.Call{sum(y[r])} })
	a[0].Replay()
	b[1].Replay()
	b[0].Replay()
	a[1].Replay()
	require.Equal(t, 4, j.f.Pending())
	ms[0].Abort(collective.ErrAborted)
	<-ms[1].Done()
	require.NoError(t, ms[1].Close(t.Context()))
	require.NoError(t, ms[0].Close(t.Context()))
	require.Zero(t, j.f.Pending())
}
