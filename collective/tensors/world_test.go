package tensors

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// world is some workers of this process, and groups of them.
type world struct {
	t  *testing.T
	ws []*rpc.Worker
}

func newWorld(t *testing.T, n int, serves ...rpc.Function) *world {
	t.Helper()
	return &world{t, rpctest.World(t, rpctest.Net(), n, serves...)}
}

// group opens a group of all workers, or of these.
func (w *world) group(name string, ranks ...int) []*collective.Group {
	w.t.Helper()
	if len(ranks) == 0 {
		for r := range w.ws {
			ranks = append(ranks, r)
		}
	}
	var names []string
	for _, r := range ranks {
		names = append(names, w.ws[r].Name())
	}
	gs := make([]*collective.Group, len(w.ws))
	w.each(func(r int) (err error) {
		for _, k := range ranks {
			if k == r {
				gs[r], err = collective.Open(w.t.Context(), w.ws[r], name, names...)
			}
		}
		return err
	})
	w.t.Cleanup(func() {
		for _, g := range gs {
			if g != nil {
				require.NoError(w.t, g.Close())
			}
		}
	})
	return gs
}

// attempt does something on all workers at once.
func (w *world) attempt(fn func(r int) error) []error {
	return rpctest.Attempt(len(w.ws), fn)
}

func (w *world) each(fn func(r int) error) {
	w.t.Helper()
	for r, err := range w.attempt(fn) {
		require.NoError(w.t, err, "rank %d", r)
	}
}

// passes does something on all workers at once, each in a pass.
func (w *world) passes(fn func(c context.Context, r int) error) []error {
	return w.attempt(func(r int) error {
		return w.ws[r].Pass(w.t.Context(), func(c context.Context) error { return fn(c, r) })
	})
}

func (w *world) eachPass(fn func(c context.Context, r int) error) {
	w.t.Helper()
	for r, err := range w.passes(fn) {
		require.NoError(w.t, err, "rank %d", r)
	}
}

// parameter is a vector that requires a gradient.
func parameter(v ...float64) *autodiff.Tensor { return autodiff.New(v).RequireGrad() }

// gradientOf is the pass's gradient of a leaf, nil where there is none.
func gradientOf(c context.Context, leaf *autodiff.Tensor) ([]float64, error) {
	all, err := ctx.Gradients(c)
	if err != nil || all[leaf] == nil {
		return nil, err
	}
	return autodiff.Values[float64](all[leaf])
}

// counts counts the messages that are sent, and the bytes of their tensors and headers.
type counts struct{ messages, bytes atomic.Int64 }

func (n *counts) net() *simnet.Net {
	return simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler), Drop: func(_, _ string, m *transport.Message) bool {
		n.messages.Add(1)
		n.bytes.Add(int64(len(m.Header)))
		for _, t := range m.Tensors {
			n.bytes.Add(int64(t.Buf.Len()))
		}
		return false
	}})
}

// works shows that a group lives: the next sum and its gradient are right.
func (w *world) works(gs []*collective.Group) {
	w.t.Helper()
	w.eachPass(func(c context.Context, r int) error {
		x := parameter(1)
		if err := ctx.Backward(c, autodiff.Sum(AllReduce(c, gs[r], x, collective.Sum))); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && got[0] != float64(len(gs)) {
			err = fmt.Errorf("the gradient is %v", got)
		}
		return err
	})
}
