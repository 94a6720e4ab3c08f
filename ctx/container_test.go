package ctx

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
)

func tensors(ts ...*autodiff.Tensor) []*autodiff.Tensor { return ts }

func ones() *autodiff.Tensor { return autodiff.Ones(device.Float64, 2) }

func TestACallMakesThePassWhereItArrivesAndTheNextCallFindsIt(t *testing.T) {
	w := newWorld(t, 2)
	_, p := w.open(t, 0)
	c, q, done, err := w.cts[1].Enter(t.Context(), p.ID(), 0, nil)
	require.NoError(t, err)
	found, ok := From(c)
	require.True(t, ok)
	require.Same(t, q, found)
	_, again, done2, err := w.cts[1].Enter(t.Context(), p.ID(), 0, nil)
	require.NoError(t, err)
	require.Same(t, q, again)
	done()
	require.Error(t, c.Err())
	done2()
	require.Len(t, w.cts[1].Passes(), 1, "the pass lives on between calls")
	require.NoError(t, q.Life().Err(), "and so does what was set up in them")
	_, self, done3, err := w.cts[0].Enter(t.Context(), p.ID(), 0, nil)
	require.NoError(t, err)
	require.Same(t, p, self)
	done3()
	p.Leave()
	require.ErrorIs(t, context.Cause(p.Life()), ErrLeft)
	<-q.Life().Done()
}

func TestWorkersThatExchangedMessagesAreKnownAlsoWithoutGradients(t *testing.T) {
	w := newWorld(t, 4)
	c, p := w.open(t, 0)
	require.Empty(t, p.Known())
	w.call1(t, c, 3, add, ones(), ones())
	w.call1(t, c, 1, add, param(1, 2), ones())
	require.Equal(t, []WorkerID{1, 3}, p.Known())
	require.Equal(t, []WorkerID{0}, w.part(t, p, 3).Known())
	require.Empty(t, w.part(t, p, 3).SendFunctions())
	require.Empty(t, w.part(t, p, 3).RecvFunctions())
	infos := w.cts[1].Passes()
	require.Equal(t, []PassInfo{{ID: p.ID(), Sends: 1, Recvs: 1, Bytes: 3 * 16}}, infos)
}

func TestAStragglerDoesNotReviveAPass(t *testing.T) {
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	w.call1(t, c, 1, add, ones(), ones())
	p.Leave()
	w.settle(t)
	for _, ct := range w.cts[:2] {
		_, _, _, err := ct.Enter(t.Context(), p.ID(), 0, nil)
		require.ErrorIs(t, err, ErrUnknownPass)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, p.ID(), e.Pass)
		require.Equal(t, wires{}.Name(ct.me), e.Worker)
	}
	_, _, _, err := w.cts[0].Enter(t.Context(), PassID(newID(0, 1<<40)), 1, nil)
	require.ErrorIs(t, err, ErrUnknownPass, "a pass of this worker's that it never opened")
	w.cts[2].HandleCleanup(t.Context(), p.ID(), 0)
	_, _, _, err = w.cts[2].Enter(t.Context(), p.ID(), 0, nil)
	require.ErrorIs(t, err, ErrUnknownPass, "the clean-up overtook the first call")
	require.ErrorIs(t, w.cts[1].HandleGradients(t.Context(), 0, &GradientMessage{Pass: p.ID()}), ErrUnknownPass)
	w.settle(t)
}

func TestOnlyTheOldestLeftPassesAreForgotten(t *testing.T) {
	var g tombstones
	for i := range PassID(maxTombstones) {
		g.add(i, nil)
		g.add(i, nil) // counts once
	}
	require.True(t, g.has(0))
	g.add(maxTombstones, nil)
	require.False(t, g.has(0))
	for i := range PassID(maxTombstones) {
		require.True(t, g.has(i+1))
	}
	require.Len(t, g.set, maxTombstones)
}

// nested calls worker 1, which calls worker 2, and so on until the last, which calls back to the
// first and itself.
func nested(t testing.TB, w *world, at int) function {
	return func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
		next := at + 1
		if next == len(w.cts) {
			x := w.call1(t, c, 0, add, in[0], in[1])
			return tensors(w.call1(t, c, at, mul, x, in[1]))
		}
		return w.call(t, c, next, nested(t, w, next), in...)
	}
}

func TestLeavingFreesThePassOnWorkersHopsAway(t *testing.T) {
	for name, x := range map[string]*autodiff.Tensor{"WithGradients": param(1, 2), "Without": ones()} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			w := newWorld(t, 4)
			c, p := w.open(t, 0)
			w.call(t, c, 1, nested(t, w, 1), Own(c, ones()), x)
			for _, ct := range w.cts {
				require.Len(t, ct.Passes(), 1)
			}
			p.Leave()
			require.Empty(t, w.cts[0].Passes())
			require.ErrorIs(t, context.Cause(c), ErrLeft)
			w.settle(t)
			_, err := p.Gradients()
			require.ErrorIs(t, err, ErrUnknownPass)
			_, err = Gradients(c)
			require.ErrorIs(t, err, ErrUnknownPass)
			n := len(w.messages())
			p.Leave()
			w.cts[2].HandleCleanup(t.Context(), p.ID(), 0)
			w.settle(t)
			require.Len(t, w.messages(), n, "leaving again, or a repeated clean-up, tells nobody")
		})
	}
}

func TestAPassWithoutTensorsIsFreedToo(t *testing.T) {
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	w.call(t, c, 1, func(context.Context, []*autodiff.Tensor) []*autodiff.Tensor { return nil })
	require.Len(t, w.cts[1].Passes(), 1)
	p.Leave()
	w.settle(t)
	require.Equal(t, []string{"clean-up 0>1"}, w.messages())
}

func TestCleanUpsThatRunInCirclesEnd(t *testing.T) {
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	for i := range w.cts {
		for j := range w.cts {
			part := p
			if i > 0 {
				w.call1(t, c, i, add, ones(), ones())
				part = w.part(t, p, i)
			}
			part.Meet(WorkerID(j))
		}
	}
	p.Leave()
	w.settle(t)
}

func TestLeavingFreesTensorsAndEndsContextsEverywhere(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 2)
	live := device.Host().Stats().Live
	outer, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, p, err := w.cts[0].Open(outer)
	require.NoError(t, err)
	x := Own(c, ones())
	there, _, done, err := w.cts[1].Enter(context.Background(), p.ID(), 0, nil)
	require.NoError(t, err)
	p.Meet(1)
	y := autodiff.Add(Own(there, ones()), param(1, 2))
	require.Equal(t, live+1, device.Host().Stats().Live, "the sum; the collector has what was nobody's once")
	p.Leave()
	<-c.Done()
	require.NoError(t, outer.Err())
	w.settle(t)
	<-there.Done()
	require.ErrorIs(t, context.Cause(there), ErrLeft)
	require.ErrorContains(t, context.Cause(there), "worker0")
	for _, freed := range tensors(x, y) {
		_, err := autodiff.Values[float64](freed)
		require.ErrorIs(t, err, autodiff.ErrFreed)
	}
	require.Equal(t, live, device.Host().Stats().Live)
	require.ErrorIs(t, autodiff.Add(x, ones()).Err(), autodiff.ErrFreed)
	done()
}

func TestAMessageThatLeavesAfterThePassDoesNotMakeItAnew(t *testing.T) {
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	w.call1(t, c, 1, add, ones(), ones())
	q := w.part(t, p, 1)
	p.Leave()
	w.settle(t)
	// A handler on worker 1 that does not heed its context goes on to call worker 2.
	q.Meet(2)
	_, _, done, err := w.cts[2].Enter(t.Context(), p.ID(), 1, nil)
	if err == nil { // before the clean-up
		done()
	}
	w.settle(t)
	_, _, _, err = w.cts[2].Enter(t.Context(), p.ID(), 1, nil)
	require.ErrorIs(t, err, ErrUnknownPass)
	_, err = q.AttachSend(q.NextMessage(), 2, "test", tensors(ones()))
	require.ErrorIs(t, err, ErrLeft)
	require.ErrorIs(t, q.AttachRecv(q.NextMessage(), 2, tensors(ones()), []bool{true}, nil, Lineage{}), ErrLeft)
	require.ErrorIs(t, Own(c, ones()).Err(), autodiff.ErrFreed)
}

func TestALostWorkersPassesAreFreedWhereverTheyReached(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 4)
	c, p := w.open(t, 0)
	w.call(t, c, 1, nested(t, w, 1), Own(c, ones()), param(1, 2))
	mine, _ := w.open(t, 1)
	there, _, done, err := w.cts[2].Enter(context.Background(), p.ID(), 1, nil)
	require.NoError(t, err)
	defer done()
	w.cts[2].PeerLost(0, errors.New("no answer"))
	require.NoError(t, w.cts[2].Settle(t.Context()))
	require.Empty(t, w.cts[2].Passes())
	require.Empty(t, w.cts[3].Passes(), "worker 2 called it, and tells it")
	<-there.Done()
	require.ErrorIs(t, context.Cause(there), ErrPeerLost)
	require.ErrorContains(t, context.Cause(there), "worker0: no answer")
	w.cts[1].PeerLost(0, errors.New("no answer"))
	require.Len(t, w.cts[1].Passes(), 1)
	require.NoError(t, mine.Err(), "a pass that the lost worker did not open goes on")
	w.cts[3].PeerLost(0, errors.New("no answer"))
	_, _, _, err = w.cts[3].Enter(t.Context(), p.ID(), 2, nil)
	require.ErrorIs(t, err, ErrUnknownPass)
	w.cts[0].Close()
}

func TestAWorkerThatALostOneBroughtIntoAPassFreesItsPart(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 4)
	c, p := w.open(t, 0)
	defer p.Leave()
	hop := func(to int, then function) function {
		return func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			return w.call(t, c, to, then, in...)
		}
	}
	same := func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor { return in }
	// worker 1 brings 2, which brings 3 and is called back by it; the opener calls 3 itself later
	w.call(t, c, 1, hop(2, hop(3, hop(2, same))), Own(c, ones()))
	w.call(t, c, 3, same, Own(c, ones()))
	for _, ct := range w.cts[2:] {
		ct.PeerLost(1, errors.New("no answer"))
		require.NoError(t, ct.Settle(t.Context()))
	}
	require.Empty(t, w.cts[2].Passes(), "nobody else would tell it")
	require.Len(t, w.cts[3].Passes(), 1, "the opener called it, and will tell it")
	require.Len(t, w.cts[0].Passes(), 1)
	p.Leave()
	require.NoError(t, w.cts[0].Settle(t.Context()))
	require.Empty(t, w.cts[3].Passes())

	c, p = w.open(t, 0)
	defer p.Leave()
	w.call(t, c, 1, hop(2, hop(3, same)), Own(c, ones()))
	w.cts[2].PeerLost(1, errors.New("no answer"))
	require.NoError(t, w.cts[2].Settle(t.Context()))
	require.Empty(t, w.cts[3].Passes(), "worker 2 brought it and told it")
	require.Len(t, w.cts[0].Passes(), 1)
}

func TestOnlyWhoOpenedAPassOrBroughtItEndsIt(t *testing.T) {
	w := newWorld(t, 4)
	c, p := w.open(t, 0)
	w.call1(t, c, 1, add, ones(), ones())
	_, _, done, err := w.cts[2].Enter(t.Context(), p.ID(), 1, nil)
	require.NoError(t, err)
	done()
	for _, stranger := range []WorkerID{0, 1, 2, 3} {
		w.cts[0].HandleCleanup(t.Context(), p.ID(), stranger+1)
	}
	w.cts[1].HandleCleanup(t.Context(), p.ID(), 2)
	w.cts[2].HandleCleanup(t.Context(), p.ID(), 3)
	for _, ct := range w.cts[:3] {
		require.Len(t, ct.Passes(), 1)
	}
	w.cts[2].HandleCleanup(t.Context(), p.ID(), 1)
	require.Empty(t, w.cts[2].Passes())
	w.cts[1].HandleCleanup(t.Context(), p.ID(), 0)
	require.Empty(t, w.cts[1].Passes())
	require.Len(t, w.cts[0].Passes(), 1)
	p.Leave()
	w.settle(t)
}

func TestSettleWaitsForTheAnswersAndSaysWhoseAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		w.hold(func(c context.Context, _ string, _, _ WorkerID) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-c.Done():
				return c.Err()
			}
		})
		c, p := w.open(t, 0)
		w.call1(t, c, 1, add, ones(), ones())
		start := time.Now()
		p.Leave()
		require.Zero(t, time.Since(start), "leaving waits for nobody")
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := w.cts[0].Settle(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "worker0")
		require.NotEmpty(t, w.cts[1].Passes())
		w.settle(t)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAWorkerThatCannotBeToldIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		w.hold(func(c context.Context, _ string, _, _ WorkerID) error { <-c.Done(); return c.Err() })
		c, p := w.open(t, 0)
		w.call1(t, c, 1, add, ones(), ones())
		start := time.Now()
		p.Leave()
		require.NoError(t, w.cts[0].Settle(t.Context()))
		require.Equal(t, tellTimeout+7*firstPause, time.Since(start))
	})
}

func TestCloseFreesEveryPassAndStopsCleanUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		w.hold(func(c context.Context, _ string, _, _ WorkerID) error { <-c.Done(); return c.Err() })
		c, p := w.open(t, 0)
		w.call1(t, c, 1, add, Own(c, ones()), ones())
		p.Leave()
		stays, q := w.open(t, 0)
		Own(stays, ones())
		start := time.Now()
		w.cts[0].Close()
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, context.Cause(stays), ErrLeft)
		require.Empty(t, w.cts[0].Passes())
		_, _, err := w.cts[0].Open(t.Context())
		require.ErrorIs(t, err, ErrLeft)
		_, _, _, err = w.cts[0].Enter(t.Context(), PassID(newID(1, 1)), 1, nil)
		require.ErrorIs(t, err, ErrUnknownPass)
		q.Meet(1)
		q.Leave()
		w.cts[0].Close()
	})
}

func TestContextsSayWhetherCallsAreRecorded(t *testing.T) {
	w := newWorld(t, 1)
	_, ok := From(t.Context())
	require.False(t, ok)
	require.False(t, Recording(t.Context()))
	_, ok = From(NoGrad(t.Context()))
	require.False(t, ok)
	c, p := w.open(t, 0)
	require.True(t, Recording(c))
	quiet := NoGrad(c)
	require.False(t, Recording(quiet))
	found, ok := From(quiet)
	require.True(t, ok)
	require.Same(t, p, found)
	inner, _, err := w.cts[0].Open(quiet)
	require.NoError(t, err)
	require.False(t, Recording(inner), "not recording is inherited")
}

func TestAnInnerPassHidesTheOuterAndEndsWithIt(t *testing.T) {
	w := newWorld(t, 1)
	outer, p := w.open(t, 0)
	inner, q, err := w.cts[0].Open(outer)
	require.NoError(t, err)
	found, _ := From(inner)
	require.Same(t, q, found)
	x := param(1, 2)
	require.NoError(t, Backward(inner, autodiff.Sum(autodiff.Scale(x, 3))))
	requireGradients(t, q, map[*autodiff.Tensor][]float64{x: {3, 3}})
	requireGradients(t, p, nil)
	q.Leave()
	require.NoError(t, outer.Err())
	require.ErrorIs(t, context.Cause(inner), ErrLeft)
	inner, q, err = w.cts[0].Open(outer)
	require.NoError(t, err)
	p.Leave()
	<-inner.Done()
	require.Len(t, w.cts[0].Passes(), 1, "who opened the inner pass leaves it")
	q.Leave()
}

func TestOwnGivesATensorToThePass(t *testing.T) {
	w := newWorld(t, 1)
	c, p := w.open(t, 0)
	x := ones()
	require.Same(t, x, Own(c, x))
	require.Same(t, p.Arena(), x.Owner())
	require.Same(t, x, Own(c, x), "twice is once")
	require.Equal(t, int64(16), p.Arena().Bytes())
	require.ErrorIs(t, Own(t.Context(), ones()).Err(), ErrNoPass)
	other, _ := w.open(t, 0)
	require.ErrorIs(t, Own(other, x).Err(), autodiff.ErrMixedPasses)
	require.ErrorIs(t, autodiff.Add(x, Own(other, ones())).Err(), autodiff.ErrMixedPasses)
	require.Error(t, Own(c, autodiff.New([]float64{1}, 7)).Err())
	require.Error(t, Own(c, nil).Err())
}

func TestADroppedSendFunctionIsForgotten(t *testing.T) {
	w := newWorld(t, 2)
	_, p := w.open(t, 0)
	id := p.NextMessage()
	_, err := p.AttachSend(id, 1, "test", tensors(param(1)))
	require.NoError(t, err)
	require.Len(t, p.SendFunctions(), 1)
	p.DropSend(id)
	p.DropSend(id)
	require.Empty(t, p.SendFunctions())
}

func TestPassesMayBeOpenedEnteredAndLeftFromEverywhereAtOnce(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				c, p := w.open(t, g%3)
				to := (g + i) % 3
				x := w.call1(t, c, to, add, Own(c, ones()), param(1, 2))
				if i%3 > 0 {
					require.NoError(t, Backward(c, autodiff.Sum(x)))
				}
				if i%4 == 0 {
					wg.Go(p.Leave)
				}
				p.Leave()
				require.NoError(t, w.cts[g%3].Settle(t.Context()))
			}
		})
	}
	wg.Wait()
	w.settle(t)
	require.False(t, slices.ContainsFunc(w.messages(), func(m string) bool { return strings.HasPrefix(m, "clean-up 0>0") }))
}
