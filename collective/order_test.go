package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
)

// overlapping opens two groups of four workers, which two of them share and make in different
// orders. A group of a worker that is not in it is nil.
func overlapping(t *testing.T, ws []*rpc.Worker) [2][]*Group {
	t.Helper()
	var gs [2][]*Group
	members := [2][]int{{0, 1, 2}, {1, 2, 3}}
	var names [2][]string
	for k, ranks := range members {
		gs[k] = make([]*Group, len(ws))
		for _, r := range ranks {
			names[k] = append(names[k], ws[r].Name())
		}
	}
	each(t, ws, func(r int) error {
		var both sync.WaitGroup
		var errs [2]error
		for i := range 2 {
			k := (r + i) % 2 // 1 begins with one group, and 2 with the other
			if slices.Contains(members[k], r) {
				both.Go(func() { gs[k][r], errs[k] = Open(t.Context(), ws[r], fmt.Sprint("g", k), names[k]...) })
				runtime.Gosched()
			}
		}
		both.Wait()
		return errors.Join(errs[:]...)
	})
	t.Cleanup(func() {
		for _, g := range slices.Concat(gs[0], gs[1]) {
			if g != nil {
				require.NoError(t, g.Close())
			}
		}
	})
	return gs
}

// turn is an operation on one of two groups. What it gives depends on its number, so that no two
// are taken for one another.
func turn(t *testing.T, g *Group, scope string, k int, worker int) error {
	c := t.Context()
	if scope != "" {
		c = Scope(c, scope)
	}
	n, size := k%7, g.Size()
	x := make([]int64, n+1)
	for i := range x {
		x[i] = int64(1000*k + i + worker)
	}
	sum := 0
	for _, m := range g.Members() {
		sum += 1000*k + m.WorkerRank
	}
	var got, want int64
	var err error
	switch k % 5 {
	case 0:
		err = AllReduce(c, g, x, Sum)
		got, want = x[n], int64(sum+n*size)
	case 1:
		root := k % size
		err = Broadcast(c, g, x, root)
		got, want = x[0], int64(1000*k+g.Members()[root].WorkerRank)
	case 2:
		var all [][]int64
		if all, err = AllGather(c, g, x[:1+n*worker/8]); err == nil {
			got, want = all[size-1][0], int64(1000*k+g.Members()[size-1].WorkerRank)
		}
	case 3:
		err = g.Barrier(c)
	case 4:
		var all []int
		if all, err = Agree(c, g, 1000*k+worker); err == nil {
			got, want = int64(all[0]), int64(1000*k+g.Members()[0].WorkerRank)
		}
	}
	if err == nil && got != want {
		err = fmt.Errorf("operation %d in %s: %d; expected %d", k, g.Name(), got, want)
	}
	return err
}

// Two goroutines of each worker go through 500 operations each, now in one group and now in the
// other. Nothing orders the goroutines, on one worker or among them.
func TestTwoGoroutinesARankInTwoOverlappingGroupsNeedNoOrder(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	gs := overlapping(t, ws)
	each(t, ws, func(r int) error {
		var both sync.WaitGroup
		var errs [2]error
		for lane := range 2 {
			both.Go(func() {
				src := rand.New(rand.NewPCG(8, uint64(lane))) // alike on all workers
				for k := range soak.Cases(500) {
					if g := gs[src.IntN(2)][r]; g != nil && errs[lane] == nil {
						errs[lane] = turn(t, g, fmt.Sprint("goroutine ", lane), k, r)
					}
				}
			})
		}
		both.Wait()
		return errors.Join(errs[:]...)
	})
}

// A thousand operations are begun on each worker, in an order of its own, before any is waited for.
func TestAThousandOperationsInRandomOrdersAreBegunBeforeAnyIsWaitedFor(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	gs := overlapping(t, ws)
	each(t, ws, func(r int) error {
		src := rand.New(rand.NewPCG(uint64(r), 8))
		ends := make(chan error, 1000)
		begun := 0
		for _, k := range src.Perm(1000) {
			if g := gs[k%2][r]; g != nil {
				begun++
				go func() { ends <- turn(t, g, fmt.Sprint("operation ", k), k, r) }()
			}
		}
		var all []error
		for range begun {
			all = append(all, <-ends)
		}
		return errors.Join(all...)
	})
}
