package rpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/transport/simnet"
)

// counter is a value that cannot travel.
type counter struct {
	n    int
	name string
}

var (
	newCounter = Define("counter", func(_ context.Context, name string) (*counter, error) { return &counter{name: name}, nil })
	addTo      = DefineMethod("counter.add", func(c context.Context, self *counter, n int) (string, error) {
		w, _ := FromContext(c)
		self.n += n
		return self.name + " on " + w.Name(), nil
	})
	total = DefineMethod("counter.total", func(_ context.Context, self *counter, _ struct{}) (int, error) { return self.n, nil })
	scale = DefineMethod("scale", func(_ context.Context, self *autodiff.Tensor, by *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(self, by), nil
	})
)

func TestMethodsRunWhereTheValueIs(t *testing.T) {
	ws := sim(t, 3, serve(newCounter, addTo, total, scale))
	for _, to := range []string{"worker1", "worker0"} {
		c := ws[0].Context(t.Context())
		r := newCounter.Remote(c, to, "mine") // not waited for: the method waits
		s, err := addTo.Call(c, r, 3)
		require.NoError(t, err)
		require.Equal(t, "mine on "+to, s)
		_, err = addTo.Async(c, r, 4).Wait(c)
		require.NoError(t, err)
		kept := total.Remote(c, r, struct{}{})
		require.NoError(t, kept.Ready(c))
		require.Equal(t, to, kept.Owner())
		n, err := kept.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, 7, n)
		kept.Release()
		r.Release()
		_, err = addTo.Call(c, r, 1)
		require.ErrorIs(t, err, ErrReleased)
	}
	owns(t, ws[0], 0)
	owns(t, ws[1], 0)
}

func TestAMethodOnNothingOrOnAnotherTypeIsAnErrorThatSaysSo(t *testing.T) {
	ws := sim(t, 2, serve(newCounter, addTo, double))
	c := ws[0].Context(t.Context())
	_, err := addTo.Call(c, RRef[*counter]{}, 1)
	require.ErrorIs(t, err, ErrReleased)
	require.ErrorContains(t, err, "counter.add: reference was released: the reference refers to nothing")
	_, err = addTo.Async(c, RRef[*counter]{}, 1).Wait(c)
	require.ErrorIs(t, err, ErrReleased)
	require.ErrorIs(t, addTo.Remote(c, RRef[*counter]{}, 1).Ready(c), ErrReleased)
	failed := newCounter.Remote(c, "nobody", "x")
	_, err = addTo.Call(c, failed, 1)
	require.ErrorIs(t, err, ErrUnknownWorker)
	number := double.Remote(c, "worker1", 1)
	defer number.Release()
	_, err = addTo.Call(c, RRef[*counter]{number.ref}, 1)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "the value is a int, not a *rpc.counter")
	_, err = total.Call(c, newCounter.Remote(c, "worker1", "x"), struct{}{})
	require.ErrorIs(t, err, ErrNotServed)
	_, err = DefineMethod[int, int, int]("nothing", nil).served()
	require.ErrorIs(t, err, ErrConfig)
}

func TestAMethodOnATensorTakesAndGivesTensorsAndIsRecordedInThePass(t *testing.T) {
	give := Define("give", func(context.Context, struct{}) (*autodiff.Tensor, error) { return autodiff.New([]float32{2, 3}), nil })
	ws := sim(t, 2, serve(give, scale))
	for _, to := range []string{"worker1", "worker0"} {
		r := give.Remote(ws[0].Context(t.Context()), to, struct{}{})
		x := autodiff.New([]float32{5, 7}).RequireGrad()
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := scale.Call(c, r, x)
			require.NoError(t, err)
			got, err := autodiff.Values[float32](y)
			require.NoError(t, err)
			require.Equal(t, []float32{10, 21}, got)
			require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
			grads, err := ctx.Gradients(c)
			require.NoError(t, err)
			got, err = autodiff.Values[float32](grads[x])
			require.NoError(t, err)
			require.Equal(t, []float32{2, 3}, got)
			return nil
		}))
		r.Release()
	}
	nothing(t, ws)
}

func TestAMethodsTimeoutCountsAlsoWhileItsValueIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := Define("late", func(_ context.Context, d time.Duration) (int, error) { time.Sleep(d); return 1, nil })
		nap := DefineMethod("nap", func(c context.Context, self int, d time.Duration) (int, error) {
			select {
			case <-time.After(d):
			case <-c.Done():
			}
			return self, context.Cause(c)
		})
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, serve(late, nap))
		c := ws[0].Context(t.Context())
		for name, in := range map[string]struct{ made, runs time.Duration }{"made": {10 * time.Second, 0}, "runs": {0, 10 * time.Second}} {
			r := late.Remote(c, "worker1", in.made)
			for _, call := range []func(c context.Context) error{
				func(c context.Context) error { _, err := nap.Call(c, r, in.runs); return err },
				func(c context.Context) error { _, err := nap.Async(c, r, in.runs).Wait(t.Context()); return err },
				func(c context.Context) error {
					result := nap.Remote(c, r, in.runs)
					defer result.Release()
					return result.Ready(t.Context())
				},
			} {
				start := time.Now()
				require.ErrorIs(t, call(WithTimeout(c, time.Second)), ErrTimeout, name)
				require.Equal(t, time.Second, time.Since(start), name)
			}
			n, err := nap.Call(c, r, in.runs)
			require.NoError(t, err, "the reference is as good as before")
			require.Equal(t, 1, n)
			r.Release()
		}
		time.Sleep(time.Minute)
		nothing(t, ws)
	})
}

func TestAMethodMayKeepTheReferenceThatItIsCalledOn(t *testing.T) {
	ws := sim(t, 2, serve(newLink, join))
	c := ws[0].Context(t.Context())
	r := newLink.Remote(c, "worker1", 0)
	_, err := join.Call(c, r, r)
	require.NoError(t, err)
	kept, err := ws[1].refs.value(c, r.id)
	require.NoError(t, err)
	inner := kept.Interface().(*link).next
	same, err := inner.LocalValue(c)
	require.NoError(t, err, "its end did not release what it kept")
	require.Same(t, kept.Interface(), same)
	inner.Release()
	r.Release()
	nothing(t, ws)
}
