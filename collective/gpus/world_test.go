//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"context"
	"fmt"
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
func (j *job) comms(
	t *testing.T, gs []*collective.Group, ranks []int, cfg gpus.Config,
) []*gpus.Comm {
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
	return inPlace(nccl.AllReduce, x)
}

// inPlace is an operation in place.
func inPlace(kind nccl.Kind, x []float32) nccl.Call {
	at := address(x)
	return nccl.Call{Kind: kind, Send: at, Recv: at, Count: len(x), Type: nccl.Float32}
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
