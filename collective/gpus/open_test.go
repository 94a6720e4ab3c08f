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
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/fakenccl"
)

func TestTwoMembersOnOneGPUAreRefusedBeforeNCCLIsAsked(t *testing.T) {
	j := start(t, 3, 23007)
	gs := j.group(t, "world", j.ranks())
	j.devices[2] = gpus.Use(fakeGPU{fakenccl.GPU{Of: j.f, Number: 0}})
	for _, mode := range []gpus.Mode{gpus.Must, gpus.Auto} {
		for r, err := range all(j.ranks(), func(r int) error {
			_, err := gpus.Open(
				t.Context(), gs[r], j.devices[r], gpus.Config{NCCL: mode, Library: j.l},
			)
			return err
		}) {
			var e *gpus.SharedGPUError
			require.ErrorAs(t, err, &e, "rank %d", r)
			names := [2]string{j.workers[0].Name(), j.workers[2].Name()}
			want := gpus.SharedGPUError{Ranks: [2]int{0, 2}, Workers: names, GPU: "GPU-0"}
			require.Equal(t, want, *e)
			require.Equal(t, mode == gpus.Auto, errors.Is(err, gpus.ErrWithout))
		}
	}
	require.Zero(t, j.f.Calls("ncclGetUniqueId"))
	require.Zero(t, j.f.Calls("ncclCommInitRankConfig"))
	every(t, j.ranks(), func(r int) error { return gs[r].Barrier(t.Context()) })
}

func TestALibraryThatAMemberLacksOrHasOfAnotherVersionIsToldToAll(t *testing.T) {
	j := start(t, 2, 23007)
	gs := j.group(t, "world", j.ranks())
	try := func(cfgs ...gpus.Config) map[int]error {
		return all(j.ranks(), func(r int) error {
			_, err := gpus.Open(t.Context(), gs[r], j.devices[r], cfgs[r])
			return err
		})
	}
	_, older := library(t, 22703)
	errs := try(
		gpus.Config{NCCL: gpus.Must, Library: j.l},
		gpus.Config{NCCL: gpus.Must, Library: older},
	)
	for _, err := range errs {
		require.ErrorIs(t, err, gpus.ErrVersions)
		require.ErrorContains(t, err, "worker0 has 2.30.7, and worker1 has 2.27.3")
		require.NotErrorIs(t, err, gpus.ErrWithout)
	}
	t.Setenv("WEFT_NCCL", "/nonexistent/libnccl.so.2")
	errs = try(gpus.Config{Library: j.l}, gpus.Config{})
	require.ErrorIs(t, errs[1], cuda.ErrNoLibrary)
	for _, err := range errs {
		require.ErrorIs(t, err, gpus.ErrWithout)
		require.ErrorContains(t, err, "/nonexistent/libnccl.so.2: cannot open")
		require.ErrorContains(t, err, "WEFT_NCCL")
	}
	require.ErrorContains(t, errs[0], "worker1: ")

	for _, err := range try(gpus.Config{NCCL: gpus.Off}, gpus.Config{NCCL: gpus.Off}) {
		require.ErrorIs(t, err, gpus.ErrWithout)
	}
	for _, err := range try(
		gpus.Config{NCCL: gpus.Off}, gpus.Config{NCCL: gpus.Must, Library: j.l},
	) {
		require.ErrorIs(t, err, collective.ErrArguments)
		require.ErrorContains(t, err, "NCCL is Off on worker0 and Must on worker1")
	}
	for _, err := range try(gpus.Config{Library: j.l, Poll: -1}, gpus.Config{Library: j.l}) {
		require.ErrorContains(t, err, "expected 0 or more")
	}
	for _, err := range try(
		gpus.Config{Library: j.l, NCCL: 7}, gpus.Config{Library: j.l, NCCL: 7},
	) {
		require.ErrorIs(t, err, collective.ErrArguments)
		require.ErrorContains(t, err, "NCCL is Mode(7); expected Auto, Off or Must")
	}
	lends := j.devices[1]
	j.devices[1] = gpus.Use(nil)
	for _, err := range try(gpus.Config{Library: j.l}, gpus.Config{Library: j.l}) {
		require.ErrorIs(t, err, gpus.ErrWithout)
		require.ErrorContains(t, err, "the GPU's driver lends it to no other library")
	}
	j.devices[1] = lends
	require.Zero(t, j.f.Calls("ncclGetUniqueId"))
}

func TestAMemberThatCannotJoinIsNamedOnAllAndTheGroupLivesOn(t *testing.T) {
	j := start(t, 3, 23007)
	gs := j.group(t, "world", j.ranks())
	open := func(r int) error {
		m, err := gpus.Open(
			t.Context(), gs[r], j.devices[r], gpus.Config{NCCL: gpus.Must, Library: j.l},
		)
		if err == nil {
			t.Cleanup(func() {
				m.Abort(errors.New("the test is over"))
				m.Close(context.Background())
			})
		}
		return err
	}
	j.f.Plant("ncclCommInitRankConfig", 1, 2)
	for r, err := range all(j.ranks(), open) {
		var e *gpus.FailedError
		require.ErrorAs(t, err, &e, "rank %d", r)
		require.Equal(t, []any{1, j.workers[1].Name()}, []any{e.Rank, e.Worker})
		require.ErrorContains(t, err, "fake system error")
	}
	j.f.Mend()
	j.f.Plant("ncclGetUniqueId", -1, 1)
	for _, err := range all(j.ranks(), open) {
		require.ErrorIs(t, err, gpus.ErrFailed)
		require.ErrorContains(t, err, "worker0 makes no id")
		require.ErrorContains(t, err, "fake cuda error")
	}
	j.f.Mend()
	every(t, j.ranks(), open)
}

func TestAMemberWhoseJoiningHangsIsGivenUpWhenTheContextEnds(t *testing.T) {
	j := start(t, 2, 23007)
	gs := j.group(t, "world", j.ranks())
	j.f.Hang("ncclCommInitRankConfig", 1)
	c, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("it takes too long")
	go func() {
		for j.f.Calls("ncclCommInitRankConfig") < 2 {
			runtime.Gosched()
		}
		cancel(enough)
	}()
	for r, err := range all(j.ranks(), func(r int) error {
		_, err := gpus.Open(c, gs[r], j.devices[r], gpus.Config{Library: j.l})
		return err
	}) {
		require.Error(t, err, "rank %d", r)
		require.ErrorContains(t, err, "it takes too long")
	}
	every(t, j.ranks(), func(r int) error { return gs[r].Barrier(t.Context()) })
}

func TestWhoGivesNoGroupOrNoGPUGetsAnErrorAndTheOthersHearOfIt(t *testing.T) {
	j := start(t, 2, 22304)
	_, err := gpus.Open(t.Context(), nil, j.devices[0], gpus.Config{})
	require.ErrorIs(t, err, collective.ErrArguments)
	_, err = gpus.Attach(t.Context(), nil, j.devices[0], gpus.Config{})
	require.ErrorIs(t, err, collective.ErrArguments)
	gs := j.group(t, "g", j.ranks())
	errs := all(j.ranks(), func(r int) error {
		d := j.devices[r]
		if r == 1 {
			d = nil
		}
		_, err := gpus.Open(t.Context(), gs[r], d, gpus.Config{Library: j.l})
		return err
	})
	require.ErrorIs(t, errs[1], collective.ErrArguments)
	require.ErrorIs(t, errs[0], collective.ErrAborted)
	require.ErrorContains(t, errs[0], "no GPU")
	j.comms(t, gs, j.ranks(), gpus.Config{}) // and the group goes on
}
