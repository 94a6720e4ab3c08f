package quicstream_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/link"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// memberOf is a member of the tests' job, or of that with another token.
func memberOf(t testing.TB, token, name string, now func() time.Time) *identity.Identity {
	id, err := identity.FromToken(token, transporttest.Job, name, now)
	require.NoError(t, err)
	return id
}

func network(t testing.TB, cfg link.Config) wire.Network {
	n, err := link.New(cfg)
	require.NoError(t, err)
	return n
}

// quicPair makes a link over QUIC that ends with the test.
func quicPair(t *testing.T, cfg link.Config) (here, there *link.Link) {
	cfg.Identity = memberOf(t, transporttest.Token(), "w", time.Now)
	p := transporttest.Link(t, func(t testing.TB) (dialer, listener wire.Network) {
		n := network(t, cfg)
		return n, n
	})
	return p.Dialed.(*link.Link), p.Served.(*link.Link)
}

// besideOf waits until tensors have a connection of their own at that end.
func besideOf(t *testing.T, l *link.Link) (conn *quic.Conn) {
	require.Eventually(t, func() bool {
		conn = l.Data.Beside()
		return conn != nil
	}, 10*time.Second, time.Millisecond)
	return conn
}

// carry sends a large tensor from one end to the other.
func carry(t *testing.T, from, to *link.Link) {
	s, err := from.Open(t.Context())
	require.NoError(t, err)
	defer s.Reset(nil)
	m := transporttest.Floats(t, 1<<18)
	defer m.Release()
	m.End = true
	sent := make(chan error, 1)
	go func() { sent <- s.Send(t.Context(), m) }()
	other, err := to.Accept(t.Context())
	require.NoError(t, err)
	defer other.Reset(nil)
	got, err := other.Recv(t.Context(), nil)
	require.NoError(t, err)
	got.Release()
	require.NoError(t, <-sent)
}

// serving gives a link over QUIC, and what is needed to dial its listener by hand.
func serving(t *testing.T) (id *identity.Identity, l *link.Listener, here, there *link.Link, book *transporttest.LogBook) {
	book, log := transporttest.NewLogBook()
	id = memberOf(t, transporttest.Token(), "w", time.Now)
	cfg := link.Config{Identity: id, Lanes: []string{wire.LaneQUIC}, Logger: log}
	ln := transporttest.Listen(t, network(t, cfg))
	n, err := link.New(cfg)
	require.NoError(t, err)
	a, err := n.Dial(t.Context(), ln.Addr())
	require.NoError(t, err)
	b, err := ln.Accept(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close(""); _ = b.Close("") })
	return id, ln.(*link.Listener), a.(*link.Link), b.(*link.Link), book
}

// dialForData makes a data connection that has not said anything.
func dialForData(t *testing.T, id *identity.Identity, addr string) (*quic.Conn, error) {
	conf := identity.TLSConfig(id, quicstream.ALPN)
	return transporttest.RawDial(t, addr, conf)
}

func secretOf(t *testing.T, conn *quic.Conn) *[32]byte {
	with, err := lane.ExportSecret(conn, wire.LaneQUIC)
	require.NoError(t, err)
	return &with.Secret
}

func TestLargeTensorsHaveAConnectionOfTheirOwnOnceTheyMoveWhoeverSendsThem(t *testing.T) {
	both := func(t *testing.T, dialler bool) {
		leak.Check(t)
		here, there := quicPair(t, link.Config{Lanes: []string{wire.LaneQUIC}})
		require.Nil(t, here.Data.Beside())
		if from, to := here, there; dialler {
			carry(t, from, to)
		} else {
			carry(t, to, from)
		}
		mine, theirs := besideOf(t, here), besideOf(t, there)
		require.Equal(t, there.Conn.LocalAddr(), theirs.LocalAddr(), "over the same socket")
		require.Equal(t, here.Conn.LocalAddr(), mine.LocalAddr(), "over the same socket")
		for range 3 {
			before, link := mine.ConnectionStats().BytesSent, here.Conn.ConnectionStats().BytesSent
			carry(t, here, there)
			carry(t, there, here)
			require.Greater(t, mine.ConnectionStats().BytesSent-before, uint64(1<<20))
			require.Less(t, here.Conn.ConnectionStats().BytesSent-link, uint64(1<<18), "the link's connection has words alone")
		}
	}
	t.Run("the dialler", func(t *testing.T) { both(t, true) })
	t.Run("the listener", func(t *testing.T) { both(t, false) })
}

func TestTheConnectionForTensorsEndsWithItsLink(t *testing.T) {
	for name, end := range map[string]func(here, there *link.Link){
		"the dialler closes it":   func(here, _ *link.Link) { _ = here.Close("done") },
		"the listener closes it":  func(_, there *link.Link) { _ = there.Close("done") },
		"its connection is gone":  func(here, _ *link.Link) { _ = here.Conn.CloseWithError(quicstream.CodeBreach, "gone") },
		"the peer breaks a rule":  func(here, _ *link.Link) { here.Data.Break() },
		"its listener was closed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			_, l, here, there, _ := serving(t)
			carry(t, here, there)
			mine, theirs := besideOf(t, here), besideOf(t, there)
			if end == nil {
				require.NoError(t, l.Close())
				carry(t, here, there)
				require.NoError(t, mine.Context().Err(), "links outlive their listener")
				end = func(here, _ *link.Link) { _ = here.Close("done") }
			}
			end(here, there)
			<-mine.Context().Done()
			<-theirs.Context().Done()
			<-here.Done()
			<-there.Done()
			require.Eventually(t, func() bool {
				return l.Pending.Len() == 0
			}, 10*time.Second, time.Millisecond)
		})
	}
}

func TestALinkThatLosesItsConnectionForTensorsGoesOnWithoutAndGetsAnother(t *testing.T) {
	leak.Check(t)
	_, _, here, there, _ := serving(t)
	carry(t, here, there)
	first := besideOf(t, here)
	s, err := here.Open(t.Context())
	require.NoError(t, err)
	defer s.Reset(nil)
	m := transporttest.Floats(t, 8<<20)
	defer m.Release()
	sent := make(chan error, 1)
	go func() {
		err := s.Send(t.Context(), m)
		s.Reset(err)
		sent <- err
	}()
	other, err := there.Accept(t.Context())
	require.NoError(t, err)
	defer other.Reset(nil)
	require.Eventually(t, func() bool {
		return here.Data.Writes()
	}, 10*time.Second, time.Millisecond)
	theirs := besideOf(t, there)
	require.NoError(t, theirs.CloseWithError(quicstream.CodeClosed, "by the test"))
	_, err = other.Recv(t.Context(), nil)
	require.ErrorIs(t, err, wire.ErrReset, "what was under way fails, when the link has proved to live")
	require.ErrorIs(t, <-sent, wire.ErrReset)
	<-first.Context().Done()
	<-theirs.Context().Done()
	carry(t, here, there)
	carry(t, there, here)
	require.NoError(t, here.Err())
	require.NoError(t, there.Err())
	require.NoError(t, here.Data.MayDial())
	carry(t, here, there)
	require.NotEqual(t, first, besideOf(t, here))
	carry(t, here, there)
}

func TestWhereThereIsNoConnectionForTensorsTheyGoByTheLinks(t *testing.T) {
	leak.Check(t)
	here, there := quicPair(t, link.Config{Lanes: []string{wire.LaneQUIC}})
	tried := make(chan struct{}, 10)
	here.Data.Dial = func(context.Context) (*quic.Conn, error) {
		tried <- struct{}{}
		return nil, errors.New("no")
	}
	for range 5 {
		carry(t, here, there)
		carry(t, there, here)
	}
	require.Len(t, tried, 1)
	require.Nil(t, there.Data.Beside())
}

// refusesData checks that a connection is closed, and that the link keeps the tensors' connection
// that it has.
func refusesData(t *testing.T, conn *quic.Conn, l *link.Link, has *quic.Conn) {
	t.Helper()
	select {
	case <-conn.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it was not closed")
	}
	require.True(t, l.Data.Beside() == has)
	require.NoError(t, l.Err())
}

func TestNobodyAttachesToALinkWithoutItsSecret(t *testing.T) {
	leak.Check(t)
	id, l, here, there, book := serving(t)
	secret := secretOf(t, here.Conn)
	require.Equal(t, secret, secretOf(t, there.Conn))

	stranger, err := dialForData(t, memberOf(t, transporttest.OtherToken(), "stranger", time.Now), l.Addr())
	if err == nil { // the handshake ends here before the listener has looked at the certificate
		refusesData(t, stranger, there, nil)
		err = context.Cause(stranger.Context())
	}
	refused, _ := identity.Refused(err)
	require.True(t, refused, "%v", err)

	tag := lane.LinkTag(secret)
	say := func(words func(bound []byte) []byte) {
		conn, err := dialForData(t, id, l.Addr())
		require.NoError(t, err)
		bound, err := quicstream.Binding(conn)
		require.NoError(t, err)
		s, err := conn.OpenStream()
		require.NoError(t, err)
		_, err = s.Write(words(bound))
		require.NoError(t, err)
		_ = s.Close()
		refusesData(t, conn, there, nil)
	}
	say(func([]byte) []byte { return nil })
	say(func([]byte) []byte { return tag[:] })
	say(func([]byte) []byte { return bytes.Repeat([]byte{0xff}, quicstream.GreetingSize) })
	say(func([]byte) []byte { return append(tag[:], make([]byte, 32)...) })
	say(func(bound []byte) []byte { return append(tag[:], lane.Prove(&[32]byte{1}, "dialler", 0, bound)...) })
	say(func(bound []byte) []byte { return append(tag[:], lane.Prove(secret, "listener", 0, bound)...) })
	say(func([]byte) []byte { // a proof that was made for another connection, by who can hear it
		other, err := quicstream.Binding(here.Conn)
		require.NoError(t, err)
		return append(tag[:], lane.Prove(secret, "dialler", 0, other)...)
	})
	require.Contains(t, book.Lines()[len(book.Lines())-1], "does not know the link")

	carry(t, here, there)
	has := besideOf(t, there)
	second, err := dialForData(t, id, l.Addr())
	require.NoError(t, err)
	require.Error(t, quicstream.Greet(t.Context(), second, secret), "who knows the secret gets one connection, not two")
	refusesData(t, second, there, has)
	carry(t, here, there)
}

func TestALinkOfWhichThereIsNoMoreTakesNoConnectionForTensors(t *testing.T) {
	leak.Check(t)
	id, l, here, there, _ := serving(t)
	secret := secretOf(t, here.Conn)
	_ = here.Close("")
	<-there.Done()
	conn, err := dialForData(t, id, l.Addr())
	require.NoError(t, err)
	require.Error(t, quicstream.Greet(t.Context(), conn, secret))
	<-conn.Context().Done()
}

// The dialler may be quicker than the listener with the last word of a set-up.
func TestAConnectionForTensorsMayComeBeforeItsLinkIsSetUp(t *testing.T) {
	leak.Check(t)
	id, l, here, there, _ := serving(t)
	secret := secretOf(t, here.Conn)
	attach, taken := l.Pending.Reserve(there.Conn, lane.LinkTag(secret), *secret)
	conn, err := dialForData(t, id, l.Addr())
	require.NoError(t, err)
	require.NoError(t, quicstream.Greet(t.Context(), conn, secret))
	got := make(chan *quic.Conn, 1)
	require.Eventually(t, taken, 10*time.Second, time.Millisecond)
	attach(func(c *quic.Conn) { got <- c })
	require.Equal(t, conn.LocalAddr().(*net.UDPAddr).Port, (<-got).RemoteAddr().(*net.UDPAddr).Port)
	_ = here.Close("")
	<-conn.Context().Done()
}

// What a peer sends beside the rules on the tensors' connection costs it nothing but what it sent.
func TestRubbishOnTheConnectionForTensorsHarmsNobodyElse(t *testing.T) {
	leak.Check(t)
	_, _, here, there, _ := serving(t)
	carry(t, here, there)
	conn := besideOf(t, here)
	besideOf(t, there)
	for i := range 400 {
		s, err := conn.OpenUniStreamSync(t.Context())
		require.NoError(t, err)
		b := make([]byte, 4+i%8)
		_, _ = rand.Read(b)
		_, _ = s.Write(b)
		s.SetPriority(quicstream.Urgency, true)
		if i%2 == 0 {
			s.CancelWrite(quicstream.ResetCode)
		} else {
			_ = s.Close()
		}
	}
	_, err := conn.OpenStream()
	require.Error(t, err, "one two-way stream, and it has been used")
	for range 3 {
		carry(t, here, there)
		carry(t, there, here)
	}
	require.NoError(t, here.Err())
	require.NoError(t, there.Err())
}
