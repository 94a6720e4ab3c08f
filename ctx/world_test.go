package ctx

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/device"
)

// world is containers in one process whose messages are function calls.
type world struct {
	cts []*Container

	mu     sync.Mutex
	before func(c context.Context, what string, from, to WorkerID) error // a message waits for it, and fails with it
	sent   []string                                                      // "clean-up 0>1"
}

func newWorld(t testing.TB, n int) *world {
	w := &world{}
	for i := range n {
		w.cts = append(w.cts, NewContainer(Config{Worker: WorkerID(i), Links: wires{w, WorkerID(i)}}))
	}
	t.Cleanup(func() {
		for _, ct := range w.cts {
			ct.Close()
		}
	})
	return w
}

// hold has messages wait for f, from now on.
func (w *world) hold(f func(c context.Context, what string, from, to WorkerID) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = f
}

func (w *world) note(c context.Context, what string, from, to WorkerID) error {
	w.mu.Lock()
	w.sent = append(w.sent, fmt.Sprintf("%s %d>%d", what, from, to))
	before := w.before
	w.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(c, what, from, to)
}

func (w *world) messages() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.sent...)
}

type wires struct {
	w  *world
	me WorkerID
}

func (l wires) Name(id WorkerID) string { return fmt.Sprintf("worker%d", id) }

func (l wires) SendGradients(c context.Context, to WorkerID, g *GradientMessage) error {
	if err := l.w.note(c, "gradients", l.me, to); err != nil {
		return err
	}
	m := *g
	m.Grads = make([]*autodiff.Tensor, len(g.Grads))
	for i, d := range g.Grads {
		if d == nil {
			continue
		}
		buf, err := d.Acquire()
		if err != nil {
			return err
		}
		m.Grads[i] = autodiff.Transient(d.Type(), buf)
	}
	return l.w.cts[to].HandleGradients(c, l.me, &m)
}

func (l wires) SendAbort(c context.Context, to WorkerID, f *Failure) error {
	if err := l.w.note(c, "abort", l.me, to); err != nil {
		return err
	}
	return l.w.cts[to].HandleAbort(c, f)
}

func (l wires) SendCleanup(c context.Context, to WorkerID, pass PassID) error {
	if err := l.w.note(c, "clean-up", l.me, to); err != nil {
		return err
	}
	l.w.cts[to].HandleCleanup(c, pass, l.me)
	return nil
}

func (l wires) SendRenew(c context.Context, to WorkerID, passes []PassID) ([]PassID, error) {
	if err := l.w.note(c, "renew", l.me, to); err != nil {
		return nil, err
	}
	return l.w.cts[to].HandleRenew(passes), nil
}

func (l wires) AskGraph(c context.Context, to WorkerID, pass PassID) (passgraph.Worker, error) {
	if err := l.w.note(c, "graph", l.me, to); err != nil {
		return passgraph.Worker{}, err
	}
	return l.w.cts[to].GraphPart(pass)
}

func (w *world) open(t testing.TB, worker int) (context.Context, *Pass) {
	t.Helper()
	c, p, err := w.cts[worker].Open(t.Context())
	require.NoError(t, err)
	return c, p
}

// carry takes tensors from one worker's part of a pass to another's in one message.
func carry(t testing.TB, p, q *Pass, ts []*autodiff.Tensor) []*autodiff.Tensor {
	t.Helper()
	id := p.NextMessage()
	p.Meet(q.ct.me)
	past, err := p.AttachSend(id, q.ct.me, "test", ts)
	require.NoError(t, err)
	out, requires, origins := make([]*autodiff.Tensor, len(ts)), make([]bool, len(ts)), make([]device.ID, len(ts))
	for i, x := range ts {
		buf, err := x.Acquire()
		require.NoError(t, err)
		out[i], requires[i], origins[i] = autodiff.Wrap(x.Type(), buf, q.Arena()), x.RequiresGrad(), x.Device()
	}
	require.NoError(t, q.AttachRecv(id, p.ct.me, out, requires, origins, past))
	return out
}

type function func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor

// call runs f on a worker, as package rpc does: arguments go there, results come back.
func (w *world) call(t testing.TB, c context.Context, to int, f function, in ...*autodiff.Tensor) []*autodiff.Tensor { //nolint:revive // t is first in tests
	t.Helper()
	p, ok := From(c)
	require.True(t, ok)
	there, q, done, err := w.cts[to].Enter(context.Background(), p.ID(), p.ct.me, nil)
	require.NoError(t, err)
	defer done()
	return carry(t, q, p, f(there, carry(t, p, q, in)))
}

// call1 is call for a function with one result.
func (w *world) call1(t testing.TB, c context.Context, to int, f func(in []*autodiff.Tensor) *autodiff.Tensor, in ...*autodiff.Tensor) *autodiff.Tensor { //nolint:revive // as call
	t.Helper()
	return w.call(t, c, to, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{f(in)} }, in...)[0]
}

func add(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Add(in[0], in[1]) }
func mul(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(in[0], in[1]) }

// param is a leaf of nobody's that requires a gradient.
func param(v ...float64) *autodiff.Tensor { return autodiff.New(v).RequireGrad() }

// trap is a leaf at which a backward comes into the hands of take.
func trap(take func() error) *autodiff.Tensor {
	x := autodiff.New([]float64{1, 1})
	autodiff.NewSink("trap", []*autodiff.Tensor{x}, []bool{true}, func([]*autodiff.Tensor) error { return take() })
	return x
}

func values(t testing.TB, x *autodiff.Tensor) []float64 {
	t.Helper()
	require.NotNil(t, x)
	v, err := autodiff.Values[float64](x)
	require.NoError(t, err)
	return v
}

// requireGradients compares a pass's table with the expected one.
func requireGradients(t testing.TB, p *Pass, want map[*autodiff.Tensor][]float64) {
	t.Helper()
	have, err := p.Gradients()
	require.NoError(t, err)
	require.Len(t, have, len(want))
	for leaf, v := range want {
		require.Equal(t, v, values(t, have[leaf]))
	}
}

// part is the pass as another worker has it.
func (w *world) part(t testing.TB, p *Pass, worker int) *Pass {
	t.Helper()
	q, err := w.cts[worker].find(p.ID(), "find")
	require.NoError(t, err)
	return q
}

// settle waits until the clean-ups of all workers are over, and checks that no pass is left
// anywhere.
func (w *world) settle(t testing.TB) {
	t.Helper()
	for _, ct := range w.cts {
		require.NoError(t, ct.Settle(t.Context()))
	}
	for _, ct := range w.cts {
		require.Empty(t, ct.Passes())
	}
}
