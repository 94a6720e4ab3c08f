package ctx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/leak"
)

// fan is a pass of worker 0 in which worker 1 computes x·z, worker 2 computes y·trap, and the loss
// is their sum.
func fan(t testing.TB, w *world, z *autodiff.Tensor, take func() error) (c context.Context, p *Pass, loss *autodiff.Tensor) {
	c, p = w.open(t, 0)
	a := w.call1(t, c, 1, func(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(in[0], z) }, param(1, 2))
	b := w.call1(t, c, 2, func(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(in[0], trap(take)) }, param(1, 2))
	return c, p, autodiff.Sum(autodiff.Add(a, b))
}

func TestAFailureTakesBackWhatOtherWorkersHaveFoundAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 3)
		var broken atomic.Bool
		broken.Store(true)
		z := param(3, 4)
		c, p, loss := fan(t, w, z, func() error {
			if broken.Load() {
				time.Sleep(time.Second) // worker 1 is done long since
				return errors.New("simulated")
			}
			return nil
		})
		defer p.Leave()
		for range 2 * maxPending {
			require.ErrorContains(t, BackwardWith(c, retain, loss), "failed on worker2 in trap: simulated")
			require.NoError(t, w.cts[0].Settle(c))
		}
		broken.Store(false)
		require.NoError(t, BackwardWith(c, retain, loss))
		requireGradients(t, w.part(t, p, 1), map[*autodiff.Tensor][]float64{z: {1, 2}})
	})
}

func TestEveryWorkerHearsOfAFailureWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 4)
		c, p := w.open(t, 0)
		defer p.Leave()
		x := param(1, 2)
		// worker 3 waits for gradients from worker 2, which get stuck there, and from worker 1,
		// where the backward fails
		var shared *autodiff.Tensor
		y := w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			return w.call(t, c, 3, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
				shared = autodiff.Tanh(in[0])
				return tensors(autodiff.Mul(shared, trap(func() error { time.Sleep(time.Second); return errors.New("simulated") })))
			}, in...)
		}, x)[0]
		z := w.call(t, c, 2, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			return tensors(autodiff.Mul(in[0], trap(func() error { time.Sleep(time.Minute); return nil })))
		}, x)[0]
		start := time.Now()
		err := Backward(c, autodiff.Sum(autodiff.Add(y, z)))
		require.Less(t, time.Since(start), 2*time.Minute)
		var f *Failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, Failure{Worker: "worker3", Pass: p.ID(), Backward: f.Backward, Op: "trap", Cause: "simulated", err: f.err}, *f)
		require.NoError(t, w.cts[0].Settle(c))
		synctest.Wait()
		for at := 1; at < 4; at++ {
			part := w.part(t, p, at)
			require.Zero(t, part.info().Backwards)
			part.mu.Lock()
			over := part.endedAs(f.Backward)
			part.mu.Unlock()
			require.NotNil(t, over, "worker%d has heard", at)
			require.Equal(t, *f, *over.failure)
		}
	})
}

func TestABackwardThatFailedBeforeItReachedAWorkerDoesNotBeginThere(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 2)
	p, id := remoteBackward(t, w, param(1, 2))
	defer p.Leave()
	f := &Failure{Worker: "worker0", Pass: p.ID(), Backward: 77, Cause: "simulated", err: errors.New("simulated")}
	require.NoError(t, w.cts[1].HandleAbort(t.Context(), f))
	err := w.cts[1].HandleGradients(t.Context(), 0, &GradientMessage{Pass: p.ID(), Message: id, Backward: 77, Plan: Plan{id}, Grads: tensors(gradient(t, 1, 1))})
	require.ErrorIs(t, err, f)
	require.Zero(t, p.info().Backwards)
	err = w.cts[1].HandleGradients(t.Context(), 0, &GradientMessage{Pass: p.ID(), Message: id, Backward: 78, Plan: Plan{id}, Grads: tensors(gradient(t, 1, 1))})
	require.NoError(t, err, "another may")
	require.ErrorIs(t, w.cts[1].HandleAbort(t.Context(), &Failure{Pass: 99}), ErrUnknownPass)
}

func TestAParticipantDoesNotEndBecauseItsSenderStopsListening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		c, p := w.open(t, 1)
		defer p.Leave()
		for range 2 {
			w.call(t, c, 0, func(context.Context, []*autodiff.Tensor) []*autodiff.Tensor { return nil }, param(1, 2))
		}
		ids := p.SendFunctions()
		listens, stop := context.WithTimeout(t.Context(), time.Minute)
		answered := make(chan error, 1)
		go func() {
			answered <- w.cts[1].HandleGradients(listens, 0, &GradientMessage{
				Pass: p.ID(), Message: ids[0].Message, Backward: 77, Plan: Plan{ids[0].Message, ids[1].Message}, Grads: tensors(gradient(t, 1, 1)),
			})
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		require.Equal(t, 1, p.info().Backwards)
		time.Sleep(2 * time.Minute)
		err := <-answered
		require.ErrorIs(t, err, ErrTimeout, "but at its deadline")
		require.ErrorIs(t, err, ErrStalled)
		require.ErrorContains(t, err, ids[1].Node.Name())
	})
}

func TestBackwardsBeginWhileOtherCallsOfThePassAreUnderWay(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	x, z := param(1, 2), param(3, 4)
	var wg sync.WaitGroup
	const n = 30
	for range n {
		wg.Go(func() {
			y := w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
				return w.call(t, c, 2, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
					return tensors(autodiff.Mul(in[0], z))
				}, in...)
			}, x)
			require.NoError(t, Backward(c, autodiff.Sum(y[0])))
		})
	}
	wg.Wait()
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {3 * n, 4 * n}})
	requireGradients(t, w.part(t, p, 2), map[*autodiff.Tensor][]float64{z: {1 * n, 2 * n}})
}

func TestALostWorkerThatTakesNoPartDisturbsNobody(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	goOn, inside := make(chan struct{}), make(chan struct{})
	w.call1(t, c, 2, mul, param(1), param(2))
	y := w.call1(t, c, 1, func(in []*autodiff.Tensor) *autodiff.Tensor {
		return autodiff.Mul(in[0], trap(func() error { close(inside); <-goOn; return nil }))
	}, param(1, 2))
	failed := make(chan error)
	go func() { failed <- Backward(c, autodiff.Sum(y)) }()
	<-inside
	w.cts[0].PeerLost(2, errors.New("no answer"))
	w.cts[1].PeerLost(2, errors.New("no answer"))
	close(goOn)
	require.NoError(t, <-failed)
}

// A straggler's abort comes when Backward has returned nil, and the gradients are taken back: who
// reads them must not take their absence for none.
func TestGradientsThatWereTakenBackAreSaidToBeUntilABackwardBeginsAnew(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	x, z := param(1, 2), param(3, 4)
	y := w.call1(t, c, 1, func(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(in[0], z) }, x)
	loss, q := autodiff.Sum(y), w.part(t, p, 1)
	takeBack := func() *Failure {
		require.NoError(t, BackwardWith(c, retain, loss))
		require.NoError(t, w.cts[1].Settle(c))
		f := &Failure{Worker: "worker1", Pass: p.ID(), Backward: p.ended[len(p.ended)-1].id, Cause: "simulated", err: errors.New("simulated")}
		for _, ct := range w.cts {
			require.NoError(t, ct.HandleAbort(c, f))
		}
		return f
	}
	f := takeBack()
	for range 2 {
		for _, part := range []*Pass{p, q} {
			_, err := part.Gradients()
			require.ErrorIs(t, err, f)
			require.ErrorContains(t, err, "failed on worker1: simulated")
		}
	}
	require.NoError(t, BackwardWith(c, retain, loss))
	require.NoError(t, w.cts[1].Settle(c))
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {3, 4}})
	requireGradients(t, q, map[*autodiff.Tensor][]float64{z: {1, 2}})

	f = takeBack() // and nobody reads: the next backward would hide it
	require.ErrorIs(t, BackwardWith(c, retain, loss), f)
	require.NoError(t, BackwardWith(c, retain, loss), "it is told once")
	requireGradients(t, p, map[*autodiff.Tensor][]float64{x: {6, 8}})
}

func TestEverySurvivorNamesTheWorkerThatIsLost(t *testing.T) {
	for _, x := range []struct {
		name string
		find []int // who finds out by itself, before it is told
	}{{"each finds out", []int{2, 1, 0}}, {"one tells the others", []int{1}}, {"the root tells", []int{0}}, {"by a message that fails", nil}} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leak.Check(t)
				w := newWorld(t, 4)
				c, p := w.open(t, 0)
				defer p.Leave()
				through := func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
					return w.call(t, c, 3, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor { return tensors(mul(in)) }, in[0], in[0])
				}
				in := param(1, 2)
				loss := autodiff.Sum(autodiff.Add(w.call(t, c, 1, through, in)[0], w.call(t, c, 2, through, in)[0]))
				w.hold(func(c context.Context, what string, _, to WorkerID) error {
					switch {
					case what != "gradients" || to != 3:
						return nil
					case x.find == nil:
						return fmt.Errorf("%w: its cable was cut", ErrPeerLost)
					}
					<-c.Done()
					return c.Err()
				})
				failed := make(chan error)
				go func() { failed <- Backward(c, loss) }()
				synctest.Wait()
				for _, at := range x.find {
					w.cts[at].PeerLost(3, errors.New("its cable was cut"))
				}
				err := <-failed
				require.ErrorIs(t, err, ErrPeerLost)
				synctest.Wait()
				for at := range 3 {
					over := w.part(t, p, at).ended
					require.Len(t, over, 1)
					require.Equal(t, "worker3", over[0].failure.Worker, "as worker%d has it: %v", at, over[0].failure)
				}
				w.hold(nil)
			})
		})
	}
}
