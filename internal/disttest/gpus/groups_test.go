package gpus

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/testgpu"
)

// sums is what both workers are to add up, and how often; without end where it is 0. After the
// round Tell told is closed, where that is not 0.
type sums struct{ Elems, Rounds, Tell int }

// number is one of a worker's.
func number(rank, round, k int) float32 { return float32(k%1013)/7 + float32(round*(rank+1))/3 }

// sum adds up buffers on this GPU with the other worker, and gives the way by which that went.
func (r *resident) sum(c context.Context, s sums) (way string, err error) {
	g, err := collective.Open(c, r.Worker, fmt.Sprintf("%d times %d", s.Rounds, s.Elems))
	if err != nil {
		return "", err
	}
	defer g.Close()
	d, err := gpus.On(r.devices[0])
	if err != nil {
		return "", err
	}
	a, err := gpus.Attach(c, g, d, gpus.Config{NCCL: gpus.Off})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, a.Close(c)) }()
	for round := 0; err == nil && (s.Rounds == 0 || round < s.Rounds); round++ {
		if err = r.sumOnce(c, g, s.Elems, round); s.Tell > 0 && round == s.Tell {
			close(r.told)
		}
	}
	for _, e := range g.Trace() {
		if e.Way != "" {
			way = e.Way
		}
	}
	return way, err
}

func (r *resident) sumOnce(c context.Context, g *collective.Group, elems, round int) error {
	x := make([]float32, elems)
	for k := range x {
		x[k] = number(g.Rank(), round, k)
	}
	b, err := r.devices[0].Alloc(4 * elems)
	if err != nil {
		return err
	}
	defer b.Release() //nolint:errcheck // ours
	if err := r.devices[0].Upload(b, 0, device.Bytes(x)); err != nil {
		return err
	}
	if _, err := g.AllReduceBuffers(c, collective.Sum, device.Float32, b).Wait(c); err != nil {
		return err
	}
	if err := r.devices[0].Download(device.Bytes(x), b, 0); err != nil {
		return err
	}
	for k, v := range x {
		if want := number(0, round, k) + number(1, round, k); v != want {
			return fmt.Errorf("round %d: element %d of %d is %v; expected %v", round, k, elems, v, want)
		}
	}
	return nil
}

// sumTogether has both workers do it.
func (r *resident) sumTogether(t *testing.T, s sums) (way string) {
	t.Helper()
	others := make(chan error, 1)
	go func() { others <- r.other.Ask(t.Context(), "sum", s, nil) }()
	way, err := r.sum(t.Context(), s)
	require.NoError(t, errors.Join(err, <-others))
	return way
}

func TestBuffersOfTwoProcessesAreAddedUpOnTheGPUWhereTheyShareIt(t *testing.T) {
	r := together(t, nil, false)
	for _, elems := range []int{1, 1000, 200_001} {
		way := r.sumTogether(t, sums{Elems: elems, Rounds: 3})
		require.Equal(t, map[bool]string{true: "CUDA IPC", false: "host"}[testgpu.Real()], way) // the interpreter is another GPU in each process
	}
}
