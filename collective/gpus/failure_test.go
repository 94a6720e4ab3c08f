//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/fakenccl"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
)

// never is a GPU's work that is not done while the test runs.
func never(t *testing.T) func() error {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return func() error { <-over; return nil }
}

// failedBy has all members' errors name one, and a cause.
func failedBy(t *testing.T, errs map[int]error, rank int, cause error, says string) {
	t.Helper()
	for r, err := range errs {
		var e *gpus.FailedError
		require.ErrorAs(t, err, &e, "rank %d", r)
		require.Equal(t, rank, e.Rank)
		require.ErrorIs(t, err, cause, "rank %d", r)
		require.ErrorContains(t, err, says)
	}
}

func TestAnErrorThatNCCLFindsLaterEndsTheCommunicatorOnAllWithItsNameAndCause(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	waiting := make(chan struct{}, 3)
	errs := make(chan map[int]error)
	go func() {
		errs <- all(j.ranks(), func(r int) error {
			return ms[r].Await(t.Context(), func() error { // a GPU that never comes
				waiting <- struct{}{}
				return never(t)()
			})
		})
	}()
	for range 3 {
		<-waiting
	}
	j.f.Plant("ncclCommGetAsyncError", 1, 6)
	failedBy(t, <-errs, 1, nccl.ErrRemote, "fake remote error")
	j.f.Mend()
	x := buffers(3, 1)
	later := all(j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, sum(x[r])) })
	failedBy(t, later, 1, nccl.ErrRemote, "rank 1, worker1")
	every(t, j.ranks(), func(r int) error { return ms[r].Close(t.Context()) })
	require.Equal(t, 3, j.f.Calls("ncclCommAbort"), "each member has aborted its part")
}

func TestACallThatNCCLRefusesOnOneMemberEndsTheCommunicatorOnAll(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	x := buffers(3, 1)
	j.f.Plant("ncclAllReduce", 2, 1)
	errs := all(j.ranks(), func(r int) error {
		if err := ms[r].Run(t.Context(), 0, sum(x[r])); err != nil {
			return err
		}
		return ms[r].Await(t.Context(), never(t))
	})
	failedBy(t, errs, 2, nccl.ErrCUDA, "fake cuda error")
	every(t, j.ranks(), func(r int) error { return ms[r].Close(t.Context()) })
	require.Zero(t, j.f.Pending(), "what was under way is gone")
}

func TestALaunchThatHangsIsAbortedFromOutsideAndHoldsUpNoOtherCommunicator(t *testing.T) {
	j := start(t, 2, 23007)
	gs, ms := j.world(t)
	others := j.comms(t, j.group(t, "other", j.ranks()), j.ranks(), gpus.Config{NCCL: gpus.Must})
	x := buffers(2, 1)
	j.f.Hang("ncclAllReduce", 1)
	errs := make(chan map[int]error)
	go func() {
		errs <- all(j.ranks(), func(r int) error {
			if err := ms[r].Run(t.Context(), 0, sum(x[r])); err != nil {
				return err
			}
			return ms[r].Await(t.Context(), never(t))
		})
	}()
	for j.f.Calls("ncclAllReduce") < 2 {
		runtime.Gosched()
	}
	enough := errors.New("enough")
	ms[0].Abort(enough)
	for r, err := range <-errs {
		require.ErrorContains(t, err, "the communicator was aborted: enough", "rank %d", r)
	}
	every(t, j.ranks(), func(r int) error {
		return others[r].Run(t.Context(), 0, inPlace(nccl.Broadcast, x[r]))
	})
	every(t, j.ranks(), func(r int) error { return ms[r].Close(t.Context()) })
	every(t, j.ranks(), func(r int) error { return gs[r].Barrier(t.Context()) })
	j.f.Mend()
	again := j.comms(t, gs, j.ranks(), gpus.Config{NCCL: gpus.Must})
	every(t, j.ranks(), func(r int) error { return again[r].Run(t.Context(), 0, sum(x[r])) })
}

func TestAThreadThatNeverComesBackIsGivenUp(t *testing.T) {
	j := start(t, 2, 23007)
	_, ms := j.world(t)
	others := j.comms(t, j.group(t, "other", j.ranks()), j.ranks(), gpus.Config{NCCL: gpus.Must})
	x := buffers(2, 1)
	j.f.Hang("ncclAllReduce", 1)
	j.f.Hang("ncclCommAbort", -1) // which would have the launch return
	go func() {
		for j.f.Calls("ncclAllReduce") < 2 {
			runtime.Gosched()
		}
		ms[1].Abort(errors.New("enough"))
	}()
	for r, err := range all(j.ranks(), func(r int) error {
		if err := ms[r].Run(t.Context(), 0, sum(x[r])); err != nil {
			return err
		}
		return ms[r].Await(t.Context(), never(t))
	}) {
		require.ErrorContains(t, err, "enough", "rank %d", r)
	}
	for j.f.Calls("ncclCommAbort") < 2 {
		runtime.Gosched()
	}
	every(t, j.ranks(), func(r int) error {
		return others[r].Run(t.Context(), 0, inPlace(nccl.Broadcast, x[r]))
	})
	c, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range all(j.ranks(), func(r int) error { return ms[r].Close(c) }) {
		require.ErrorContains(t, err, "NCCL does not let go")
	}
}

func TestADeadlineThatAMemberMissesEndsTheCommunicatorOnAllAndNamesIt(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	x := buffers(3, 1)
	c, cancel := context.WithTimeout(t.Context(), 1) // has passed
	defer cancel()
	for r, err := range all([]int{0, 1}, func(r int) error { return ms[r].Run(c, 0, sum(x[r])) }) {
		require.ErrorIs(t, err, rpc.ErrTimeout, "rank %d", r)
		require.ErrorContains(t, err, "worker2")
	}
	<-ms[2].Done()
	require.ErrorIs(t, ms[2].Err(), rpc.ErrTimeout)
	require.Empty(t, j.f.Records())
}

func TestALostMemberEndsTheCommunicatorOfTheOthersWithItsName(t *testing.T) {
	j := start(t, 3, 23007)
	gs, ms := j.world(t)
	require.NoError(t, j.workers[2].Close())
	for r, err := range all([]int{0, 1}, func(r int) error {
		return ms[r].Await(t.Context(), never(t))
	}) {
		var e *collective.LostError
		require.ErrorAs(t, err, &e, "rank %d", r)
		require.Equal(t, "worker2", e.Worker)
	}
	require.Error(t, gs[0].Err())
}

func TestADeadlineOfAWaitIsTold(t *testing.T) {
	j := start(t, 1, 23007)
	_, ms := j.world(t)
	c, cancel := context.WithTimeout(t.Context(), 1) // has passed
	defer cancel()
	require.ErrorIs(t, ms[0].Await(c, never(t)), rpc.ErrTimeout)
	c, give := context.WithCancelCause(t.Context())
	give(errors.New("enough"))
	require.ErrorContains(t, ms[0].Await(c, never(t)), "enough")
	require.NoError(t, ms[0].Err(), "a wait ends nothing")
}

func TestWhoHasGivenUpARunIsNamedOnTheOthers(t *testing.T) {
	j := start(t, 3, 23007)
	gs := j.group(t, "world", j.ranks())
	for range soak.Cases(10) {
		ms, x := j.comms(t, gs, j.ranks(), gpus.Config{NCCL: gpus.Must}), buffers(3, 1)
		c, give := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		waits := func(r int) bool {
			all := gs[r].Trace()
			return all[len(all)-1].State == "pending"
		}
		go func() {
			for !waits(0) || !waits(1) {
				runtime.Gosched()
			}
			give(enough)
		}()
		errs := all([]int{0, 1}, func(r int) error { // and not 2
			if r == 1 {
				return ms[r].Run(t.Context(), 0, sum(x[r]))
			}
			return ms[r].Run(c, 0, sum(x[r]))
		})
		require.ErrorIs(t, errs[0], enough)
		var e *gpus.FailedError
		require.ErrorAs(t, errs[1], &e)
		require.Equal(t, "worker0", e.Worker)
		require.ErrorContains(t, e, "enough")
	}
}

func TestWhatNCCLMakesForACommunicatorThatHasEndedIsAborted(t *testing.T) {
	j := start(t, 1, 23007)
	id, err := j.l.NewID()
	require.NoError(t, err)
	comm, err := j.l.Init(t.Context(), fakenccl.GPU{Of: j.f}, 1, id, 0, nccl.Config{})
	require.NoError(t, err)
	gpus.TakeWhenEnded(comm)
	require.Equal(t, 1, j.f.Calls("ncclCommAbort"))
}
