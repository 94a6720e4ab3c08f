package transporttest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/wire"
)

func halfClose(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	require.NoError(t, here.CloseSend())
	_, err := there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, there.Context().Err())
	for range 3 {
		require.NoError(t, there.Send(p.C, text("answer")))
		p.expect(t, here, "answer")
	}
	require.Error(t, here.Send(p.C, text("after the end")))
	require.NoError(t, there.CloseSend())
	_, err = here.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
}

func finishedContext(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	hc, tc := here.Context(), there.Context()
	require.NoError(t, here.CloseSend())
	_, err := there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, there.CloseSend())
	require.ErrorIs(t, done(tc), wire.ErrFinished)
	require.NoError(t, hc.Err())
	_, err = here.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, done(hc), wire.ErrFinished)
}

func resetSeenByReceiver(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	why := errors.New("changed my mind")
	got := make(chan error, 1)
	go func() {
		_, err := there.Recv(p.C, nil)
		got <- err
	}()
	here.Reset(why)
	for _, err := range []error{<-got, done(there.Context()), there.Send(p.C, text("x"))} {
		require.ErrorIs(t, err, wire.ErrReset)
		var theirs *wire.Reason
		require.ErrorAs(t, err, &theirs)
		require.Equal(t, wire.Reason{Text: "changed my mind"}, *theirs)
	}
	err := here.Send(p.C, text("x"))
	require.ErrorIs(t, err, wire.ErrReset)
	require.ErrorIs(t, err, why)
	_, err = here.Recv(p.C, nil)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, context.Cause(here.Context()), why)
	there.Reset(nil)
}

// A callee that has read the whole request learns from its context that nobody waits for the
// answer.
func resetSeenByWorker(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	require.NoError(t, here.CloseSend())
	_, err := there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	working := there.Context()
	require.NoError(t, working.Err())
	here.Reset(&wire.Reason{Code: 700, Text: "too late\x1b[2J, ö" + strings.Repeat("ö", 300)})
	var theirs *wire.Reason
	require.ErrorAs(t, done(working), &theirs)
	require.Equal(t, uint16(700), theirs.Code)
	require.Regexp(t, `^too late \[2J, ö+…$`, theirs.Text, "printable and bounded")
	require.LessOrEqual(t, len(theirs.Text), 500)
	require.ErrorIs(t, done(working), wire.ErrReset)
	require.ErrorIs(t, there.Send(p.C, text("too late")), wire.ErrReset)
	there.Reset(nil)
}

func resetUnblocks(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	got := make(chan error, 1)
	go func() {
		_, err := here.Recv(p.C, nil)
		got <- err
	}()
	here.Reset(io.ErrNoProgress)
	err := <-got
	require.ErrorIs(t, err, wire.ErrReset)
	require.ErrorIs(t, err, io.ErrNoProgress)
	there.Reset(nil)
}

func resetAfterEnd(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	require.NoError(t, here.CloseSend())
	_, err := there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, there.Send(p.C, text("answer")))
	require.NoError(t, there.CloseSend())
	there.Reset(errors.New("too late to matter"))
	p.expect(t, here, "answer")
	_, err = here.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	here.Reset(nil)
	require.ErrorIs(t, context.Cause(here.Context()), wire.ErrFinished)
}

// A callee that answers without reading to the end, and leaves by its deferred Reset, has answered.
func answerSurvives(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	require.NoError(t, there.Send(p.C, text("answer")))
	require.NoError(t, there.CloseSend())
	there.Reset(nil)
	p.expect(t, here, "answer")
	_, err := here.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	here.Reset(nil)
}

func cancelRecv(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	c, cancel := context.WithCancel(p.C)
	got := make(chan error, 1)
	go func() {
		_, err := here.Recv(c, nil)
		got <- err
	}()
	cancel()
	err := <-got
	require.ErrorIs(t, err, context.Canceled)
	here.Reset(err)
	_, err = there.Recv(p.C, nil)
	require.ErrorIs(t, err, wire.ErrReset)
	there.Reset(nil)
	_, err = here.Recv(c, nil)
	require.Error(t, err)
}

func deadlineRecv(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	c, cancel := context.WithTimeout(p.C, 10*time.Millisecond)
	defer cancel()
	_, err := here.Recv(c, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	here.Reset(err)
	there.Reset(nil)
}

// Nobody receives: where the network has flow control, the sender waits until it is interrupted.
func cancelSend(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	c, cancel := context.WithCancel(p.C)
	x := Tensor(t, rand.New(rand.NewPCG(1, 7)), device.Host(), device.Float32, 1<<20)
	m := &wire.Message{Tensors: []wire.Tensor{x}}
	defer m.Release()
	timer := time.AfterFunc(20*time.Millisecond, cancel)
	defer timer.Stop()
	var err error
	for err == nil {
		err = here.Send(c, m)
	}
	require.ErrorIs(t, err, context.Canceled)
	here.Reset(err)
	there.Reset(nil)
}

func lateCancel(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	for range 50 {
		c, cancel := context.WithCancel(p.C)
		require.NoError(t, here.Send(c, text("x")))
		cancel()
		c, cancel = context.WithCancel(p.C)
		_, err := there.Recv(c, nil)
		require.NoError(t, err)
		cancel()
	}
	require.NoError(t, there.Send(p.C, text("and back")))
	p.expect(t, here, "and back")
}

func cancelAccept(t *testing.T, p *Pair) {
	c, cancel := context.WithCancel(p.C)
	cancel()
	_, err := p.Served.Accept(c)
	require.ErrorIs(t, err, context.Canceled)
	_, err = p.Listener.Accept(c)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, p.Served.Err())
}

// What comes whole is received where it is served; the rest is not waited for there.
func serve(t *testing.T, p *Pair) {
	send := func(n int) {
		m := &wire.Message{Kind: uint8(n), Header: []byte{byte(n)}, End: true}
		if n%3 == 1 {
			m.Header = make([]byte, 200<<10) // more than travels in one piece
		}
		if n%3 == 2 {
			m.Tensors = []wire.Tensor{Tensor(t, rand.New(rand.NewPCG(1, uint64(n))), device.Host(), device.Float32, 100)}
		}
		here, err := p.Dialed.Open(p.C)
		require.NoError(t, err)
		require.NoError(t, here.Send(p.C, m))
		if n%3 == 2 {
			require.NoError(t, m.Tensors[0].Buf.Release())
		}
	}
	const all = 60
	send(0)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for n := 1; n < all; n++ {
			send(n)
		}
	}()
	c, cancel := context.WithCancel(p.C)
	type one struct {
		s    wire.Stream
		kind uint8
		read bool // it was received where it was served
	}
	got := make(chan one, all)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Served.Serve(c, func(s wire.Stream, kind uint8, whole bool) {
			x := one{s: s, kind: kind}
			if whole {
				m, err := s.Recv(c, nil)
				x.read = err == nil && m.Kind == kind && m.Header[0] == kind && len(m.Header) == 1
				s.Reset(nil)
			}
			got <- x
		})
	}()
	atOnce, kinds := 0, map[uint8]bool{}
	for range all { // streams may overtake one another
		x := <-got
		if x.read {
			require.Zero(t, x.kind%3, "stream %d", x.kind)
			atOnce++
		} else {
			m, err := x.s.Recv(p.C, nil)
			require.NoError(t, err)
			x.kind = m.Kind
			m.Release()
			x.s.Reset(nil)
		}
		require.False(t, kinds[x.kind], "stream %d came twice", x.kind)
		kinds[x.kind] = true
	}
	require.GreaterOrEqual(t, atOnce, all/3-1, "all but one that was arriving when serving began")
	<-sent
	cancel()
	<-ended
	send(0)
	there, err := p.Served.Accept(p.C)
	require.NoError(t, err, "Accept goes on where Serve has ended")
	there.Reset(nil)
}

// More streams than a peer may have open at a time, one after the other, none of them read to its
// end.
func streamCredit(t *testing.T, p *Pair) {
	for range 1200 {
		here, err := p.Dialed.Open(p.C)
		require.NoError(t, err)
		require.NoError(t, here.Send(p.C, text("x")))
		there, err := p.Served.Accept(p.C)
		require.NoError(t, err)
		there.Reset(nil)
		here.Reset(nil)
	}
}

func endInMessage(t *testing.T, p *Pair) {
	here, err := p.Dialed.Open(p.C)
	require.NoError(t, err)
	last := text("all of it")
	last.End = true
	require.NoError(t, here.Send(p.C, last))
	require.NoError(t, here.CloseSend(), "it is closed already")
	there, err := p.Served.Accept(p.C)
	require.NoError(t, err)
	p.expect(t, there, "all of it")
	_, err = there.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, there.Send(p.C, last))
	require.ErrorIs(t, done(there.Context()), wire.ErrFinished)
	m, err := here.Recv(p.C, nil)
	require.NoError(t, err)
	require.True(t, m.End)
	_, err = here.Recv(p.C, nil)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, done(here.Context()), wire.ErrFinished)
}
