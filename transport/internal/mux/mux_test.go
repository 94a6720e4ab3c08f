package mux

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

func memPair(t testing.TB, cfg MemConfig) (a, b memLink) {
	n, err := NewMemNetwork(cfg)
	require.NoError(t, err)
	a, b = n.(*memNet).pair()
	t.Cleanup(func() { _ = a.Close("the test is over"); _ = b.Close("the test is over") })
	return a, b
}

// hostile is a session whose peer is the test.
func hostile(t testing.TB, cfg MemConfig) (l memLink, peer lane.Conduit) {
	n, err := NewMemNetwork(cfg)
	require.NoError(t, err)
	a, b := n.(*memNet).conduits()
	l = n.(*memNet).end(a, false)
	l.Start()
	t.Cleanup(func() { _ = b.Close(); _ = l.Close("the test is over") })
	go func() { _, _ = io.Copy(io.Discard, b) }()
	return l, b
}

func write(t testing.TB, k lane.Conduit, h chunk, body []byte) {
	h.size = len(body)
	_, err := k.Write(append(h.append(nil), body...))
	require.NoError(t, err)
}

func TestAPeerThatBreaksTheRulesLosesItsLinkAndIsToldWhy(t *testing.T) {
	message := func(index uint64) chunk { return chunk{kind: chunkMessage, number: index<<1 | 1} }
	for name, test := range map[string]struct {
		do   func(t *testing.T, k lane.Conduit)
		says string
	}{
		"garbage":         {func(t *testing.T, k lane.Conduit) { _, _ = k.Write(bytes.Repeat([]byte{0xff}, 100)) }, "a known kind"},
		"an unknown flag": {func(t *testing.T, k lane.Conduit) { write(t, k, chunk{kind: chunkPing, flags: 1}, nil) }, "known flags"},
		"a terabyte in a chunk": {func(t *testing.T, k lane.Conduit) {
			_, _ = k.Write(chunk{kind: chunkMessage, size: 1 << 31, number: 1}.append(nil))
		}, "a body of 1 to"},
		"more streams than may be": {func(t *testing.T, k lane.Conduit) {
			for i := range uint64(9) {
				write(t, k, message(i), []byte("x"))
			}
		}, "no more streams than were allowed"},
		"streams out of order":              {func(t *testing.T, k lane.Conduit) { write(t, k, message(3), []byte("x")) }, "streams in order"},
		"a stream that begins with a reset": {func(t *testing.T, k lane.Conduit) { write(t, k, chunk{kind: chunkReset, number: 1}, nil) }, "a message first"},
		"a stream that was never opened":    {func(t *testing.T, k lane.Conduit) { write(t, k, chunk{kind: chunkEnd, number: 100 << 1}, nil) }, "one that was opened"},
		"more bytes than the window": {func(t *testing.T, k lane.Conduit) {
			for range 1 + window/pieceMax {
				_, _ = k.Write(append(chunk{kind: chunkMessage, flags: flagMore, number: 1, size: pieceMax}.append(nil), make([]byte, pieceMax)...))
			}
		}, "no more bytes than were allowed"},
		"a flood of empty ends": {func(t *testing.T, k lane.Conduit) {
			for range 2 + window/pieceCost {
				_, _ = k.Write(chunk{kind: chunkEnd, number: 1}.append(nil))
			}
		}, "no more bytes than were allowed"},
		"credit for nothing": {func(t *testing.T, k lane.Conduit) {
			write(t, k, message(0), []byte("x"))
			write(t, k, chunk{kind: chunkCredit, number: 1}, binary.LittleEndian.AppendUint32(nil, 1))
		}, "no more than was spent"},
		"a word of no lane":       {func(t *testing.T, k lane.Conduit) { write(t, k, chunk{kind: chunkWord, lane: 9}, []byte("x")) }, "a lane of this link"},
		"too many streams at all": {func(t *testing.T, k lane.Conduit) { write(t, k, chunk{kind: chunkStreams, number: 1 << 63}, nil) }, "a number of streams"},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			l, peer := hostile(t, MemConfig{Streams: 8})
			test.do(t, peer)
			<-l.Done()
			require.ErrorIs(t, l.Err(), wire.ErrFrame)
			require.ErrorIs(t, l.Err(), wire.ErrPeerLost)
			require.ErrorContains(t, l.Err(), test.says)
			_, err := l.Accept(context.Background())
			require.ErrorIs(t, err, wire.ErrFrame)
		})
	}
}

func TestAMessageThatBreaksTheRulesEndsItsStreamAndNothingElse(t *testing.T) {
	leak.Check(t)
	l, peer := hostile(t, MemConfig{})
	l.Inline = InlineQUIC
	var good bytes.Buffer
	require.NoError(t, l.Codec.Encode(&good, &wire.Message{Header: []byte("hi")}))
	large := wire.AppendHead(nil, &wire.Message{Tensors: []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 28}}}}, 1<<30)
	for i, body := range [][]byte{
		bytes.Repeat([]byte{0xff}, 50),
		append(append([]byte(nil), good.Bytes()...), 0), // more than a frame
		good.Bytes()[:10],
		large, // not in a frame
	} {
		write(t, peer, chunk{kind: chunkMessage, number: uint64(i)<<1 | 1}, body)
		s, err := l.Accept(t.Context())
		require.NoError(t, err)
		_, err = s.Recv(t.Context(), func(device.ID, int) (*device.Buffer, error) { panic("a buffer was asked for") })
		require.ErrorIs(t, err, wire.ErrFrame, "message %d", i)
		require.ErrorIs(t, context.Cause(s.Context()), wire.ErrReset)
	}
	for i, h := range []chunk{{flags: flagExternal, lane: 2}, {flags: flagExternal, lane: 3}} { // of lanes that are not up
		h.kind, h.number = chunkMessage, uint64(4+i)<<1|1
		write(t, peer, h, appendTicket(nil, []byte("x")))
		s, err := l.Accept(t.Context())
		require.NoError(t, err)
		_, err = s.Recv(t.Context(), nil)
		require.ErrorContains(t, err, "a lane of this link")
	}
	write(t, peer, chunk{kind: chunkMessage, number: 6<<1 | 1}, good.Bytes())
	s, err := l.Accept(t.Context())
	require.NoError(t, err)
	m, err := s.Recv(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "hi", string(m.Header))
	require.NoError(t, l.Err())
	s.Reset(nil)
}

func TestAPeerThatDoesNotReadEndsItsLink(t *testing.T) {
	leak.Check(t)
	n, err := NewMemNetwork(MemConfig{})
	require.NoError(t, err)
	a, b := n.(*memNet).conduits()
	l := n.(*memNet).end(a, false)
	l.Start()
	defer b.Close()
	for l.Err() == nil {
		if _, err := b.Write(bytes.Repeat(chunk{kind: chunkPing}.append(nil), 1000)); err != nil {
			break
		}
	}
	<-l.Done()
	require.ErrorIs(t, l.Err(), errNotRead)
}

func TestManyLongLivedStreamsDoNotKeepOthersFromOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memPair(t, MemConfig{Streams: 8})
		go func() {
			for {
				s, err := b.Accept(context.Background())
				if err != nil {
					return
				}
				go func() {
					if m, err := s.Recv(context.Background(), nil); err == nil && m.End {
						_ = s.Send(context.Background(), m)
					}
				}()
			}
		}()
		for range 7 {
			s, err := a.Open(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Send(t.Context(), &wire.Message{}))
		}
		for range 100 {
			s, err := a.Open(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Send(t.Context(), &wire.Message{End: true}))
			_, err = s.Recv(t.Context(), nil)
			require.NoError(t, err)
		}
		unused, err := a.Open(t.Context())
		require.NoError(t, err)
		unused.Reset(nil)
		again, err := a.Open(t.Context())
		require.NoError(t, err, "a stream of which the peer never heard is not in its way")
		again.Reset(nil)
	})
}

// What is under suspicion is lost unless it answers.
func TestASuspectedPeerIsLostWhenItDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memPair(t, MemConfig{})
		a.suspect(io.EOF)
		synctest.Wait()
		time.Sleep(time.Minute)
		require.NoError(t, a.Err(), "it answers")
		require.NoError(t, b.Err())
		a.suspect(io.EOF)
		require.NoError(t, a.Close("done"))
		time.Sleep(time.Minute)
		require.ErrorIs(t, a.Err(), wire.ErrClosed, "what has ended is not lost too")

		l, _ := hostile(t, MemConfig{})
		began := time.Now()
		l.suspect(io.EOF)
		<-l.Done()
		require.Equal(t, 500*time.Millisecond, time.Since(began))
		require.ErrorIs(t, l.Err(), wire.ErrPeerLost)
		require.ErrorIs(t, l.Err(), io.EOF)
	})
}

func TestALostConduitIsALostPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, peer := hostile(t, MemConfig{})
		began := time.Now()
		_, err := peer.Write([]byte{chunkMessage, 0}) // killed in the middle of a chunk
		require.NoError(t, err)
		require.NoError(t, peer.Close())
		<-l.Done()
		require.ErrorIs(t, l.Err(), wire.ErrPeerLost)
		require.NotErrorIs(t, l.Err(), wire.ErrFrame)
		require.Zero(t, time.Since(began))
	})
}

func TestAnInterruptedSenderDoesNotWaitForTheConduit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := NewMemNetwork(MemConfig{})
		require.NoError(t, err)
		a, b := n.(*memNet).conduits()
		l := n.(*memNet).end(a, true)
		l.Start()
		defer func() { _ = b.Close(); <-l.Done() }() // nobody reads
		c, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var errs [20]error
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				s, err := l.Open(c)
				for err == nil {
					err = s.Send(c, &wire.Message{Header: make([]byte, 1000)})
				}
				errs[i] = err
				s.Reset(err)
			})
		}
		began := time.Now()
		wg.Wait()
		require.Equal(t, time.Second, time.Since(began))
		for _, err := range errs {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

func TestTensorsThatAreBeingReceivedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget{total: 100}
		require.NoError(t, b.take(t.Context(), 60))
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.take(c, 41), context.DeadlineExceeded)
		require.ErrorIs(t, b.take(t.Context(), 101), wire.ErrFrame)
		go func() {
			time.Sleep(time.Second)
			b.give(60)
		}()
		require.NoError(t, b.take(t.Context(), 41))
	})
}

// Random opens, sends, ends and resets against what may be observed: what arrives of a stream is
// what was sent, in order, from the start; all of it, where nobody has reset; and nothing is left
// in the end.
func TestRandomSchedulesLoseAndConfuseNothing(t *testing.T) {
	for seed := range uint64(soak.Cases(12)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			cfg := MemConfig{Streams: 1 + r.Uint64N(20), Haul: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				cfg.Chop = func(r *rand.Rand, most int) int { return 1 + r.IntN(most) }
			}
			a, b := memPair(t, cfg)
			var wg sync.WaitGroup
			w := &walk{t: t, seed: seed}
			for i, link := range []memLink{a, b} {
				wg.Go(func() { w.open(link, uint64(i)) })
				wg.Go(func() { w.accept(link, uint64(i)) })
			}
			wg.Wait()
			synctest.Wait()
			for _, l := range []memLink{a, b} {
				require.NoError(t, l.Err(), "seed %d", seed)
				l.mu.Lock()
				require.Empty(t, l.streams, "seed %d", seed)
				require.Equal(t, cfg.Streams, l.openable+(map[memLink]memLink{a: b, b: a}[l]).ended, "seed %d", seed)
				require.Zero(t, l.budget.used)
				require.Zero(t, l.queued.Load(), "seed %d", seed)
				l.mu.Unlock()
				for _, h := range l.channels {
					require.Empty(t, h.(*depotHauler).out, "seed %d", seed)
				}
			}
		})
	}
}

// walk is what the ends of a link do in a random schedule. Each end opens streams and accepts as
// many as the other opens.
type walk struct {
	t    *testing.T
	seed uint64
}

const walkStreams = 40

func (w *walk) open(l memLink, end uint64) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range uint64(walkStreams) {
		s, err := l.Open(context.Background())
		if err != nil {
			w.t.Error(err)
			return
		}
		// The peer hears of every stream, so that both count the same.
		if err := s.Send(context.Background(), walkMessage(0, 10)); err != nil {
			w.t.Error(err)
			return
		}
		wg.Go(func() { w.use(s, rand.New(rand.NewPCG(w.seed, 100*end+i)), 1, 0) })
	}
}

func (w *walk) accept(l memLink, end uint64) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range uint64(walkStreams) {
		s, err := l.Accept(context.Background())
		if err != nil {
			w.t.Error(err)
			return
		}
		wg.Go(func() { w.use(s, rand.New(rand.NewPCG(w.seed, 1000+100*end+i)), 0, 0) })
	}
}

// walkMessage is the n-th message of a direction, with that many bytes.
func walkMessage(n, size int) *wire.Message {
	m := &wire.Message{Header: fmt.Append(nil, n)}
	if size%3 == 0 {
		buf, _ := device.Host().Alloc(size)
		mem, _ := buf.Host()
		var ramp [256]byte
		for i := range ramp {
			ramp[i] = byte(n + i)
		}
		for len(mem) > 0 {
			mem = mem[copy(mem, ramp[:]):]
		}
		m.Tensors = []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{size / 4}, Buf: buf}}
	}
	return m
}

// use sends and receives on a stream until both directions end, or it is reset.
func (w *walk) use(s wire.Stream, r *rand.Rand, sent, received int) {
	c := context.Background()
	var wg sync.WaitGroup
	messages, size := r.IntN(8), 12*(1+r.IntN(5000))
	resets := r.IntN(4) == 0
	pause := time.Duration(r.IntN(3)) * time.Millisecond
	wg.Go(func() {
		for range messages {
			m := walkMessage(sent, size)
			err := s.Send(c, m)
			m.Release()
			if err != nil {
				if !errors.Is(err, wire.ErrReset) {
					w.t.Errorf("seed %d: %v", w.seed, err)
				}
				s.Reset(err)
				return
			}
			sent++
			time.Sleep(pause)
		}
		if resets {
			s.Reset(io.ErrNoProgress)
			return
		}
		if err := s.CloseSend(); err != nil && !errors.Is(err, wire.ErrReset) {
			w.t.Errorf("seed %d: %v", w.seed, err)
		}
	})
	for {
		m, err := s.Recv(c, nil)
		if err == io.EOF {
			break
		}
		if err != nil {
			if !errors.Is(err, wire.ErrReset) {
				w.t.Errorf("seed %d: %v", w.seed, err)
			}
			break
		}
		if string(m.Header) != fmt.Sprint(received) {
			w.t.Errorf("seed %d: message %d came as number %d", w.seed, received, m.Header)
		}
		for _, x := range m.Tensors {
			mem, _ := x.Buf.Host()
			sent := walkMessage(received, len(mem))
			if want, _ := sent.Tensors[0].Buf.Host(); !bytes.Equal(want, mem) {
				w.t.Errorf("seed %d: other bytes", w.seed)
			}
			sent.Release()
		}
		m.Release()
		received++
	}
	wg.Wait()
	s.Reset(nil)
}

// FuzzChunks feeds arbitrary bytes to a session: it ends, with an error of the rules or of the
// conduit.
func FuzzChunks(f *testing.F) {
	f.Add(chunk{kind: chunkEnd, number: 1}.append(nil))
	f.Add(append(chunk{kind: chunkMessage, number: 1, size: 16, flags: flagExternal, lane: 3}.append(nil), make([]byte, 16)...))
	f.Add(append(chunk{kind: chunkWord, lane: 3, size: 9}.append(nil), make([]byte, 9)...))
	f.Add(chunk{kind: chunkReset, number: 1, flags: flagAbort}.append(chunk{kind: chunkEnd, number: 1}.append(nil)))
	f.Add(append(chunk{kind: chunkClose, size: 3}.append(nil), "bye"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := NewMemNetwork(MemConfig{Haul: true, Streams: 4})
		require.NoError(t, err)
		x, y := n.(*memNet).conduits()
		l := n.(*memNet).end(x, false)
		l.AddChannel(func(env lane.Env) lane.Channel { return newDepotHauler(&depot{has: map[uint64][]byte{}}, env) })
		l.Start()
		go func() { _, _ = io.Copy(io.Discard, y) }()
		go func() {
			for {
				s, err := l.Accept(context.Background())
				if err != nil {
					return
				}
				if m, err := s.Recv(context.Background(), nil); err == nil {
					m.Release()
				}
				s.Reset(io.ErrNoProgress)
			}
		}()
		_, _ = y.Write(b)
		_ = y.Close()
		<-l.Done()
		require.Error(t, l.Err())
	})
}

// FuzzChunk reads arbitrary fixed parts: what is taken is the one way to write it.
func FuzzChunk(f *testing.F) {
	f.Add(chunk{kind: chunkCredit, number: 7, size: 4}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fixed [chunkSize]byte
		h, err := readChunk(bufio.NewReader(bytes.NewReader(b)), &fixed)
		if err == nil {
			require.Equal(t, b[:chunkSize], h.append(nil))
			require.LessOrEqual(t, h.size, pieceMax)
			return
		}
		require.True(t, errors.Is(err, wire.ErrFrame) || len(b) < chunkSize)
	})
}

// FuzzTicket takes arbitrary tickets off messages.
func FuzzTicket(f *testing.F) {
	f.Add(appendTicket(nil, []byte("ticket")))
	f.Fuzz(func(t *testing.T, b []byte) {
		ticket, rest, err := cutTicket(b)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrFrame)
			return
		}
		require.True(t, bytes.Equal(b, append(appendTicket(nil, ticket), rest...)))
	})
}
