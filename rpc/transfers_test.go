package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// scales counts the bytes of the tensors that leave by the network that it stands before.
type scales struct {
	transport.Network
	sent *atomic.Int64
}

type (
	weighedListener struct {
		transport.Listener
		s scales
	}
	weighedLink struct {
		transport.Link
		s scales
	}
	weighedStream struct {
		transport.Stream
		s scales
	}
)

func (s scales) Listen(c context.Context, addr string) (transport.Listener, error) {
	l, err := s.Network.Listen(c, addr)
	return weighedListener{l, s}, err
}

func (s scales) Dial(c context.Context, addr string) (transport.Link, error) {
	return s.link(s.Network.Dial(c, addr))
}

func (l weighedListener) Accept(c context.Context) (transport.Link, error) {
	return l.s.link(l.Listener.Accept(c))
}

func (s scales) link(l transport.Link, err error) (transport.Link, error) {
	if err != nil {
		return nil, err
	}
	return weighedLink{l, s}, nil
}

func (l weighedLink) Open(c context.Context) (transport.Stream, error) {
	return l.s.stream(l.Link.Open(c))
}

func (l weighedLink) Accept(c context.Context) (transport.Stream, error) {
	return l.s.stream(l.Link.Accept(c))
}

func (l weighedLink) Serve(c context.Context, fn func(s transport.Stream, kind uint8, whole bool)) {
	l.Link.Serve(c, func(st transport.Stream, kind uint8, whole bool) { fn(weighedStream{st, l.s}, kind, whole) })
}

func (s scales) stream(st transport.Stream, err error) (transport.Stream, error) {
	if err != nil {
		return nil, err
	}
	return weighedStream{st, s}, nil
}

func (s weighedStream) Send(c context.Context, m *transport.Message) error {
	for _, t := range m.Tensors {
		if t.Buf != nil {
			s.s.sent.Add(int64(t.Buf.Len()))
		}
	}
	return s.Stream.Send(c, m)
}

// traders are functions by which tensors of every kind travel.
type traders struct {
	mix   *Func[pair, *autodiff.Tensor] // of a batch without gradients and a parameter
	batch *Func[[]*autodiff.Tensor, *autodiff.Tensor]
	rows  *Func[pair, *autodiff.Tensor] // of a table, whose gradient is sparse
	pass  *Func[pair, *autodiff.Tensor] // goes on to the next worker
}

func newTraders() *traders {
	r := &traders{}
	r.mix = Define("mix", func(_ context.Context, in pair) (*autodiff.Tensor, error) { return autodiff.Mul(in.A, in.B), nil })
	r.batch = Define("batch", func(_ context.Context, in []*autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Scale(in[0], 2), nil
	})
	r.rows = Define("rows", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
		return autodiff.EmbeddingSparse(in.A, in.B), nil
	})
	r.pass = Define("pass", func(c context.Context, in pair) (*autodiff.Tensor, error) {
		w, _ := FromContext(c)
		return r.mix.Call(c, fmt.Sprintf("worker%d", (w.Rank()+1)%3), in)
	})
	return r
}

// trade makes one random call, and gives what may be a part of the loss.
func (r *traders) trade(c context.Context, rnd *rand.Rand) (*autodiff.Tensor, error) {
	to, n := fmt.Sprintf("worker%d", rnd.IntN(3)), 1+rnd.IntN(5000)
	batch, w := ctx.Own(c, autodiff.Rand(n)), autodiff.Rand(n).RequireGrad()
	switch rnd.IntN(7) {
	case 0:
		return r.mix.Call(c, to, pair{batch, w})
	case 1:
		y, err := r.batch.Call(c, to, []*autodiff.Tensor{batch, nil, batch})
		return autodiff.Mul(y, w), err
	case 2:
		return r.mix.Call(ctx.NoGrad(c), to, pair{batch, w})
	case 3:
		return r.rows.Call(c, to, pair{autodiff.Rand(50, 1+rnd.IntN(20)).RequireGrad(), autodiff.New([]int64{1, int64(rnd.IntN(50)), 3, 1})})
	case 4:
		return r.pass.Call(c, to, pair{batch, w})
	case 5:
		ref := r.mix.Remote(c, to, pair{batch, w})
		defer ref.Release()
		return ref.ToHere(c)
	}
	return r.mix.Call(c, to, pair{batch, autodiff.Rand(n)}) // nobody wants a gradient
}

// drawn is the bytes that a graph draws between workers: of values, and of gradients.
func drawn(g *passgraph.Graph) (values, gradients int64) {
	for _, l := range g.Links() {
		if l.Message != 0 {
			values += l.Bytes
			gradients += l.Back
		}
	}
	return values, gradients
}

func TestTheGraphOfAPassDrawsEveryByteOfTensorsThatWasSent(t *testing.T) {
	var sent atomic.Int64
	net := simnet.New(simnet.Config{})
	r := newTraders()
	ws := world(t, 3, func(i int) transport.Network { return scales{onSim(net)(i), &sent} }, serve(r.mix, r.batch, r.rows, r.pass))
	for n := range soak.Cases(100) {
		rnd := rand.New(rand.NewPCG(17, uint64(n)))
		sent.Store(0)
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			loss := autodiff.Sum(autodiff.Rand(1).RequireGrad())
			for range 1 + rnd.IntN(5) {
				y, err := r.trade(c, rnd)
				require.NoError(t, err)
				if y.RequiresGrad() && rnd.IntN(4) > 0 {
					loss = autodiff.Add(loss, autodiff.Sum(y))
				}
			}
			g, err := ctx.Graph(c, loss)
			require.NoError(t, err)
			values, gradients := drawn(g)
			require.Equal(t, sent.Load(), values, "case %d", n)
			require.Zero(t, gradients)
			sent.Store(0)
			for range rnd.IntN(3) {
				require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss))
			}
			require.NoError(t, ctx.Backward(c, loss))
			require.NoError(t, ws[0].Settle(t.Context()))
			g, err = ctx.Graph(c)
			require.NoError(t, err)
			again, gradients := drawn(g)
			require.Equal(t, values, again, "case %d", n)
			require.Equal(t, sent.Load(), gradients, "case %d", n)
			for _, w := range g.Workers {
				require.NoError(t, w.Check())
			}
			return nil
		}))
	}
}

func TestABatchThatWantsNoGradientsIsInThePictureWithItsBytes(t *testing.T) {
	r := newTraders()
	ws := sim(t, 2, serve(r.mix, r.batch))
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		batch := ctx.Own(c, autodiff.Zeros(device.Float32, 64, 784)) // 196 KiB
		_, err := r.batch.Call(c, "worker1", []*autodiff.Tensor{batch})
		require.NoError(t, err)
		g, err := ctx.Graph(c)
		require.NoError(t, err)
		var svg, dot strings.Builder
		require.NoError(t, g.WriteSVG(&svg))
		require.NoError(t, g.WriteDOT(&dot))
		for _, text := range []string{svg.String(), dot.String()} {
			require.Contains(t, text, "2 messages of 392 KiB")
			require.Contains(t, text, "1 sent · 196 KiB")
			require.Contains(t, text, "1 received · 196 KiB")
			require.Contains(t, text, "f32[64×784]")
		}
		return nil
	}))
}
