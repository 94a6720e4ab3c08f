//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/fakenccl"
	"github.com/weft-project/weft/internal/soak"
)

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
		gs := j.group(t, fmt.Sprint("group", k), ranks)
		comms[k] = j.comms(t, gs, ranks, gpus.Config{NCCL: gpus.Must})
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
				if err := comms[k][r].Run(
					t.Context(), uintptr(k), sum(x[[2]int{k, r}]),
				); err != nil {
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
			gpu := fakenccl.GPU{Of: j.f, Number: r}
			out[k][r], err = j.l.Init(t.Context(), gpu, size, id, r, nccl.Config{})
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
		"count": func(c *nccl.Call) { c.Count = 7 },
		"type":  func(c *nccl.Call) { c.Type = nccl.Int32 },
		"op":    func(c *nccl.Call) { c.Op = nccl.Max },
		"kind":  func(c *nccl.Call) { c.Kind = nccl.Broadcast },
		"pair":  func(c *nccl.Call) { c.Kind, c.Peer = nccl.Send, 0 },
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
				require.Contains(t, e.Lines[0]+e.Lines[1], "run_test.go:")
				require.Contains(t, e.Workers, j.workers[2].Name())
			}
			require.Len(t, j.f.Records(), before, "NCCL was not asked")
			every(t, j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, sum(x[r])) })
		}
	}
	from := func(r, root int) nccl.Call {
		call := inPlace(nccl.Broadcast, x[r])
		call.Root = root
		return call
	}
	errs := all(j.ranks(), func(r int) error { return ms[r].Run(t.Context(), 0, from(r, r/2)) })
	for r, err := range errs {
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
		return []nccl.Call{
			{Kind: nccl.Send, Send: address(x[r]), Count: 2, Type: nccl.Float32, Peer: (r + 1) % 3},
			{Kind: nccl.Recv, Recv: address(y[r]), Count: 2, Type: nccl.Float32, Peer: (r + 2) % 3},
		}
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
	errs = all(j.ranks(), func(r int) error {
		return ms[r].Run(t.Context(), 0, exchange(r)[:1+min(r, 1)]...)
	})
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
