package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Tensor makes a tensor on a device with bytes drawn from r.
func Tensor(t testing.TB, r *rand.Rand, d device.Device, dt device.Dtype, shape ...int) wire.Tensor {
	raw := Random(r, device.Shape(shape).Elems()*dt.Size())
	b, err := d.Alloc(len(raw))
	require.NoError(t, err)
	require.NoError(t, d.Upload(b, 0, raw))
	return wire.Tensor{Dtype: dt, Shape: append(device.Shape{}, shape...), Device: d.ID(), Buf: b}
}

// Random gives n bytes that r decides: a block of them again and again, which makes a large tensor
// cheap where the race detector looks at each draw. The block's length is a prime number, so that
// what lies elsewhere by a piece, a page or an element differs.
func Random(r *rand.Rand, n int) []byte {
	block := make([]byte, min(n, 4093))
	for i := range block {
		block[i] = byte(r.Uint32())
	}
	raw := make([]byte, n)
	for rest := raw; len(rest) > 0; {
		rest = rest[copy(rest, block):]
	}
	return raw
}

// Contents reads a tensor's bytes, wherever they are.
func Contents(t testing.TB, x wire.Tensor) []byte {
	raw := make([]byte, x.Buf.Len())
	require.NoError(t, x.Buf.Device().Download(raw, x.Buf, 0))
	return raw
}

// Same compares tensors by type and bytes.
func Same(t testing.TB, want, got []wire.Tensor) {
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].Dtype, got[i].Dtype)
		require.True(t, want[i].Shape.Equal(got[i].Shape), "shape of tensor %d: want %v, got %v", i, want[i].Shape, got[i].Shape)
		require.Equal(t, want[i].Device, got[i].Device)
		if want[i].Buf == nil {
			require.Nil(t, got[i].Buf)
			continue
		}
		require.True(t, bytes.Equal(Contents(t, want[i]), Contents(t, got[i])), "bytes of tensor %d differ", i)
	}
}

func inOrder(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	const n = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			if here.Send(p.C, text(fmt.Sprint(i))) != nil {
				return
			}
		}
		_ = here.CloseSend()
	})
	for i := range n {
		p.expect(t, there, fmt.Sprint(i))
	}
	_, err := there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	_, err = there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF, "and again")
	wg.Wait()
}

func bothWays(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	var wg sync.WaitGroup
	for _, s := range []wire.Stream{here, there} {
		wg.Go(func() {
			for i := range 100 {
				if s.Send(p.C, text(fmt.Sprint(i))) != nil {
					return
				}
			}
		})
	}
	for i := range 100 {
		p.expect(t, there, fmt.Sprint(i))
		p.expect(t, here, fmt.Sprint(i))
	}
	wg.Wait()
}

func manyStreams(t *testing.T, p *Pair) {
	const n = 200
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			s, err := p.Served.Accept(p.C)
			if err != nil {
				return
			}
			wg.Go(func() { p.echo(s) })
		}
	})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = p.ask(fmt.Sprint("question ", i)) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// echo answers one message and finishes the stream.
func (p *Pair) echo(s wire.Stream) {
	defer s.Reset(nil)
	m, err := s.Recv(p.C, nil)
	if err != nil {
		return
	}
	defer m.Release()
	if s.Send(p.C, m) == nil && s.CloseSend() == nil {
		_, _ = s.Recv(p.C, nil) // to the end
	}
}

// ask makes a call and compares the answer.
func (p *Pair) ask(question string) error {
	s, err := p.Dialed.Open(p.C)
	if err != nil {
		return err
	}
	defer s.Reset(nil)
	if err := errors.Join(s.Send(p.C, text(question)), s.CloseSend()); err != nil {
		return err
	}
	m, err := s.Recv(p.C, nil)
	if err != nil {
		return err
	}
	if string(m.Header) != question {
		return fmt.Errorf("asked %q, answered %q", question, m.Header)
	}
	_, err = s.Recv(p.C, nil)
	if err != io.EOF {
		return fmt.Errorf("after the answer: %w", err)
	}
	return nil
}

func tensors(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	r, host := rand.New(rand.NewPCG(1, 2)), device.Host()
	m := &wire.Message{Kind: 3, Header: []byte("tensors"), Tensors: []wire.Tensor{
		Tensor(t, r, host, device.Float32, 3, 3),
		Tensor(t, r, host, device.Float64, 2, 1, 5),
		{}, // absent
		Tensor(t, r, host, device.Int32, 17),
		Tensor(t, r, host, device.Int64),         // a scalar
		Tensor(t, r, host, device.Float32, 4, 0), // empty
		Tensor(t, r, host, device.Float32, 512, 512),
		Tensor(t, r, host, device.Int64, 1),
	}}
	m.Tensors[0].Device = device.CUDA(3)
	defer m.Release()
	sent := make(chan error, 1)
	go func() { sent <- here.Send(p.C, m) }()
	got, err := there.Recv(p.C, nil)
	require.NoError(t, err)
	defer got.Release()
	require.NoError(t, <-sent)
	require.Equal(t, m.Kind, got.Kind)
	require.Equal(t, m.Header, got.Header)
	Same(t, m.Tensors, got.Tensors)
}

// sizes sends tensors of as many bytes as at every threshold of messages, and an element fewer and
// more. Every third goes from a simulated device to another.
func sizes(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	r := rand.New(rand.NewPCG(1, 9))
	from, to := device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 1})
	all := thresholds.Around(thresholds.Messages)
	for n := range all.Len() {
		at, side := all.Next()
		x := Tensor(t, r, []device.Device{from, device.Host(), device.Host()}[n/3%3], device.Float32, at.Elems(4, side))
		if x.Device != (device.ID{}) {
			x.Device = to.ID()
		}
		m := &wire.Message{Kind: 3, Tensors: []wire.Tensor{x, Tensor(t, r, device.Host(), device.Int32, side+1)}}
		sent := make(chan error, 1)
		go func() { sent <- here.Send(p.C, m) }()
		got, err := there.Recv(p.C, func(id device.ID, n int) (*device.Buffer, error) {
			if id == to.ID() {
				return to.Alloc(n)
			}
			return device.Host().Alloc(n)
		})
		require.NoError(t, err)
		require.NoError(t, <-sent)
		Same(t, m.Tensors, got.Tensors)
		got.Release()
		m.Release()
	}
	require.Empty(t, all.Missing())
	require.Zero(t, from.Stats().Live+to.Stats().Live)
}

func placed(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	m := &wire.Message{Tensors: []wire.Tensor{Tensor(t, rand.New(rand.NewPCG(1, 3)), device.Host(), device.Float32, 5)}}
	defer m.Release()
	require.NoError(t, here.Send(p.C, m))
	mine, err := device.Host().Alloc(20)
	require.NoError(t, err)
	got, err := there.Recv(p.C, func(id device.ID, n int) (*device.Buffer, error) {
		require.Equal(t, device.ID{}, id)
		require.Equal(t, 20, n)
		return mine, nil
	})
	require.NoError(t, err)
	defer got.Release()
	require.Same(t, mine, got.Tensors[0].Buf)
	Same(t, m.Tensors, got.Tensors)
}

func simulated(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	from, to := device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 1})
	x := Tensor(t, rand.New(rand.NewPCG(1, 4)), from, device.Float32, 700, 800) // more than one piece
	x.Device = to.ID()
	m := &wire.Message{Tensors: []wire.Tensor{x}}
	defer m.Release()
	sent := make(chan error, 1)
	go func() { sent <- here.Send(p.C, m) }()
	got, err := there.Recv(p.C, func(id device.ID, n int) (*device.Buffer, error) { return to.Alloc(n) })
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.Equal(t, to.ID(), got.Tensors[0].Buf.Device().ID())
	Same(t, m.Tensors, got.Tensors)
	got.Release()
	require.Zero(t, to.Stats().Live)
}

func failingPlace(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	r := rand.New(rand.NewPCG(1, 5))
	m := &wire.Message{Tensors: []wire.Tensor{Tensor(t, r, device.Host(), device.Int32, 8), Tensor(t, r, device.Host(), device.Int32, 9)}}
	defer m.Release()
	require.NoError(t, here.Send(p.C, m))
	full := errors.New("no room")
	calls := 0
	_, err := there.Recv(p.C, func(_ device.ID, n int) (*device.Buffer, error) {
		if calls++; calls == 2 {
			return nil, full
		}
		return device.Host().Alloc(n)
	})
	require.ErrorIs(t, err, full)
	there.Reset(err) // leak.Check sees that the first buffer is gone
}

func borrowed(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	x := Tensor(t, rand.New(rand.NewPCG(1, 6)), device.Host(), device.Float32, 100)
	require.NoError(t, here.Send(p.C, &wire.Message{Tensors: []wire.Tensor{x}}))
	require.True(t, x.Buf.Exclusive())
	want := Contents(t, x)
	mem, err := x.Buf.Host()
	require.NoError(t, err)
	clear(mem) // a tensor of this size has been taken when Send is back
	require.NoError(t, x.Buf.Release())
	got, err := there.Recv(p.C, nil)
	require.NoError(t, err)
	defer got.Release()
	require.Equal(t, want, Contents(t, got.Tensors[0]))
}

func refusedMessage(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	err := here.Send(p.C, &wire.Message{Tensors: []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{2}}}})
	require.ErrorIs(t, err, wire.ErrFrame)
	require.NoError(t, here.Send(p.C, text("still here")))
	p.expect(t, there, "still here")
}
