//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/fakenccl"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
)

var maker fakenccl.Maker

// fakeGPU is one of the fake's, with a UUID of its number.
type fakeGPU struct{ fakenccl.GPU }

func (g fakeGPU) Info() cuda.Info { return cuda.Info{UUID: fmt.Sprint("GPU-", g.Number)} }

// job is workers of this process, with a GPU each and a library that plays NCCL.
type job struct {
	f       *fakenccl.Fake
	l       *nccl.Library
	workers []*rpc.Worker
	devices []*gpus.Device
}

func start(t *testing.T, size, version int) *job {
	t.Helper()
	j := &job{workers: rpctest.World(t, rpctest.Net(), size)}
	j.f, j.l = library(t, version)
	for r := range size {
		j.devices = append(j.devices, gpus.Use(fakeGPU{fakenccl.GPU{Of: j.f, Number: r}}))
	}
	return j
}

func library(t *testing.T, version int) (*fakenccl.Fake, *nccl.Library) {
	t.Helper()
	f, err := maker.Build(t.TempDir(), version)
	require.NoError(t, err)
	l, err := nccl.OpenAt(f.Path)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Mend()
		require.Zero(t, f.Misuses(), "calls with a communicator that was freed")
	})
	return f, l
}

// all does something on some ranks at once.
func all(ranks []int, do func(r int) error) map[int]error {
	errs := map[int]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range ranks {
		wg.Go(func() {
			err := do(r)
			mu.Lock()
			defer mu.Unlock()
			errs[r] = err
		})
	}
	wg.Wait()
	return errs
}

func every(t *testing.T, ranks []int, do func(r int) error) {
	t.Helper()
	for r, err := range all(ranks, do) {
		require.NoError(t, err, "worker %d", r)
	}
}

func (j *job) ranks() (out []int) {
	for r := range j.workers {
		out = append(out, r)
	}
	return out
}

// group opens a group of some workers; the result is by worker.
func (j *job) group(t *testing.T, name string, ranks []int) []*collective.Group {
	t.Helper()
	var names []string
	for _, r := range ranks {
		names = append(names, j.workers[r].Name())
	}
	gs := make([]*collective.Group, len(j.workers))
	every(t, ranks, func(r int) (err error) {
		gs[r], err = collective.Open(t.Context(), j.workers[r], name, names...)
		return err
	})
	t.Cleanup(func() {
		for _, g := range gs {
			if g != nil {
				g.Close()
			}
		}
	})
	return gs
}

// comms opens a communicator of a group.
func (j *job) comms(t *testing.T, gs []*collective.Group, ranks []int, cfg gpus.Config) []*gpus.Comm {
	t.Helper()
	ms := make([]*gpus.Comm, len(gs))
	cfg.Library = j.l
	every(t, ranks, func(r int) (err error) {
		ms[r], err = gpus.Open(t.Context(), gs[r], j.devices[r], cfg)
		return err
	})
	t.Cleanup(func() {
		j.f.Mend()
		all(ranks, func(r int) error { return ms[r].Close(context.Background()) })
	})
	return ms
}

// world is a group of all, and its communicator.
func (j *job) world(t *testing.T) ([]*collective.Group, []*gpus.Comm) {
	t.Helper()
	gs := j.group(t, "world", j.ranks())
	return gs, j.comms(t, gs, j.ranks(), gpus.Config{NCCL: gpus.Must})
}

func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// sum is an AllReduce in place.
func sum(x []float32) nccl.Call {
	return nccl.Call{Kind: nccl.AllReduce, Send: address(x), Recv: address(x), Count: len(x), Type: nccl.Float32}
}

// buffers are one array for each member.
func buffers(size, n int) [][]float32 {
	x := make([][]float32, size)
	for r := range x {
		x[r] = make([]float32, n)
		for i := range x[r] {
			x[r][i] = float32(r + 1)
		}
	}
	return x
}

func TestAGroupSumsOnItsGPUsAndClosesInGoodOrder(t *testing.T) {
	for size := 1; size <= 4; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			j := start(t, size, 23007)
			_, ms := j.world(t)
			x := buffers(size, 3)
			every(t, j.ranks(), func(r int) error {
				require.Equal(t, []int{r, size}, []int{ms[r].Rank(), ms[r].Size()})
				if err := ms[r].Run(t.Context(), uintptr(9), sum(x[r])); err != nil {
					return err
				}
				return ms[r].Await(t.Context(), func() error { return nil })
			})
			want := float32(size * (size + 1) / 2)
			for r := range x {
				require.Equal(t, []float32{want, want, want}, x[r])
			}
			require.Equal(t, uintptr(9), j.f.Records()[0].Stream)
			every(t, j.ranks(), func(r int) error { return ms[r].Close(t.Context()) })
			require.ErrorIs(t, ms[0].Err(), nccl.ErrClosed)
			require.ErrorIs(t, ms[0].Run(t.Context(), 0, sum(x[0])), nccl.ErrClosed)
			require.NoError(t, ms[0].Close(t.Context()), "closing twice does nothing")
			require.Zero(t, j.f.Calls("ncclCommAbort"))
		})
	}
}

func TestCommunicatorsThatOverlapAreServedInOneOrderWhateverTheOrderOfCalls(t *testing.T) {
	j := start(t, 4, 23007)
	members := [][]int{{0, 1, 2, 3}, {0, 1}, {1, 2}, {3, 0}, {0, 1, 2, 3}}
	comms := make([][]*gpus.Comm, len(members))
	for k, ranks := range members {
		comms[k] = j.comms(t, j.group(t, fmt.Sprint("group", k), ranks), ranks, gpus.Config{NCCL: gpus.Must})
	}
	const rounds = 12
	x := map[[2]int][]float32{}
	for k, ranks := range members {
		for _, r := range ranks {
			x[[2]int{k, r}] = []float32{1}
		}
	}
	every(t, j.ranks(), func(r int) error {
		mine := rand.Perm(len(members)) // a goroutine for each communicator, begun in any order
		mine = slices.DeleteFunc(mine, func(k int) bool { return !slices.Contains(members[k], r) })
		var err error
		for _, e := range all(mine, func(k int) error {
			for range rounds {
				if err := comms[k][r].Run(t.Context(), uintptr(k), sum(x[[2]int{k, r}])); err != nil {
					return err
				}
			}
			return nil
		}) {
			err = errors.Join(err, e)
		}
		return err
	})
	require.Zero(t, j.f.Pending(), "each GPU does one thing at a time, and none waits for ever")
	for k, ranks := range members {
		want := float32(1)
		for range rounds {
			want *= float32(len(ranks))
		}
		for _, r := range ranks {
			require.Equal(t, want, x[[2]int{k, r}][0])
		}
	}
	// Without that order the same calls block: the check can fail.
	a, b := sum(x[[2]int{0, 0}]), sum(x[[2]int{0, 1}])
	raw := rawWorlds(t, j, 2)
	for i, c := range []*nccl.Comm{raw[0][0], raw[1][0], raw[1][1], raw[0][1]} {
		require.NoError(t, c.Run(0, []nccl.Call{a, a, b, b}[i]))
	}
	require.Equal(t, 4, j.f.Pending())
	for _, w := range raw {
		for _, c := range w {
			require.NoError(t, c.Abort())
		}
	}
	require.Zero(t, j.f.Pending())
}

// rawWorlds are two communicators of NCCL's own on the same GPUs.
func rawWorlds(t *testing.T, j *job, size int) [2][]*nccl.Comm {
	t.Helper()
	var out [2][]*nccl.Comm
	for k := range out {
		id, err := j.l.NewID()
		require.NoError(t, err)
		out[k] = make([]*nccl.Comm, size)
		every(t, []int{0, 1}, func(r int) (err error) {
			out[k][r], err = j.l.Init(t.Context(), fakenccl.GPU{Of: j.f, Number: r}, size, id, r, nccl.Config{})
			return err
		})
	}
	return out
}

func TestMembersThatCallDifferentThingsAllHearOfItBeforeNCCLAndGoOn(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	x := buffers(3, 8)
	base := sum(x[2])
	for name, change := range map[string]func(c *nccl.Call){
		"count": func(c *nccl.Call) { c.Count = 7 }, "type": func(c *nccl.Call) { c.Type = nccl.Int32 }, "op": func(c *nccl.Call) { c.Op = nccl.Max },
		"kind": func(c *nccl.Call) { c.Kind = nccl.Broadcast }, "pair": func(c *nccl.Call) { c.Kind, c.Peer = nccl.Send, 0 },
	} {
		for range soak.Cases(3) {
			before := len(j.f.Records())
			other := base
			change(&other)
			errs := all(j.ranks(), func(r int) error {
				call := sum(x[r])
				if r == 2 {
					call = other
				}
				return ms[r].Run(t.Context(), 0, call)
			})
			for r, err := range errs {
				require.ErrorIs(t, err, collective.ErrMismatch, "%s, rank %d", name, r)
				var e *gpus.MismatchError
				require.ErrorAs(t, err, &e)
				require.Contains(t, e.Lines[0]+e.Lines[1], "gpus_test.go:")
				require.Contains(t, e.Workers, j.workers[2].Name())
			}
			require.Len(t, j.f.Records(), before, "NCCL was not asked")
			every(t, j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, sum(x[r])) })
		}
	}
	from := func(r, root int) nccl.Call {
		return nccl.Call{Kind: nccl.Broadcast, Send: address(x[r]), Recv: address(x[r]), Count: 8, Type: nccl.Float32, Root: root}
	}
	for r, err := range all(j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, from(r, r/2)) }) {
		require.ErrorIs(t, err, collective.ErrMismatch, "roots, rank %d", r)
	}
	every(t, j.ranks(), func(r int) error { // a root is nothing to who has none
		call := sum(x[r])
		call.Root = r
		return ms[r].Run(t.Context(), 0, call, from(r, 1))
	})
	require.Zero(t, j.f.Pending())
}

func TestSendsNeedTheirReceives(t *testing.T) {
	j := start(t, 3, 23007)
	_, ms := j.world(t)
	x, y := buffers(3, 2), buffers(3, 2)
	exchange := func(r int) []nccl.Call { // around a ring
		return []nccl.Call{{Kind: nccl.Send, Send: address(x[r]), Count: 2, Type: nccl.Float32, Peer: (r + 1) % 3},
			{Kind: nccl.Recv, Recv: address(y[r]), Count: 2, Type: nccl.Float32, Peer: (r + 2) % 3}}
	}
	every(t, j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, exchange(r)...) })
	require.Equal(t, [][]float32{{3, 3}, {1, 1}, {2, 2}}, y)
	errs := all(j.ranks(), func(r int) error {
		calls := exchange(r)
		if r == 1 {
			calls[1].Count = 1
		}
		return ms[r].Run(t.Context(), 0, calls...)
	})
	for _, err := range errs {
		require.ErrorIs(t, err, collective.ErrMismatch)
		require.ErrorContains(t, err, "Send of 2 float32 with rank 1")
	}
	errs = all(j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, exchange(r)[:1+min(r, 1)]...) })
	for _, err := range errs {
		require.ErrorIs(t, err, collective.ErrMismatch)
	}
	errs = all(j.ranks(), func(r int) error { // one receives what nobody sends
		calls := []nccl.Call{sum(x[r])}
		if r == 1 {
			calls = append(calls, exchange(r)[1])
		}
		return ms[r].Run(t.Context(), 0, calls...)
	})
	for _, err := range errs {
		require.ErrorIs(t, err, collective.ErrMismatch)
		require.ErrorContains(t, err, "Recv of 2 float32 with rank 0")
	}
	require.Zero(t, j.f.Pending())
}

func TestTwoMembersOnOneGPUAreRefusedBeforeNCCLIsAsked(t *testing.T) {
	j := start(t, 3, 23007)
	gs := j.group(t, "world", j.ranks())
	j.devices[2] = gpus.Use(fakeGPU{fakenccl.GPU{Of: j.f, Number: 0}})
	for _, mode := range []gpus.Mode{gpus.Must, gpus.Auto} {
		for r, err := range all(j.ranks(), func(r int) error {
			_, err := gpus.Open(t.Context(), gs[r], j.devices[r], gpus.Config{NCCL: mode, Library: j.l})
			return err
		}) {
			var e *gpus.SharedGPUError
			require.ErrorAs(t, err, &e, "rank %d", r)
			require.Equal(t, gpus.SharedGPUError{Ranks: [2]int{0, 2}, Workers: [2]string{j.workers[0].Name(), j.workers[2].Name()}, GPU: "GPU-0"}, *e)
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
	errs := try(gpus.Config{NCCL: gpus.Must, Library: j.l}, gpus.Config{NCCL: gpus.Must, Library: older})
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
	for _, err := range try(gpus.Config{NCCL: gpus.Off}, gpus.Config{NCCL: gpus.Must, Library: j.l}) {
		require.ErrorIs(t, err, collective.ErrArguments)
		require.ErrorContains(t, err, "NCCL is Off on worker0 and Must on worker1")
	}
	for _, err := range try(gpus.Config{Library: j.l, Poll: -1}, gpus.Config{Library: j.l}) {
		require.ErrorContains(t, err, "expected 0 or more")
	}
	for _, err := range try(gpus.Config{Library: j.l, NCCL: 7}, gpus.Config{Library: j.l, NCCL: 7}) {
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
		m, err := gpus.Open(t.Context(), gs[r], j.devices[r], gpus.Config{NCCL: gpus.Must, Library: j.l})
		if err == nil {
			t.Cleanup(func() { m.Abort(errors.New("the test is over")); m.Close(context.Background()) })
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
			return ms[r].Await(t.Context(), func() error { waiting <- struct{}{}; return never(t)() }) // a GPU that never comes
		})
	}()
	for range 3 {
		<-waiting
	}
	j.f.Plant("ncclCommGetAsyncError", 1, 6)
	failedBy(t, <-errs, 1, nccl.ErrRemote, "fake remote error")
	j.f.Mend()
	x := buffers(3, 1)
	failedBy(t, all(j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, sum(x[r])) }), 1, nccl.ErrRemote, "rank 1, worker1")
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
		return others[r].Run(t.Context(), 0, nccl.Call{Kind: nccl.Broadcast, Send: address(x[r]), Recv: address(x[r]), Count: 1, Type: nccl.Float32})
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
		return others[r].Run(t.Context(), 0, nccl.Call{Kind: nccl.Broadcast, Send: address(x[r]), Recv: address(x[r]), Count: 1, Type: nccl.Float32})
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
