package disttest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
)

// leaveIn runs a backward over a chain of four workers whose last node waits in the middle, has
// worker at leave its part of the pass then, lets the node go on, and gives what the backward's
// caller got.
func leaveIn(t *testing.T, mode ctx.Mode, at int, inside bool) {
	var entered, goOn chan struct{}
	var parts []*ctx.Pass
	f := chain(func() error {
		if inside { // by the node function itself
			parts[at].Leave()
		}
		close(entered)
		<-goOn
		return nil
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		entered, goOn = make(chan struct{}), make(chan struct{})
		before := device.Host().Stats().Live
		var inPass, afterwards error
		took := time.Duration(0)
		err := w.ws[0].Pass(t.Context(), func(c context.Context) error {
			x := param(1, 2)
			loss := autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2", "worker3"}, x, ones(2)})))
			parts = nil
			for i := range w.ws {
				parts = append(parts, w.part(t, c, i))
			}
			failed := make(chan error)
			go func() { failed <- ctx.BackwardWith(c, ctx.Options{Mode: mode}, loss) }()
			<-entered
			if !inside {
				parts[at].Leave()
			}
			start := time.Now()
			time.AfterFunc(time.Second, func() { close(goOn) })
			inPass = <-failed
			took = time.Since(start)
			_, afterwards = f.Call(c, "worker1", route{nil, x, ones(2)})
			return inPass
		})
		require.Error(t, err)
		requireLeft(t, inPass, at)
		require.Less(t, took, 2*time.Second, "as soon as the node is done")
		if at <= 1 {
			require.Error(t, afterwards, "the pass is of no use any more")
		}
		w.requireNothingLeft(t, before)
	}, f)
}

// requireLeft checks that an error says that the pass was left, by whom, and is the typed one.
func requireLeft(t *testing.T, err error, at int) {
	t.Helper()
	require.ErrorIs(t, err, ctx.ErrLeft)
	var e *ctx.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "worker0", e.Worker)
	require.NotZero(t, e.Pass)
	var f *ctx.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, e.Pass, f.Pass)
	if at > 0 {
		require.NotEqual(t, "worker0", f.Worker, "%v", f)
	}
}

// The opposite of PyTorch's test_clean_context_during_backward, in which the others have to be
// killed.
func TestAPassThatIsLeftInMidBackwardFailsCleanlyOnEveryWorker(t *testing.T) {
	for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
		for at := range 4 {
			for how, inside := range map[string]bool{"beside it": false, "by a node": true} {
				t.Run(fmt.Sprintf("%v/worker%d/%s", mode, at, how), func(t *testing.T) { leaveIn(t, mode, at, inside) })
			}
		}
	}
}

func TestAllBackwardsAndCallsOfAPassThatIsLeftEnd(t *testing.T) {
	var goOn chan struct{}
	f := chain(func() error { <-goOn; return nil })
	hold := relayFn(false)
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		goOn = make(chan struct{})
		before := device.Host().Stats().Live
		errs := make(chan error)
		n := 0
		begin := func(do func() error) {
			n++
			go func() { errs <- do() }()
		}
		var p *ctx.Pass
		require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
			p = current(c)
			for i := range 5 {
				loss := autodiff.Sum(must(f.Call(c, name(1+i%3), route{[]string{name(1 + (i+1)%3)}, param(1, 2), ones(2)})))
				begin(func() error { return ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss) })
				begin(func() error { return ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss) })
			}
			time.Sleep(time.Second) // of the bubble: they are where they wait
			for i := range 5 {
				begin(func() error {
					_, err := hold.Call(c, name(1+i%3), route{[]string{"worker0", "worker2"}, param(1, 2), ones(2)})
					return err
				})
			}
			return nil // leaves
		}))
		time.AfterFunc(time.Second, func() { close(goOn) })
		for range n {
			require.ErrorIs(t, <-errs, ctx.ErrLeft)
		}
		synctest.Wait()
		_, err := p.Gradients()
		require.ErrorIs(t, err, ctx.ErrUnknownPass)
		w.requireNothingLeft(t, before)
	}, f, hold)
}

func TestLeavingOnePassDoesNotDisturbABackwardOfAnother(t *testing.T) {
	var goOn chan struct{}
	f := chain(func() error { <-goOn; return nil })
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		goOn = make(chan struct{})
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2"}, x, ones(2)})))
			done := make(chan error)
			go func() { done <- ctx.Backward(c, loss) }()
			for i := range w.ws {
				require.NoError(t, w.ws[i].Pass(t.Context(), func(other context.Context) error {
					must(f.Call(other, "worker1", route{[]string{"worker2"}, x, ones(2)}))
					return nil
				}))
			}
			close(goOn)
			require.NoError(t, <-done)
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}})
		})
	}, f)
}

// leave runs the pass, has a worker leave its part of it at message number at, if it has one then,
// and checks that nothing is left anywhere.
func (k *randomCase) leave(t *testing.T, leaver, at int) (err error) {
	var now chan struct{}
	var part atomic.Pointer[ctx.Pass]
	k.entered = func(rank int, p *ctx.Pass) {
		if rank == leaver {
			part.Store(p)
		}
	}
	k.counted(t, func(n int64) {
		if n == int64(at) {
			close(now)
		}
	}, func(t *testing.T, w *world) {
		now = make(chan struct{})
		before := device.Host().Stats().Live
		over := make(chan struct{})
		go func() {
			select {
			case <-now:
				if p := part.Load(); p != nil {
					p.Leave()
				}
			case <-over:
			}
		}()
		start := time.Now()
		err = w.ws[k.root].Pass(t.Context(), func(c context.Context) error {
			k.entered(k.root, current(c))
			return k.pass(c)
		})
		close(over)
		if err != nil {
			require.True(t, errors.Is(err, ctx.ErrLeft) || errors.Is(err, ctx.ErrUnknownPass) || errors.Is(err, autodiff.ErrFreed), "%v", err)
			require.Less(t, time.Since(start), 20*time.Second, "long before the deadline of a minute")
		}
		w.requireNothingLeft(t, before)
	})
	return err
}

func TestARandomWorkerThatLeavesAPassAtARandomMessageEndsItAndLeavesNothing(t *testing.T) {
	var failed, survived int
	cases := soak.Cases(60)
	for i := range cases {
		seed := uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			k := newCase(t, seed, ctx.Mode(seed%4/3))
			messages := k.count(t, func(t *testing.T, w *world) {
				w.pass(t, k.root, func(c context.Context) { require.NoError(t, k.pass(c)) })
			})
			if k.leave(t, k.r.IntN(k.workers), 1+k.r.IntN(max(1, messages))) != nil {
				failed++
			} else {
				survived++
			}
		})
	}
	t.Logf("%d passes failed, %d did not need who left", failed, survived)
	require.Greater(t, failed, cases/5)
}
