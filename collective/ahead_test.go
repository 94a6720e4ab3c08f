package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/transport"
)

// waiting is how many bytes of operations that were not begun wait at a member.
func waiting(g *Group) (bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.desk.Held()
}

// A fast member begins many large operations, and a slow one holds no more of them than the window.
// It comes to them in the reverse order, and all are right.
func TestAFastMemberMakesASlowOneHoldNoMoreThanTheWindow(t *testing.T) {
	const window, size, scopes, n = 1 << 20, 3, 20, 100000 // at most 147,456 bytes of each go to each other member
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), size), "g")
		for _, g := range gs {
			g.window = window
		}
		ends := make(chan error, size*scopes)
		begin := func(r, k int) {
			x := filled(n, 0, k)
			err := AllReduce(Scope(t.Context(), fmt.Sprint(k)), gs[r], x, Sum)
			if want := size * filled(n, 0, k)[n-1]; err == nil && x[n-1] != want {
				err = fmt.Errorf("%d: %x; expected %x", k, x[n-1], want)
			}
			ends <- err
		}
		for k := range scopes {
			go begin(0, k)
			go begin(1, k)
		}
		synctest.Wait()
		time.Sleep(time.Second) // of the bubble's clock: all that is on its way arrives
		require.Greater(t, waiting(gs[2]), window)
		require.LessOrEqual(t, waiting(gs[2]), 2*window+2*scopes*1024, "of two members, and what counts beside")
		each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
		require.Empty(t, ends)
		for k := range scopes {
			go begin(2, scopes-1-k)
		}
		for range size * scopes {
			require.NoError(t, <-ends)
		}
		for _, g := range gs {
			require.Zero(t, waiting(g))
			require.Equal(t, make([]int, size), g.ahead)
		}
	})
}

func TestWhatWaitsForRoomIsGivenUpWithItsOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 2), "g")
		gs[0].window = 100
		c, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var late *LateError
		require.ErrorAs(t, AllReduce(c, gs[0], make([]float32, 100000), Sum), &late)
		require.Zero(t, waiting(gs[1]))
		require.ErrorAs(t, AllReduce(t.Context(), gs[1], make([]float32, 100000), Sum), &late)
		each(t, gs, func(r int) error { return AllReduce(t.Context(), gs[r], make([]float32, 100000), Sum) })
	})
}

// A member that keeps to nothing can fill no more of another one's memory than is agreed. The
// operation that goes beyond fails on all, and the group lives on.
func TestAMemberThatKeepsToNothingFillsNoMoreThanIsAgreed(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	const each4 = 16 << 20
	buf, err := device.Host().Alloc(each4) // one for all messages, as if each had brought its own
	require.NoError(t, err)
	defer buf.Release()
	from := gs[1].w.Workers()[0]
	call := desk.Call{Kind: plan.AllReduce, Algorithm: plan.Direct, Op: fold.Op{Fn: fold.Sum}, Dtype: device.Float32, Count: 1}
	for k := range uint64(desk.AheadBytes/each4 + 3) {
		n := note{Scope: "bad", N: k, Call: packCall(call), Slots: []notePart{{Tensor: 0, N: each4}}}
		gs[1].receive(from, wire(&n), []transport.Tensor{bytesTensor(buf.Retain())})
	}
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
	require.LessOrEqual(t, waiting(gs[1]), desk.AheadBytes)
	require.Greater(t, waiting(gs[1]), desk.AheadBytes/2)
}

func TestAScopeInsideAnotherIsNumberedApart(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	each(t, gs, func(r int) error {
		outer := Scope(t.Context(), "outer")
		all := []context.Context{t.Context(), outer, Subscope(t.Context(), "inner"), Subscope(outer, "inner"), Subscope(Subscope(outer, "inner"), "most")}
		if r == 1 {
			slices.Reverse(all) // their order does not matter
		}
		ends := make(chan error, len(all))
		for k, c := range all {
			if r == 1 {
				k = len(all) - 1 - k
			}
			go func() {
				x := []int64{int64(k)}
				err := AllReduce(c, gs[r], x, Sum)
				if err == nil && x[0] != int64(2*k) {
					err = fmt.Errorf("scope %d met another: %d", k, x[0])
				}
				ends <- err
			}()
		}
		var err error
		for range all {
			err = errors.Join(err, <-ends)
		}
		return err
	})
}
