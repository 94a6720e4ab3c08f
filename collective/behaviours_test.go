package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// What is here is also what PyTorch's tests of process groups check: docs/pytorch-tests.md.

func TestWhoDoesNotComeToOpenIsNamedAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3)
		for r, err := range attempt(ws[:2], func(r int) error {
			c, cancel := context.WithTimeout(t.Context(), time.Duration(1+r)*time.Second)
			defer cancel()
			_, err := Open(c, ws[r], "g")
			return err
		}) {
			require.ErrorIs(t, err, rpc.ErrTimeout, "rank %d", r)
			require.ErrorContains(t, err, ws[2].Name(), "rank %d", r)
			if r == 0 {
				require.NotContains(t, err.Error(), ws[1].Name(), "it has come")
			}
		}
		_, err := Open(t.Context(), ws[2], "g")
		require.ErrorIs(t, err, rpc.ErrTimeout, "it failed before it was called")
		groups(t, ws, "g") // all try again
	})
}

func TestWhatIsWrongWithTheMembersOfAGroupIsSaid(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	c, name := t.Context(), func(i int) string { return ws[i].Name() }
	_, err := Open(c, ws[0], "g", name(0), name(1), name(0))
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, name(0)+" is twice in the group")
	_, err = Open(c, ws[0], "g", name(1))
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "this worker, "+name(0)+", is not among the members")
	_, err = Open(c, ws[0], "g", name(0), "nobody")
	require.ErrorContains(t, err, "nobody")
	g, err := Open(c, ws[0], "alone", name(0))
	require.NoError(t, err)
	_, err = Open(c, ws[0], "alone", name(0))
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "this worker is in such a group already; close that one")
	require.NoError(t, g.Close())
}

func TestAGroupOfOneDoesEverythingAlone(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2)[:1], "g")
	require.Equal(t, []int{0, 1}, []int{gs[0].Rank(), gs[0].Size()})
	for _, o := range deck(1) {
		play[int32](t, gs, rnd(1), 10, one{o.kind, 0, Sum, 0})
	}
	require.NoError(t, Send(t.Context(), gs[0], 0, 1, []int32{7}))
	x, from, err := RecvNew[int32](t.Context(), gs[0], Anyone, 1)
	require.NoError(t, err)
	require.Equal(t, []any{[]int32{7}, 0}, []any{x, from})
}

func TestEmptyArraysPassThroughEveryOperation(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	for _, o := range deck(len(gs)) {
		if o.op == Sum {
			play[float32](t, gs, rnd(1), 0, o)
		}
	}
}

func TestTwoGroupsOfTheSameMembersAreTwo(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	a, b := groups(t, ws, "a"), groups(t, ws, "b")
	each(t, ws, func(r int) error {
		first, second := []int64{int64(r)}, []int64{10 * int64(r)}
		gs := [][]*Group{a, b}
		order := []int{r, 1 - r} // each begins with another one; one goroutine each, as both wait
		errs := make(chan error, 2)
		for _, k := range order {
			go func() { errs <- AllReduce(t.Context(), gs[k][r], [][]int64{first, second}[k], Sum) }()
		}
		err := errors.Join(<-errs, <-errs)
		if err == nil && (first[0] != 1 || second[0] != 10) {
			err = fmt.Errorf("%v and %v", first, second)
		}
		return err
	})
	require.NoError(t, a[0].Close())
	each(t, b, func(r int) error { return b[r].Barrier(t.Context()) })
}

func TestAGroupIsMadeAgainAfterItWasClosedInAnyOrder(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	for i := range 6 {
		a, b := groups(t, ws, "a"), groups(t, ws, "b")
		each(t, ws, func(r int) error {
			if err := a[r].Barrier(t.Context()); err != nil {
				return err
			}
			first, second := a[r], b[r]
			if (r+i)%2 == 0 { // each closes in an order of its own, and twice
				first, second = second, first
			}
			return errors.Join(first.Close(), second.Close(), first.Close())
		})
	}
}

func TestClosingAGroupUnblocksWhoWaitsInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3), "g")
		ends := make(chan error, 4)
		go func() { ends <- gs[0].Barrier(t.Context()) }()
		go func() { ends <- AllReduce(Scope(t.Context(), "s"), gs[0], make([]float32, 100000), Sum) }()
		go func() { _, err := Recv(t.Context(), gs[0], 1, 0, []int32{1}); ends <- err }()
		go func() { ends <- Send(t.Context(), gs[0], 1, 0, make([]int32, 100000)) }()
		synctest.Wait()
		require.NoError(t, gs[0].Close())
		for range cap(ends) {
			require.ErrorIs(t, <-ends, ErrClosed)
		}
	})
}

func TestWhoGivesUpAnOperationEndsItOnAllMembersWithItsCause(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 4), "g")
	why := errors.New("the loss is NaN")
	for k := range 4 {
		c, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		for r, err := range attempt(gs[:3], func(r int) error { // the fourth does not come
			if r == 1 {
				return AllReduce(c, gs[r], make([]float32, 100), Sum)
			}
			return AllReduce(t.Context(), gs[r], make([]float32, 100), Sum)
		}) {
			if r == 1 {
				require.ErrorIs(t, err, why)
				require.NotContains(t, err.Error(), "post on", "what this member was at is no matter of the user's")
				continue
			}
			require.ErrorIs(t, err, ErrAborted, "rank %d, %d", r, k)
			require.ErrorContains(t, err, "given up: "+gs[1].Members()[1].Worker+": ", "who")
			require.ErrorContains(t, err, ": the loss is NaN")
		}
		require.ErrorIs(t, AllReduce(t.Context(), gs[3], make([]float32, 100), Sum), ErrAborted, "it has failed before it was called")
	}
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
}

// wrong has rank 0 call what cannot be, and the others what could. All fail, with the cause, and
// the group lives on.
func wrong(t *testing.T, gs []*Group, is error, says string, call, other func(g *Group) error) {
	t.Helper()
	for r, err := range attempt(gs, func(r int) error {
		if r > 0 {
			return other(gs[r])
		}
		return call(gs[r])
	}) {
		require.ErrorContains(t, err, says, "rank %d", r)
		if r == 0 {
			require.ErrorIs(t, err, is)
			continue
		}
		require.ErrorIs(t, err, ErrAborted, "rank %d", r)
	}
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
}

func TestARootOrAListThatCannotBeIsRefusedAndToldToAll(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	c, x := t.Context(), make([]float32, 3)
	sum := func(g *Group) error { return AllReduce(c, g, []float32{1}, Sum) }
	for _, root := range []int{-1, 3} {
		for _, call := range []func(g *Group) error{
			func(g *Group) error { _, err := Gather(c, g, x, root); return err },
			func(g *Group) error { _, err := Scatter(c, g, x, root); return err },
			func(g *Group) error { return Broadcast(c, g, x, root) },
			func(g *Group) error { return Reduce(c, g, x, Sum, root) },
		} {
			wrong(t, gs, ErrArguments, fmt.Sprintf("root %d; the group has ranks 0 to 2", root), call, sum)
		}
	}
	for _, lists := range []int{0, 2, 4} {
		wrong(t, gs, ErrArguments, fmt.Sprintf("arrays for %d members; the group has 3", lists), func(g *Group) error {
			_, err := AllToAll(c, g, make([][]int32, lists))
			return err
		}, sum)
	}
	wrong(t, gs, ErrArguments, "chan int", func(g *Group) error { _, err := Agree(c, g, make(chan int)); return err }, sum)
	wrong(t, gs, ErrArguments, "no buffer", func(g *Group) error { _, err := g.AllReduced(c, Sum, device.Float32, nil); return err }, sum)
	require.ErrorIs(t, gs[0].Barrier(Scope(c, string(make([]byte, maxScope+1)))), ErrArguments, "a scope that cannot be has no numbers")
	require.ErrorContains(t, gs[0].Barrier(Scope(c, string(make([]byte, maxScope+1)))), `Barrier in group "g"`)
}

func TestOperationsWithoutMeaningAreRefusedAndToldToAll(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	c := t.Context()
	barrier := func(g *Group) error { return g.Barrier(c) }
	for _, op := range []Op{And, Or, Xor, {}} {
		wrong(t, gs, ErrOp, op.String(), func(g *Group) error { return AllReduce(c, g, []float64{1}, op) }, barrier)
	}
	for _, op := range []Op{Mean, Scaled(2)} {
		wrong(t, gs, ErrOp, op.String()+" of int64", func(g *Group) error { return AllReduce(c, g, []int64{1}, op) }, barrier)
		wrong(t, gs, ErrOp, op.String()+" of int32", func(g *Group) error { _, err := ReduceScatter(c, g, []int32{1}, op); return err }, barrier)
	}
}

func TestSumsBeyondTheLargestNumberAndOfNaNAreWhatTheDefinitionSays(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	big, inf, nan := float32(math.MaxFloat32), float32(math.Inf(1)), float32(math.NaN())
	for _, k := range []struct {
		op   Op
		in   [3]float32
		want float32
	}{
		{Sum, [3]float32{big, big, -big}, inf}, {Sum, [3]float32{big, -big, big}, big}, {Mean, [3]float32{big, 0, 0}, big / 3},
		{Max, [3]float32{1, nan, 3}, nan}, {Min, [3]float32{inf, 2, -inf}, -inf}, {Sum, [3]float32{inf, -inf, 1}, nan}, {Prod, [3]float32{big, 2, 0}, nan},
	} {
		each(t, gs, func(r int) error {
			x := []float32{k.in[r]}
			err := AllReduce(t.Context(), gs[r], x, k.op)
			if err == nil && x[0] != k.want && !(math.IsNaN(float64(x[0])) && math.IsNaN(float64(k.want))) {
				err = fmt.Errorf("%v of %v is %v; expected %v", k.op, k.in, x[0], k.want)
			}
			return err
		})
	}
}

func TestABarrierWaitsForTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 5), "g")
		for slow := range gs {
			start := time.Now()
			each(t, gs, func(r int) error {
				if r == slow {
					time.Sleep(time.Minute) // of the bubble's clock
				}
				err := gs[r].Barrier(t.Context())
				if took := time.Since(start); err == nil && took < time.Minute {
					err = fmt.Errorf("rank %d was let go after %v", r, took)
				}
				return err
			})
		}
	})
}

func TestABarrierNamesAllWhoAreMissingAlsoTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 6)
		gs := groups(t, ws[1:], "part") // a group of some: its rank 0 is worker 1
		missing := map[int]bool{0: true, 3: true}
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for r, err := range attempt(gs, func(r int) error {
			if missing[r] {
				return nil
			}
			return gs[r].Barrier(c)
		}) {
			if missing[r] {
				continue
			}
			var late *LateError
			require.ErrorAs(t, err, &late, "rank %d", r)
			require.Equal(t, []string{ws[1].Name(), ws[4].Name()}, late.Missing, "rank %d: in the order of ranks", r)
		}
	})
}

func TestValuesOfAnyTypeAreAgreedInPartsOfAWorld(t *testing.T) {
	type value struct {
		Name string
		Of   map[string][]int
		Next *int
	}
	ws := rpctest.World(t, rpctest.Net(), 4)
	gs := groups(t, ws[1:], "part")
	each(t, gs, func(r int) error {
		all, err := Agree(t.Context(), gs[r], value{Name: fmt.Sprint("v", r), Of: map[string][]int{"a": {r, r}}, Next: &r})
		if err != nil {
			return err
		}
		for k, v := range all {
			if v.Name != fmt.Sprint("v", k) || v.Of["a"][1] != k || *v.Next != k {
				return fmt.Errorf("value %d is %+v", k, v)
			}
		}
		return nil
	})
}

func TestNumbersOfOperationsAreTheGroupsOwn(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	a, b := groups(t, ws, "a"), groups(t, ws, "b")
	for k := range 3 {
		each(t, ws, func(r int) error {
			err := a[r].Barrier(t.Context())
			if k == 1 {
				err = errors.Join(err, b[r].Barrier(t.Context()), a[r].Barrier(Scope(t.Context(), "s")))
			}
			return err
		})
	}
	keys := func(g *Group) (all []string) {
		for _, e := range g.Trace() {
			all = append(all, e.Key)
		}
		return all
	}
	for r := range ws {
		require.Equal(t, []string{"#0", "#1", "s#0", "#2"}, keys(a[r]))
		require.Equal(t, []string{"#0"}, keys(b[r]))
	}
}

// A member that begins after another one has closed sends nothing. Who has begun before, and waits
// for it, is told.
func TestAMemberThatComesAfterAnotherHasClosedTellsWhoWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3), "g")
		waits := make(chan error, 1)
		go func() { waits <- gs[0].Barrier(t.Context()) }()
		synctest.Wait()
		require.NoError(t, gs[2].Close())
		time.Sleep(time.Second) // of the bubble's clock
		require.ErrorIs(t, gs[1].Barrier(t.Context()), ErrAborted)
		require.ErrorIs(t, <-waits, ErrAborted)
	})
}
