package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
)

// groups opens a group of some workers, and closes it at the end of the test.
func groups(t *testing.T, ws []*rpc.Worker, name string) []*Group {
	t.Helper()
	gs := make([]*Group, len(ws))
	names := make([]string, len(ws))
	for r, w := range ws {
		names[r] = w.Name()
	}
	each(t, ws, func(r int) error {
		var err error
		gs[r], err = Open(t.Context(), ws[r], name, names...)
		return err
	})
	t.Cleanup(func() {
		for _, g := range gs {
			require.NoError(t, g.Close())
		}
	})
	return gs
}

// each does something on all members at once.
func each[T any](t *testing.T, of []T, fn func(rank int) error) {
	t.Helper()
	errs := attempt(of, fn)
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
}

func attempt[T any](of []T, fn func(rank int) error) []error {
	return rpctest.Attempt(len(of), fn)
}

func TestMembersThatCallDifferentThingsAllGetBothCallsAndTheGroupLivesOn(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	c := t.Context()
	bad := map[string]func(r int) error{
		"count": func(r int) error { return AllReduce(c, gs[r], make([]float32, 10+r/2), Sum) },
		"dtype": func(r int) error {
			if r == 1 {
				return AllReduce(c, gs[r], make([]int32, 10), Sum)
			}
			return AllReduce(c, gs[r], make([]float32, 10), Sum)
		},
		"op": func(r int) error { return AllReduce(c, gs[r], make([]float32, 10), []Op{Sum, Max, Sum}[r]) },
		"kind": func(r int) error {
			if r == 0 {
				return gs[r].Barrier(c)
			}
			return AllReduce(c, gs[r], make([]float32, 10), Sum)
		},
		"root":  func(r int) error { return Broadcast(c, gs[r], make([]float32, 10), r%2) },
		"roots": func(r int) error { return Broadcast(c, gs[r], make([]float32, 10), (r+1)%3) },
		"large": func(r int) error { return AllReduce(c, gs[r], make([]float32, 100000+r/2), Sum) },
	}
	for name, fn := range bad {
		t.Run(name, func(t *testing.T) {
			for r, err := range attempt(gs, fn) {
				var m *MismatchError
				require.ErrorAs(t, err, &m, "rank %d", r)
				require.ErrorIs(t, err, ErrMismatch)
				require.Contains(t, m.Calls[0].Line, "group_test.go:")
				require.Contains(t, m.Calls[1].Line, "group_test.go:")
				require.NotEqual(t, m.Ranks[0], m.Ranks[1])
			}
			x := []float64{1, 2}
			each(t, gs, func(r int) error {
				x := append([]float64(nil), x...)
				if err := AllReduce(c, gs[r], x, Sum); err != nil {
					return err
				}
				if x[1] != 6 {
					return fmt.Errorf("the sum is %v", x)
				}
				return nil
			})
		})
	}
}

func TestWhoDoesNotComeIsNamedAtTheEarliestDeadline(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	errs := attempt(gs[:2], func(r int) error {
		c := t.Context()
		if r == 0 {
			c = short
		}
		return gs[r].Barrier(c)
	})
	for r, err := range errs {
		var late *LateError
		require.ErrorAs(t, err, &late, "rank %d", r)
		require.ErrorIs(t, err, rpc.ErrTimeout)
		require.Equal(t, gs[0].Members()[0].Worker, late.By)
		require.Equal(t, []string{gs[2].Members()[2].Worker}, late.Missing, "rank %d", r)
	}
	err := gs[2].Barrier(t.Context())
	require.ErrorContains(t, err, "this member came too late, or left a call out: rank ", "it has failed before it was called")
	require.ErrorContains(t, err, "called Barrier by spread at group_test.go:111")
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
}

func TestAMemberThatIsLostEndsTheGroupOnAllSurvivorsWithItsName(t *testing.T) {
	net := rpctest.Net()
	ws := rpctest.World(t, net, 4)
	gs := groups(t, ws, "g")
	began := make(chan struct{}, 3)
	var errs [4]error
	var all sync.WaitGroup
	for r := range 3 {
		all.Go(func() {
			began <- struct{}{}
			for errs[r] == nil {
				errs[r] = AllReduce(t.Context(), gs[r], make([]float32, 1<<16), Sum)
			}
		})
	}
	for range 3 {
		<-began
	}
	require.NoError(t, ws[3].Close())
	all.Wait()
	for r := range 3 {
		var lost *LostError
		require.ErrorAs(t, errs[r], &lost, "rank %d: %v", r, errs[r])
		require.Equal(t, 3, lost.Rank)
		require.Equal(t, ws[3].Name(), lost.Worker)
		require.ErrorIs(t, gs[r].Barrier(t.Context()), ErrLost)
		require.ErrorIs(t, gs[r].Err(), ErrLost)
	}
}

func TestGoroutinesWithScopesNeedNoOrder(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	a, b := groups(t, ws, "a"), groups(t, ws, "b")
	each(t, ws, func(r int) error {
		src := rand.New(rand.NewPCG(uint64(r), 8))
		var all sync.WaitGroup
		var mu sync.Mutex
		var first error
		for _, k := range src.Perm(2 * soak.Cases(60)) { // another order on each member
			all.Go(func() {
				x := []int64{int64(k), int64(r)}
				err := AllReduce(Scope(t.Context(), fmt.Sprint(k)), [][]*Group{a, b}[k%2][r], x, Sum)
				if err == nil && (x[0] != 3*int64(k) || x[1] != 3) {
					err = fmt.Errorf("sum %d is %v", k, x)
				}
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			})
		}
		all.Wait()
		return first
	})
}

func TestAMemberThatClosesEndsNothingThatItHasTakenPartIn(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	for i := range soak.Cases(60) {
		gs := groups(t, ws, fmt.Sprint("g", i))
		each(t, gs, func(r int) error {
			for range r { // in another state of the scheduler's
				runtime.Gosched()
			}
			err := gs[r].Barrier(t.Context())
			return errors.Join(err, gs[r].Close())
		})
	}
	gs := groups(t, ws, "last")
	require.NoError(t, gs[2].Close())
	for r, err := range attempt(gs[:2], func(r int) error { return gs[r].Barrier(t.Context()) }) {
		require.ErrorIs(t, err, ErrAborted, "rank %d", r)
		require.ErrorContains(t, err, ws[2].Name()+" has closed the group")
	}
	require.ErrorIs(t, gs[2].Barrier(t.Context()), ErrClosed)
}

func TestAMemberThatIsTooFarAheadIsToldSo(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	c, cancel := context.WithCancel(t.Context())
	ends := make(chan error)
	for k := range desk.Ahead + 1 {
		go func() { ends <- gs[0].Barrier(Scope(c, fmt.Sprint(k))) }()
	}
	err := <-ends
	require.ErrorIs(t, err, ErrAborted)
	require.ErrorContains(t, err, gs[0].Members()[1].Worker+": a member is too many operations ahead")
	cancel()
	for range desk.Ahead {
		<-ends
	}
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
}

func TestAMemberCallsAsSoonAsItHasOpenedWhereverTheOthersAre(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	for i := range soak.Cases(100) {
		each(t, ws, func(r int) error {
			g, err := Open(t.Context(), ws[r], fmt.Sprint("g", i))
			if err != nil {
				return err
			}
			x := []int32{1}
			err = AllReduce(t.Context(), g, x, Sum)
			if err == nil && x[0] != 4 {
				err = fmt.Errorf("the sum is %v", x)
			}
			return errors.Join(err, g.Close())
		})
	}
}
