package link

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
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// besideOf waits until tensors have a connection of their own at that end.
func besideOf(t *testing.T, l *link) (conn *quic.Conn) {
	require.Eventually(t, func() bool {
		l.hauls.mu.Lock()
		defer l.hauls.mu.Unlock()
		conn = l.hauls.beside
		return conn != nil
	}, 10*time.Second, time.Millisecond)
	return conn
}

// carry sends a large tensor from one end to the other.
func carry(t *testing.T, from, to *link) {
	s, err := from.Open(t.Context())
	require.NoError(t, err)
	defer s.Reset(nil)
	m := floats(t, 1<<18)
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
func serving(t *testing.T) (id *identity.Identity, l *listener, here, there *link, book *transporttest.LogBook) {
	book, log := transporttest.NewLogBook()
	id = memberOf(t, transporttest.Token(), "w", time.Now)
	cfg := Config{Identity: id, Lanes: []string{wire.LaneQUIC}, Logger: log}
	ln := listen(t, cfg)
	n, err := New(cfg)
	require.NoError(t, err)
	a, err := n.Dial(t.Context(), ln.Addr())
	require.NoError(t, err)
	b, err := ln.Accept(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close(""); _ = b.Close("") })
	return id, ln.(*listener), a.(*link), b.(*link), book
}

// dialForHauling makes a connection for hauling that has not said anything.
func dialForHauling(t *testing.T, id *identity.Identity, addr string) (*quic.Conn, error) {
	conf := identity.TLSConfig(id, HaulALPN)
	return rawDial(t, addr, conf)
}

func secretOf(t *testing.T, conn *quic.Conn) *[32]byte {
	with, err := lane.ExportSecret(conn, wire.LaneQUIC)
	require.NoError(t, err)
	return &with.Secret
}

func TestLargeTensorsHaveAConnectionOfTheirOwnOnceTheyMoveWhoeverSendsThem(t *testing.T) {
	both := func(t *testing.T, dialler bool) {
		leak.Check(t)
		here, there := quicPair(t, Config{Lanes: []string{wire.LaneQUIC}})
		require.Nil(t, here.hauls.beside)
		if from, to := here, there; dialler {
			carry(t, from, to)
		} else {
			carry(t, to, from)
		}
		mine, theirs := besideOf(t, here), besideOf(t, there)
		require.Equal(t, there.conn.LocalAddr(), theirs.LocalAddr(), "over the same socket")
		require.Equal(t, here.conn.LocalAddr(), mine.LocalAddr(), "over the same socket")
		for range 3 {
			before, link := mine.ConnectionStats().BytesSent, here.conn.ConnectionStats().BytesSent
			carry(t, here, there)
			carry(t, there, here)
			require.Greater(t, mine.ConnectionStats().BytesSent-before, uint64(1<<20))
			require.Less(t, here.conn.ConnectionStats().BytesSent-link, uint64(1<<18), "the link's connection has words alone")
		}
	}
	t.Run("the dialler", func(t *testing.T) { both(t, true) })
	t.Run("the listener", func(t *testing.T) { both(t, false) })
}

func TestTheConnectionForTensorsEndsWithItsLink(t *testing.T) {
	for name, end := range map[string]func(here, there *link){
		"the dialler closes it":   func(here, _ *link) { _ = here.Close("done") },
		"the listener closes it":  func(_, there *link) { _ = there.Close("done") },
		"its connection is gone":  func(here, _ *link) { _ = here.conn.CloseWithError(codeBreach, "gone") },
		"the peer breaks a rule":  func(here, _ *link) { _ = here.hauls.env.Say(nil) },
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
				end = func(here, _ *link) { _ = here.Close("done") }
			}
			end(here, there)
			<-mine.Context().Done()
			<-theirs.Context().Done()
			<-here.Done()
			<-there.Done()
			require.Eventually(t, func() bool {
				l.seats.mu.Lock()
				defer l.seats.mu.Unlock()
				return len(l.seats.has) == 0
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
	m := floats(t, 8<<20)
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
		here.hauls.mu.Lock()
		defer here.hauls.mu.Unlock()
		for _, x := range here.hauls.out {
			return x.written > 0
		}
		return false
	}, 10*time.Second, time.Millisecond)
	theirs := besideOf(t, there)
	require.NoError(t, theirs.CloseWithError(codeClosed, "by the test"))
	_, err = other.Recv(t.Context(), nil)
	require.ErrorIs(t, err, wire.ErrReset, "what was under way fails, when the link has proved to live")
	require.ErrorIs(t, <-sent, wire.ErrReset)
	<-first.Context().Done()
	<-theirs.Context().Done()
	carry(t, here, there)
	carry(t, there, here)
	require.NoError(t, here.Err())
	require.NoError(t, there.Err())
	here.hauls.mu.Lock()
	require.Nil(t, here.hauls.beside, "it was tried lately")
	here.hauls.dialAfter = time.Time{}
	here.hauls.mu.Unlock()
	carry(t, here, there)
	require.NotEqual(t, first, besideOf(t, here))
	carry(t, here, there)
}

func TestWhereThereIsNoConnectionForTensorsTheyGoByTheLinks(t *testing.T) {
	leak.Check(t)
	here, there := quicPair(t, Config{Lanes: []string{wire.LaneQUIC}})
	tried := make(chan struct{}, 10)
	here.hauls.dial = func(context.Context) (*quic.Conn, error) {
		tried <- struct{}{}
		return nil, errors.New("no")
	}
	for range 5 {
		carry(t, here, there)
		carry(t, there, here)
	}
	require.Len(t, tried, 1)
	require.Nil(t, there.hauls.beside)
}

// refusesToHaul checks that a connection is closed, and that the link keeps the tensors' connection that it has.
func refusesToHaul(t *testing.T, conn *quic.Conn, l *link, has *quic.Conn) {
	t.Helper()
	select {
	case <-conn.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it was not closed")
	}
	l.hauls.mu.Lock()
	defer l.hauls.mu.Unlock()
	require.True(t, l.hauls.beside == has)
	require.NoError(t, l.Err())
}

func TestNobodyAttachesToALinkWithoutItsSecret(t *testing.T) {
	leak.Check(t)
	id, l, here, there, book := serving(t)
	secret := secretOf(t, here.conn)
	require.Equal(t, secret, secretOf(t, there.conn))

	stranger, err := dialForHauling(t, memberOf(t, transporttest.OtherToken(), "stranger", time.Now), l.Addr())
	if err == nil { // the handshake ends here before the listener has looked at the certificate
		refusesToHaul(t, stranger, there, nil)
		err = context.Cause(stranger.Context())
	}
	refused, _ := identity.Refused(err)
	require.True(t, refused, "%v", err)

	tag := lane.LinkTag(secret)
	say := func(words func(bound []byte) []byte) {
		conn, err := dialForHauling(t, id, l.Addr())
		require.NoError(t, err)
		bound, err := haulBinding(conn)
		require.NoError(t, err)
		s, err := conn.OpenStream()
		require.NoError(t, err)
		_, err = s.Write(words(bound))
		require.NoError(t, err)
		_ = s.Close()
		refusesToHaul(t, conn, there, nil)
	}
	say(func([]byte) []byte { return nil })
	say(func([]byte) []byte { return tag[:] })
	say(func([]byte) []byte { return bytes.Repeat([]byte{0xff}, greetingSize) })
	say(func([]byte) []byte { return append(tag[:], make([]byte, 32)...) })
	say(func(bound []byte) []byte { return append(tag[:], lane.Prove(&[32]byte{1}, "dialler", 0, bound)...) })
	say(func(bound []byte) []byte { return append(tag[:], lane.Prove(secret, "listener", 0, bound)...) })
	say(func([]byte) []byte { // a proof that was made for another connection, by who can hear it
		other, err := haulBinding(here.conn)
		require.NoError(t, err)
		return append(tag[:], lane.Prove(secret, "dialler", 0, other)...)
	})
	require.Contains(t, book.Lines()[len(book.Lines())-1], "does not know the link")

	carry(t, here, there)
	has := besideOf(t, there)
	second, err := dialForHauling(t, id, l.Addr())
	require.NoError(t, err)
	require.Error(t, greetHaul(t.Context(), second, secret), "who knows the secret gets one connection, not two")
	refusesToHaul(t, second, there, has)
	carry(t, here, there)
}

func TestALinkOfWhichThereIsNoMoreTakesNoConnectionForTensors(t *testing.T) {
	leak.Check(t)
	id, l, here, there, _ := serving(t)
	secret := secretOf(t, here.conn)
	_ = here.Close("")
	<-there.Done()
	conn, err := dialForHauling(t, id, l.Addr())
	require.NoError(t, err)
	require.Error(t, greetHaul(t.Context(), conn, secret))
	<-conn.Context().Done()
}

// The dialler may be quicker than the listener with the last word of a set-up.
func TestAConnectionForTensorsMayComeBeforeItsLinkIsSetUp(t *testing.T) {
	leak.Check(t)
	id, l, here, there, _ := serving(t)
	st := &seat{link: there.conn, secret: *secretOf(t, here.conn)}
	s := &seats{has: map[[16]byte]*seat{lane.LinkTag(&st.secret): st}}
	l.seats.mu.Lock()
	l.seats.has = s.has
	l.seats.mu.Unlock()
	conn, err := dialForHauling(t, id, l.Addr())
	require.NoError(t, err)
	require.NoError(t, greetHaul(t.Context(), conn, &st.secret))
	got := make(chan *quic.Conn, 1)
	require.Eventually(t, func() bool {
		l.seats.mu.Lock()
		defer l.seats.mu.Unlock()
		return st.conn != nil
	}, 10*time.Second, time.Millisecond)
	l.seats.settle(st, func(c *quic.Conn) { got <- c })
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
		s.SetPriority(haulUrgency, true)
		if i%2 == 0 {
			s.CancelWrite(resetCode)
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
