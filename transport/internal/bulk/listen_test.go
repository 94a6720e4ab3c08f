package bulk

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

var localhost = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}

// bulkPair is a maker for each end, and the listener's server.
func bulkPair(t *testing.T, stripes int) (dialler *maker, s *server, book *transporttest.LogBook) {
	book, log := transporttest.NewLogBook()
	dialler = New(stripesOf(t, transporttest.Token(), "dialler", time.Now), true, slog.Default())
	listener := New(stripesOf(t, transporttest.Token(), "listener", time.Now), false, log)
	dialler.stripes, listener.stripes = stripes, stripes
	served, err := listener.Serve(localhost)
	require.NoError(t, err)
	t.Cleanup(served.Close)
	return dialler, served.(*server), book
}

func TestManyLinksJoinAtOnceAndNoneGetsAnothersStripes(t *testing.T) {
	leak.Check(t)
	m, s, _ := bulkPair(t, 3)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			with := lane.Peer{Secret: [32]byte{byte(i)}, Addr: localhost}
			answer, wait, err := s.Expect(with, []byte{byte(1 + i%4)})
			if i%4 == 3 {
				answer[0] = 3 // four were offered; bulkPair has three
			}
			require.NoError(t, err)
			ends := make(chan *lane.End, 1)
			go func() {
				m := *m
				m.stripes = 1 + i%4
				end, err := m.Join(t.Context(), with, answer)
				if err != nil {
					t.Error(err)
				}
				ends <- end
			}()
			served, err := wait(t.Context())
			require.NoError(t, err)
			p := join(t, [2]*lane.End{<-ends, served})
			require.Len(t, p.ends[0].(*channel).stripes, min(3, 1+i%4))
			x := []wire.Tensor{tensorOn(t, device.Host(), 1<<16+i)}
			got := blank(x)
			defer lane.ReleaseAll(x)
			defer lane.ReleaseAll(got)
			sent, fetched := p.move(t.Context(), i%2, x, got, nil)
			require.NoError(t, sent)
			require.NoError(t, fetched)
			require.Equal(t, pattern(4*(1<<16+i)), contents(t, got[0]))
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.expected)
	require.Empty(t, s.strangers.Under)
}

func TestTheLaneListensOnTheLinksPortWhereItCan(t *testing.T) {
	leak.Check(t)
	m := New(stripesOf(t, transporttest.Token(), "w", time.Now), true, slog.Default())
	udp, err := net.ListenUDP("udp4", localhost)
	require.NoError(t, err)
	defer udp.Close()
	first, err := m.Serve(udp.LocalAddr())
	require.NoError(t, err)
	defer first.Close()
	second, err := m.Serve(udp.LocalAddr())
	require.NoError(t, err)
	defer second.Close()
	require.NotEqual(t, first.(*server).port, second.(*server).port, "it is taken")
	_, err = m.Serve(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1})
	require.ErrorContains(t, err, "listen for lane bulk")
	_, err = m.Serve(&net.UnixAddr{})
	require.Error(t, err)
}

func TestWhileNoLinkExpectsStripesConnectionsAreClosedUnheard(t *testing.T) {
	leak.Check(t)
	_, s, _ := bulkPair(t, 1)
	conn, err := net.Dial("tcp", s.ln.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
}

func TestAStrangerGetsNoStripeAndIsToldOfOnce(t *testing.T) {
	leak.Check(t)
	_, s, book := bulkPair(t, 1)
	with := lane.Peer{Secret: [32]byte{1}, Addr: localhost}
	answer, wait, err := s.Expect(with, []byte{1})
	require.NoError(t, err)
	stranger := New(stripesOf(t, transporttest.OtherToken(), "stranger", time.Now), true, slog.Default())
	stranger.stripes = 1
	gullible := New(stripesOf(t, transporttest.OtherToken(), "stranger", time.Now), true, slog.Default())
	careful := gullible.tls
	gullible.tls = func() *tls.Config {
		conf := careful()
		conf.VerifyConnection = nil
		return conf
	}
	for range 3 {
		_, err = stranger.Join(t.Context(), with, answer)
		require.ErrorIs(t, err, wire.ErrIdentity)
		_, err = gullible.Join(t.Context(), with, answer)
		require.Error(t, err, "it trusts anybody, but is not trusted")
		nobody, err := tls.Dial("tcp", s.ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{ALPN}})
		if err == nil {
			_, err = nobody.Read(make([]byte, 1))
			nobody.Close()
		}
		require.Error(t, err, "it shows no certificate")
	}
	<-book.Told
	<-book.Told
	c, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = wait(c)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "1 of 1 connections")
	s.Close()
	require.Len(t, book.Lines(), 2)
}

func TestAMemberOfTheJobCannotTakeAnothersStripe(t *testing.T) {
	leak.Check(t)
	m, s, book := bulkPair(t, 2)
	with := lane.Peer{Secret: [32]byte{1}, Addr: localhost}
	answer, wait, err := s.Expect(with, []byte{2})
	require.NoError(t, err)
	_, err = m.Join(t.Context(), lane.Peer{Secret: [32]byte{2}, Addr: localhost}, answer)
	require.Error(t, err, "another link's secret")
	<-book.Told
	require.Contains(t, book.Lines()[0], "does not know the link")
	for name, preamble := range map[string]func(bound []byte) []byte{
		"a proof of another connection": func([]byte) []byte { return lane.Prove(&with.Secret, "dialler", 0, make([]byte, 32)) },
		"the listener's proof":          func(bound []byte) []byte { return lane.Prove(&with.Secret, "listener", 0, bound) },
		"the proof of another stripe":   func(bound []byte) []byte { return lane.Prove(&with.Secret, "dialler", 1, bound) },
	} {
		conn, err := tls.Dial("tcp", s.ln.Addr().String(), m.tls())
		require.NoError(t, err)
		bound, err := binding(conn)
		require.NoError(t, err)
		tag := lane.LinkTag(&with.Secret)
		_, err = conn.Write(append(append(tag[:], 0), preamble(bound)...))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err, name)
		conn.Close()
	}
	answer[0] = 1
	_, err = m.Join(t.Context(), with, answer) // the first of two
	require.NoError(t, err)
	_, err = m.Join(t.Context(), with, answer) // again: it is answered, and then closed
	require.NoError(t, err)
	s.Close()
	_, err = wait(t.Context())
	require.ErrorIs(t, err, wire.ErrClosed)
	require.ErrorContains(t, err, "1 of 2")
}

func TestTheDiallerIsNotFooledEither(t *testing.T) {
	leak.Check(t)
	m, s, _ := bulkPair(t, 1)
	answers := make(chan error, 1)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", s.m.tls()) // a member of the job, but not the one that was dialled
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			defer conn.Close()
			var b [preambleSize]byte
			_, err = io.ReadFull(conn, b[:])
			_, _ = conn.Write(b[17:])
		}
		answers <- err
	}()
	with := lane.Peer{Secret: [32]byte{1}, Addr: localhost}
	_, err = m.Join(t.Context(), with, answer{1, uint16(ln.Addr().(*net.TCPAddr).Port)}.append(nil))
	require.ErrorIs(t, err, wire.ErrIdentity)
	require.NoError(t, <-answers)
	for _, answer := range [][]byte{nil, {1, 2}, {0, 1, 1}, {2, 1, 1}, {1, 0, 0}, {1, 1, 1, 1}} {
		_, err = m.Join(t.Context(), with, answer)
		require.ErrorIs(t, err, wire.ErrFrame)
	}
	_, _, err = s.Expect(with, nil)
	require.ErrorIs(t, err, wire.ErrFrame)
	_, err = m.Join(t.Context(), lane.Peer{Addr: &net.UnixAddr{}}, answer{1, 1}.append(nil))
	require.Error(t, err)
}

func TestJoiningEndsWithItsContext(t *testing.T) {
	leak.Check(t)
	m, _, _ := bulkPair(t, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	require.NoError(t, err)
	defer ln.Close()
	c, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = m.Join(c, lane.Peer{Addr: localhost}, answer{1, uint16(ln.Addr().(*net.TCPAddr).Port)}.append(nil))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestWhoTricklesGivesWayToWhoCanProveItself(t *testing.T) {
	leak.Check(t)
	m, s, _ := bulkPair(t, 1)
	with := lane.Peer{Secret: [32]byte{1}, Addr: localhost}
	answer, wait, err := s.Expect(with, []byte{1})
	require.NoError(t, err)
	var slow []net.Conn
	for range maxStrangers + 20 {
		conn, err := net.Dial("tcp", s.ln.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte{22, 3, 1})
		if !errors.Is(err, net.ErrClosed) {
			slow = append(slow, conn)
		}
	}
	end, err := m.Join(t.Context(), with, answer)
	require.NoError(t, err)
	end.Drop()
	served, err := wait(t.Context())
	require.NoError(t, err)
	served.Drop()
	for _, conn := range slow[:20] { // those gave way
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
	}
	s.mu.Lock()
	strangers := len(s.strangers.Under)
	s.mu.Unlock()
	require.LessOrEqual(t, strangers, maxStrangers)
	s.Close() // ends the others; leak.Check looks
}

func TestStripesGrowWithTheProcessorsUpToABound(t *testing.T) {
	for procs, stripes := range map[int]int{1: 1, 2: 1, 4: 1, 8: 2, 16: 4, 128: 4} {
		require.Equal(t, stripes, stripesFor(procs))
	}
}

func TestOnOneHostTheLaneLeavesItToTheLocalOne(t *testing.T) {
	leak.Check(t)
	_, s, _ := bulkPair(t, 1)
	s.m.local = true
	_, _, err := s.Expect(lane.Peer{Addr: localhost}, []byte{1})
	require.ErrorIs(t, err, errSameHost)
	_, _, err = s.Expect(lane.Peer{Addr: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1)}}, []byte{1})
	require.NoError(t, err)
	own, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range own {
		require.True(t, onThisHost(&net.UDPAddr{IP: a.(*net.IPNet).IP}), "%v", a)
	}
	require.False(t, onThisHost(&net.UnixAddr{}))
}
