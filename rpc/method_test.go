package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
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
