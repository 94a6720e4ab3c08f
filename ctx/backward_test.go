package ctx

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
)

var (
	retain = Options{RetainGraph: true}
	fast   = Options{Mode: Fast}
)

func TestGradientsOfAllWorkersLieInThePassAndNowhereElse(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	x, y, z := param(1, 2), param(3, 4), param(5, 6)
	// worker 1 has worker 2 multiply by z, which lives there
	prod := w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
		return w.call(t, c, 2, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			return tensors(autodiff.Mul(in[0], z))
		}, autodiff.Add(in[0], in[1]))
	}, x, y)
	require.NoError(t, Backward(c, autodiff.Sum(prod[0])))
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {5, 6}, y: {5, 6}})
	requireGradients(t, w.part(t, p, 1), nil)
	requireGradients(t, w.part(t, p, 2), map[*autodiff.Tensor][]float64{z: {4, 6}})
	for _, leaf := range tensors(x, y, z) {
		require.True(t, leaf.IsLeaf())
		require.Nil(t, leaf.Owner())
	}
	other, _ := w.open(t, 0)
	none, err := Gradients(other)
	require.NoError(t, err)
	require.Empty(t, none)
	p.Leave()
	require.NoError(t, w.cts[0].Settle(t.Context()))
}

func TestABackwardWithoutCallsIsLocal(t *testing.T) {
	w := newWorld(t, 1)
	c, p := w.open(t, 0)
	x, y := param(1, 2), param(3, 4)
	require.NoError(t, Backward(c, autodiff.Sum(autodiff.Add(x, y)), autodiff.Sum(y)))
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {1, 1}, y: {2, 2}})
}

func TestWhatABackwardRefuses(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 1)
	c, p := w.open(t, 0)
	other, _ := w.open(t, 0)
	x := param(1, 2)
	require.ErrorIs(t, Backward(t.Context(), autodiff.Sum(x)), ErrNoPass)
	require.ErrorIs(t, Backward(c), autodiff.ErrNoRoots)
	require.ErrorIs(t, Backward(c, autodiff.Sum(ones())), autodiff.ErrNoGrad)
	require.ErrorIs(t, Backward(c, autodiff.Sum(x), autodiff.Scale(x, 1)), autodiff.ErrNotScalar)
	require.Error(t, Backward(c, nil))
	require.ErrorIs(t, Backward(c, autodiff.Sum(autodiff.Mul(x, Own(other, ones())))), autodiff.ErrMixedPasses)
	requireGradients(t, p, nil)
	_, err := Gradients(t.Context())
	require.ErrorIs(t, err, ErrNoPass)
	p.Leave()
	err = Backward(c, autodiff.Sum(x))
	require.ErrorIs(t, err, ErrLeft)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "worker0", e.Worker)
	require.Equal(t, p.ID(), e.Pass)
}

func TestGradientsOfSeveralBackwardsAddUp(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	x, y := param(1, 2), param(3, 4)
	loss := w.call1(t, c, 1, func(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Sum(mul(in)) }, x, y)
	require.NoError(t, BackwardWith(c, retain, loss))
	first, err := p.Gradients()
	require.NoError(t, err)
	for range 99 {
		require.NoError(t, BackwardWith(c, retain, loss))
	}
	require.NoError(t, Backward(c, loss))
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {303, 404}, y: {101, 202}})
	require.Equal(t, []float64{3, 4}, values(t, first[x]), "a table that was read does not change")
	require.LessOrEqual(t, len(w.part(t, p, 1).ended), maxEnded)
	err = Backward(c, loss)
	require.ErrorIs(t, err, autodiff.ErrGraphFreed, "the graph is used up")
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {303, 404}, y: {101, 202}})
}

func TestAPassOutlivesBackwardsThatFail(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	var broken atomic.Bool
	cause := errors.New("simulated")
	x := param(1, 2)
	loss := autodiff.Sum(w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
		return w.call(t, c, 2, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			return tensors(autodiff.Mul(in[0], trap(func() error {
				if broken.Load() {
					return cause
				}
				return nil
			})))
		}, in...)
	}, x)[0])
	broken.Store(true)
	for range 10 {
		err := BackwardWith(c, retain, loss)
		require.ErrorIs(t, err, cause)
		require.ErrorContains(t, err, "failed on worker2 in trap: simulated")
		requireGradients(t, p, nil)
	}
	broken.Store(false)
	require.NoError(t, Backward(c, loss))
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {1, 1}})
}

func TestLeavingEndsABackwardThatIsUnderWay(t *testing.T) {
	for name, leaver := range map[string]int{"AtItsRoot": 0, "Elsewhere": 1} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			w := newWorld(t, 2)
			c, p := w.open(t, 0)
			inside, goOn := make(chan struct{}), make(chan struct{})
			x := param(1, 2)
			y := w.call(t, c, 1, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
				return tensors(autodiff.Mul(autodiff.Tanh(in[0]), trap(func() error {
					close(inside)
					<-goOn
					return nil
				})))
			}, x)
			loss := autodiff.Sum(y[0])
			failed := make(chan error)
			go func() { failed <- Backward(c, loss) }()
			<-inside
			if leaver == 0 {
				p.Leave()
			} else {
				w.part(t, p, 1).Leave()
			}
			require.NoError(t, w.cts[leaver].Settle(t.Context()))
			close(goOn)
			require.ErrorIs(t, <-failed, ErrLeft)
			require.Empty(t, w.cts[1].Passes())
			p.Leave()
			w.settle(t)
			_, err := p.Gradients()
			require.ErrorIs(t, err, ErrUnknownPass)
		})
	}
}

func TestLeavingEndsABackwardThatWaitsForGradients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		c, p := w.open(t, 1)
		for range 2 {
			w.call(t, c, 0, func(context.Context, []*autodiff.Tensor) []*autodiff.Tensor { return nil }, param(1, 2))
		}
		answered := make(chan error)
		go func() {
			answered <- w.cts[1].HandleGradients(context.Background(), 0, &GradientMessage{
				Pass: p.ID(), Message: p.SendFunctions()[0].Message, Backward: 77, Mode: Fast, Grads: tensors(gradient(t, 1, 1)),
			})
		}()
		synctest.Wait()
		start := time.Now()
		p.Leave()
		require.ErrorIs(t, <-answered, ErrLeft)
		require.Zero(t, time.Since(start))
	})
}

func TestALostWorkerFailsTheBackwardsItTookPartIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 3)
		c, p := w.open(t, 0)
		defer p.Leave()
		x := param(1, 2)
		loss := autodiff.Sum(autodiff.Mul(w.call1(t, c, 1, mul, x, x), w.call1(t, c, 2, mul, x, x)))
		w.hold(func(c context.Context, what string, _, to WorkerID) error {
			if what == "gradients" && to == 2 {
				<-c.Done()
				return c.Err()
			}
			return nil
		})
		failed := make(chan error)
		go func() { failed <- Backward(c, loss) }()
		synctest.Wait()
		w.cts[0].PeerLost(2, errors.New("no answer"))
		err := <-failed
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorContains(t, err, "worker2: no answer")
		w.hold(nil)
	})
}

// remoteBackward is a pass opened by worker 1 that called worker 0 with x; message is the id of
// worker 1's send function.
func remoteBackward(t testing.TB, w *world, x ...*autodiff.Tensor) (p *Pass, message MessageID) {
	t.Helper()
	c, p := w.open(t, 1)
	w.call(t, c, 0, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor { return nil }, x...)
	return p, p.SendFunctions()[0].Message
}

func gradient(t testing.TB, v ...float64) *autodiff.Tensor {
	t.Helper()
	x := autodiff.New(v)
	buf, err := device.Host().Alloc(8 * len(v))
	require.NoError(t, err)
	src, err := x.Acquire()
	require.NoError(t, err)
	require.NoError(t, device.Copy(buf, src))
	return autodiff.Transient(x.Type(), buf)
}

func TestAGradientMessageThatDoesNotFitFailsTheBackward(t *testing.T) {
	x, y := param(1, 2), param(3)
	sim := device.NewSim(device.SimConfig{})
	onSim := autodiff.To(autodiff.New([]float64{1, 2}), sim).RequireGrad()
	for name, bad := range map[string]struct {
		of      []*autodiff.Tensor
		message MessageID // added to the right one
		grads   func(t *testing.T) []*autodiff.Tensor
		want    error
	}{
		"UnknownMessage": {tensors(x), 5, func(t *testing.T) []*autodiff.Tensor { return tensors(gradient(t, 1, 1)) }, ErrUnknownMessage},
		"TooFew":         {tensors(x, y), 0, func(t *testing.T) []*autodiff.Tensor { return tensors(gradient(t, 1, 1)) }, autodiff.ErrGradient},
		"TooMany":        {tensors(x), 0, func(t *testing.T) []*autodiff.Tensor { return tensors(gradient(t, 1, 1), gradient(t, 1, 1)) }, autodiff.ErrGradient},
		"None":           {tensors(x), 0, func(*testing.T) []*autodiff.Tensor { return nil }, autodiff.ErrGradient},
		"WrongShape":     {tensors(x, y), 0, func(t *testing.T) []*autodiff.Tensor { return tensors(gradient(t, 1, 1), gradient(t, 1, 1)) }, autodiff.ErrGradient},
		"WrongDevice":    {tensors(onSim), 0, func(t *testing.T) []*autodiff.Tensor { return tensors(gradient(t, 1, 1)) }, ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			w := newWorld(t, 2)
			p, id := remoteBackward(t, w, bad.of...)
			defer p.Leave()
			err := w.cts[1].HandleGradients(t.Context(), 0, &GradientMessage{
				Pass: p.ID(), Message: id + bad.message, Backward: 77, Mode: Fast, Grads: bad.grads(t),
			})
			require.ErrorIs(t, err, bad.want)
			require.ErrorContains(t, err, "worker1: pass 1.1: gradients: ")
			requireGradients(t, p, nil)
			require.Len(t, p.SendFunctions(), 1)
			require.Empty(t, p.backwards)
		})
	}
}

func TestGradientsThatComeTwiceOrLateAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		x, y := param(1, 2), param(3)
		c, p := w.open(t, 1)
		defer p.Leave()
		for _, leaf := range tensors(x, y) {
			w.call(t, c, 0, func(context.Context, []*autodiff.Tensor) []*autodiff.Tensor { return nil }, leaf)
		}
		ids := p.SendFunctions()
		bring := func(i int, retain bool, g *autodiff.Tensor) error {
			return w.cts[1].HandleGradients(t.Context(), 0, &GradientMessage{
				Pass: p.ID(), Message: ids[i].Message, Backward: 77, Mode: Fast, Retain: retain, Grads: tensors(g),
			})
		}
		first := make(chan error)
		go func() { first <- bring(0, true, gradient(t, 10, 20)) }()
		synctest.Wait()
		require.ErrorIs(t, bring(0, true, gradient(t, 1, 1)), ErrUnknownMessage, "twice")
		require.NoError(t, bring(1, true, gradient(t, 30)))
		require.NoError(t, <-first, "the first message is answered when all is done")
		want := map[*autodiff.Tensor][]float64{x: {10, 20}, y: {30}}
		requireGradients(t, p, want)
		require.ErrorIs(t, bring(0, true, gradient(t, 1, 1)), ErrUnknownMessage, "the backward is over")
		require.ErrorContains(t, bring(0, true, gradient(t, 1, 1)), "backward 0.77 is over here")
		requireGradients(t, p, want)
	})
}

func TestInFastModeAnUnusedRemoteResultEndsTheBackwardAtItsDeadlineAndIsNamed(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"OfTheContext": 10 * time.Second, "OfTheContainer": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leak.Check(t)
				w := newWorld(t, 2)
				w.cts[0].wait = time.Minute
				c, p := w.open(t, 0)
				defer p.Leave()
				limit := time.Minute
				if deadline > 0 {
					var cancel context.CancelFunc
					c, cancel = context.WithTimeout(c, deadline)
					defer cancel()
					limit = deadline
				}
				w.call1(t, c, 1, add, param(1, 2), ones())
				start := time.Now()
				err := BackwardWith(c, fast, autodiff.Sum(param(1, 2)))
				require.ErrorIs(t, err, ErrStalled)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "send 0.2 to worker1")
				require.Equal(t, limit, time.Since(start))
				requireGradients(t, p, nil)
			})
		})
	}
}

func TestInFastModeAParticipantSaysWhatItWaitedForBeforeTheRootRunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 3)
		c, p := w.open(t, 0)
		defer p.Leave()
		z := param(1, 2)
		y := w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			w.call1(t, c, 2, add, z, ones()) // worker 1 does not use it, and worker 0 cannot know
			return tensors(autodiff.Mul(in[0], z))
		}, param(1, 2))
		c, cancel := context.WithTimeout(c, 10*time.Second)
		defer cancel()
		start := time.Now()
		err := BackwardWith(c, fast, autodiff.Sum(y[0]))
		require.ErrorIs(t, err, ErrStalled)
		require.ErrorContains(t, err, "failed on worker1")
		require.ErrorContains(t, err, "send 1.1 to worker2")
		require.NotContains(t, err.Error(), "to worker0")
		require.Equal(t, 9*time.Second, time.Since(start))
	})
}

func TestACancelledBackwardEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		c, p := w.open(t, 0)
		defer p.Leave()
		w.call1(t, c, 1, add, param(1, 2), ones())
		c, cancel := context.WithCancelCause(c)
		stop := errors.New("stop")
		time.AfterFunc(time.Second, func() { cancel(stop) })
		start := time.Now()
		err := BackwardWith(c, fast, autodiff.Sum(param(1, 2))) // it would wait for ever
		require.ErrorIs(t, err, stop)
		require.NotErrorIs(t, err, ErrStalled)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestBackwardsOfOnePassMayRunAtOnce(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	x, y := param(1, 2), param(3, 4)
	loss := autodiff.Sum(w.call1(t, c, 2, mul, w.call1(t, c, 1, mul, x, y), y))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { require.NoError(t, BackwardWith(c, retain, loss)) })
	}
	wg.Wait()
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {8 * 9, 8 * 16}, y: {8 * 6, 8 * 16}})
}

func TestACallToOneselfTakesPartOnce(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 1)
	c, p := w.open(t, 0)
	defer p.Leave()
	x := param(1, 2)
	require.NoError(t, Backward(c, autodiff.Sum(w.call1(t, c, 0, mul, x, x))))
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {2, 4}})
	require.Equal(t, []WorkerID{0}, p.Known())
	p.Leave()
	w.settle(t)
	require.Equal(t, []string{"gradients 0>0", "gradients 0>0"}, w.messages())
}

func TestGradientsOfAWorkerThatDidNotGetTheTensorsAreRefused(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	p, id := remoteBackward(t, w, param(1, 2)) // sent to worker 0
	defer p.Leave()
	err := w.cts[1].HandleGradients(t.Context(), 2, &GradientMessage{Pass: p.ID(), Message: id, Backward: 77, Mode: Fast, Grads: tensors(gradient(t, 1, 1))})
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorContains(t, err, "come from worker2")
	require.Empty(t, p.backwards)
}

func TestABackwardThatNeedsALostWorkerFailsAtOnce(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	x := param(1, 2)
	w.call(t, c, 2, func(context.Context, []*autodiff.Tensor) []*autodiff.Tensor { return nil }, x) // its gradient will never come
	w.cts[0].PeerLost(2, errors.New("no answer"))
	loss := autodiff.Sum(w.call1(t, c, 1, mul, x, x))
	err := BackwardWith(c, fast, loss)
	require.ErrorIs(t, err, ErrPeerLost)
	require.ErrorContains(t, err, "worker2: no answer")
	require.NoError(t, Backward(c, loss), "in SMART mode it is known that worker 2 takes no part")
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {2, 4}})
}
