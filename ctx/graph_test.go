package ctx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx/passgraph"
)

// lines prints a graph: a line for each worker, and one for each of its nodes with what it reads.
func lines(g *passgraph.Graph) (out []string) {
	for _, w := range g.Workers {
		out = append(out, w.Name)
		for i, n := range w.Nodes {
			s := fmt.Sprintf("%d %s%v", i, map[passgraph.Kind]string{passgraph.Parameter: "param", passgraph.Send: "send ", passgraph.Recv: "recv "}[n.Kind]+n.Name, n.Results)
			for _, in := range n.Inputs {
				s += fmt.Sprintf(" %d.%d", in.Node, in.Slot)
			}
			if n.Message != 0 {
				s += fmt.Sprintf(" %v with %d", MessageID(n.Message), n.Peer)
			}
			if n.Root {
				s += " root"
			}
			out = append(out, s)
		}
	}
	return out
}

// example runs the design document's example up to its loss.
func (w *world) example(t *testing.T, c context.Context) (loss *autodiff.Tensor) { //nolint:revive // t is first in tests
	t3 := w.call1(t, c, 1, add, param(1, 2), param(3, 4))
	return autodiff.Sum(autodiff.Mul(t3, param(5, 6)))
}

func TestTheGraphOfAPassIsThatOfAllItsWorkersBeforeAndAfterItsBackward(t *testing.T) {
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	loss := w.example(t, c)
	g, err := Graph(c, loss)
	require.NoError(t, err)
	want := []string{
		"worker0", "0 param[f64[2]]", "1 param[f64[2]]", "2 send test[f64[2] f64[2]] 0.0 1.0 0.2 with 1",
		"3 recv [f64[2]] 1.1 with 1", "4 param[f64[2]]", "5 Mul[f64[2]] 3.0 4.0", "6 Sum(axes=all, keep=false)[f64] 5.0 root",
		"worker1", "0 recv [f64[2] f64[2]] 0.2 with 0", "1 Add[f64[2]] 0.0 0.1", "2 send test[f64[2]] 1.0 1.1 with 0",
	}
	require.Equal(t, want, lines(g))
	require.Equal(t, []int64{24 + 16, 48}, []int64{g.Workers[0].Held, g.Workers[1].Held}, "what each holds of the pass")
	require.Contains(t, g.Workers[0].Nodes[6].Site, "graph_test.go:")
	require.NoError(t, Backward(c, loss))
	g, err = Graph(c)
	require.NoError(t, err)
	require.Equal(t, []int64{24 + 16 + 3*16, 48}, []int64{g.Workers[0].Held, g.Workers[1].Held}, "and the gradients of three parameters")
	require.Equal(t, want, lines(g), "that the graph is used up does not take it out of the picture")
	require.Equal(t, 2, strings.Count(strings.Join(w.messages(), " "), "graph"), "worker2 has no part")
}

func TestTheGraphOfAPassReachesWorkersThatItsRootNeverCalled(t *testing.T) {
	w := newWorld(t, 4)
	c, p := w.open(t, 0)
	defer p.Leave()
	x := w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
		return w.call(t, c, 2, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
			return w.call(t, c, 0, func(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
				return []*autodiff.Tensor{mul([]*autodiff.Tensor{in[0], in[0]})}
			}, in...)
		}, in...)
	}, param(1, 2))
	require.Len(t, x, 1)
	g, err := Graph(c)
	require.NoError(t, err)
	require.Len(t, g.Workers, 3)
	messages := 0
	for _, l := range g.Links() {
		if l.Message != 0 {
			messages++
		}
	}
	require.Equal(t, 6, messages, "every message has both ends")
	asked := 0
	for _, m := range w.messages() {
		if strings.HasPrefix(m, "graph") {
			asked++
			require.True(t, strings.HasPrefix(m, "graph 0>"), m)
		}
	}
	require.Equal(t, 2, asked, "each once")
}

func TestAnUnusedResultAndAFunctionThatNothingReadsAreInTheGraph(t *testing.T) {
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	unused := w.call1(t, c, 1, add, param(1, 2), param(3, 4))
	mul([]*autodiff.Tensor{Own(c, autodiff.New([]float64{1, 2})), param(3, 4)})
	g, err := Graph(c)
	require.NoError(t, err)
	all := strings.Join(lines(g), "\n")
	require.Contains(t, all, "Mul[f64[2]]")
	require.Contains(t, all, "recv [f64[2]] 1.1 with 1")
	_ = unused
}

func TestAWorkerThatIsLostOrAnswersNonsenseIsInTheGraphAsLost(t *testing.T) {
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	w.call1(t, c, 1, add, param(1, 2), param(3, 4))
	w.call1(t, c, 2, add, param(1, 2), param(3, 4))
	w.cts[0].PeerLost(1, errors.New("its cable was cut"))
	w.hold(func(_ context.Context, what string, _, to WorkerID) error {
		if what == "graph" && to == 2 {
			return ErrProtocol
		}
		return nil
	})
	g, err := Graph(c)
	require.NoError(t, err)
	require.Len(t, g.Workers, 3)
	require.Contains(t, g.Workers[1].Lost, "its cable was cut")
	require.Contains(t, g.Workers[2].Lost, ErrProtocol.Error())
	require.NotContains(t, w.messages(), "graph 0>1", "who is known to be lost is not asked")

	liar := &lyingLinks{Links: w.cts[0].links}
	w.cts[0].links = liar
	for name, part := range map[string]passgraph.Worker{
		"another's part":           {Rank: 1},
		"what cannot be":           {Rank: 2, Nodes: []passgraph.Node{{Kind: 77}}},
		"a peer that nobody knows": {Rank: 2, Peers: []int{9}},
	} {
		liar.part = part
		g, err := Graph(c)
		require.NoError(t, err, name)
		require.NotEmpty(t, g.Workers[len(g.Workers)-1].Lost, name)
	}
}

// lyingLinks answers with a part of somebody's choosing.
type lyingLinks struct {
	Links
	part passgraph.Worker
}

func (l *lyingLinks) AskGraph(_ context.Context, to WorkerID, _ PassID) (passgraph.Worker, error) {
	if to != 2 {
		return passgraph.Worker{}, ErrUnknownPass
	}
	return l.part, nil
}

func TestAWorkerThatDoesNotAnswerIsLostAfterAWhileAndTheCallersDeadlineEndsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		c, p := w.open(t, 0)
		defer p.Leave()
		w.call1(t, c, 1, add, param(1, 2), param(3, 4))
		w.hold(func(c context.Context, what string, _, _ WorkerID) error {
			if what == "graph" {
				<-c.Done()
			}
			return c.Err()
		})
		start := time.Now()
		g, err := Graph(c)
		require.NoError(t, err)
		require.Equal(t, graphTimeout, time.Since(start))
		require.Contains(t, g.Workers[1].Lost, "deadline")
		c, cancel := context.WithTimeout(c, time.Second)
		defer cancel()
		_, err = Graph(c)
		require.ErrorIs(t, err, ErrTimeout)
		w.hold(nil)
	})
}

func TestAGraphNeedsAPassThatWasNotLeft(t *testing.T) {
	w := newWorld(t, 1)
	_, err := Graph(t.Context())
	require.ErrorIs(t, err, ErrNoPass)
	c, p := w.open(t, 0)
	p.Leave()
	_, err = Graph(c)
	require.ErrorIs(t, err, ErrLeft)
	_, err = w.cts[0].GraphPart(p.ID())
	require.ErrorIs(t, err, ErrUnknownPass)
}

func TestTheGraphMayBeAskedForWhileThePassRuns(t *testing.T) {
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	done := make(chan error)
	go func() {
		var err error
		for range 20 {
			err = errors.Join(err, Backward(c, w.example(t, c)))
		}
		done <- err
	}()
	for running := true; running; {
		g, err := Graph(c)
		require.NoError(t, err)
		require.NotNil(t, g)
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
		}
	}
	g, err := Graph(c)
	require.NoError(t, err)
	roots := 0
	for _, n := range g.Workers[0].Nodes {
		if n.Root {
			roots++
		}
	}
	require.Equal(t, 20, roots)
}

func TestAPartOfALongChainIsCutAtItsLimitAndSaysSo(t *testing.T) {
	w := newWorld(t, 1)
	c, p := w.open(t, 0)
	defer p.Leave()
	x := Own(c, autodiff.New([]float64{1}))
	y := param(1)
	for range passgraph.MaxNodes + 10 {
		y = add([]*autodiff.Tensor{x, y})
	}
	g, err := Graph(c)
	require.NoError(t, err)
	require.Len(t, g.Workers[0].Nodes, passgraph.MaxNodes)
	require.Equal(t, 11, g.Workers[0].Omitted)
}

func TestTensorsThatWantNoGradientsAreInTheGraphUnlessTheyWereNotSent(t *testing.T) {
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	q := func() *Pass { return w.part(t, p, 1) }
	w.call1(t, c, 1, add, ones(), ones())
	id := p.NextMessage()
	p.NoteSend(id, 1, "in vain", tensors(ones()))
	p.DropSend(id)
	id = p.NextMessage()
	p.NoteSend(id, 1, "under NoGrad", tensors(param(1, 2)))
	q().NoteRecv(id, 0, tensors(ones()))
	p.NoteSend(p.NextMessage(), 1, "of nothing", nil)
	g, err := Graph(c)
	require.NoError(t, err)
	require.Equal(t, []string{
		"worker0", "0 send test[f64[2] f64[2]] 0.2 with 1", "1 recv [f64[2]] 1.1 with 1", "2 send under NoGrad[f64[2]] 0.4 with 1",
		"worker1", "0 recv [f64[2] f64[2]] 0.2 with 0", "1 send test[f64[2]] 1.1 with 0", "2 recv [f64[2]] 0.4 with 0",
	}, lines(g))
	for range passgraph.MaxNodes {
		p.NoteSend(p.NextMessage(), 1, "many", tensors(ones()))
	}
	loss := autodiff.Sum(param(1))
	g, err = Graph(c, loss)
	require.NoError(t, err)
	require.Len(t, g.Workers[0].Nodes, maxCarried+2, "and the loss with its parameter")
	require.Equal(t, passgraph.MaxNodes-maxCarried+3, g.Workers[0].Omitted)
	p.Leave()
	p.NoteSend(p.NextMessage(), 1, "too late", tensors(ones()))
}
