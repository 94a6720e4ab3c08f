package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store/internal/client"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/who"
	"github.com/weft-project/weft/store/internal/wire"
)

func TestOneHonestMistakeIsALineOfTheLogAndSaysWhatItIs(t *testing.T) {
	server, trusts := talktest.Identity(t)
	_, other := talktest.Identity(t)
	server.NextProtos, trusts.NextProtos, other.NextProtos = []string{"job 7"}, []string{"job 8"}, []string{"job 7"}
	for want, conf := range map[string]*tls.Config{
		"the peer has another secret than this store, or another CA": other,
		"the peer is of another job's id, or is no worker of Weft":   trusts,
	} {
		log := new(talktest.Lines)
		s := startServer(t, Config{TLS: server, Logger: log.Logger()})
		for range 20 {
			_, err := client.Dial(t.Context(), client.Config{Addr: s.Addr(), TLS: conf})
			require.ErrorContains(t, err, "no TLS session with the store")
			require.Equal(t, conf == trusts, errors.Is(err, kv.ErrOtherJob), err)
		}
		require.NoError(t, s.Close()) // which waits for those who write
		require.Equal(t, 1, strings.Count(log.String(), want), log)
		require.Equal(t, 1, strings.Count(log.String(), "store closes a client"), log)
	}
}

func TestTLSAndPlainTextAreTakenOnOnePort(t *testing.T) {
	server, trusts := talktest.Identity(t)
	s := startServer(t, Config{TLS: server})
	plain, secret := connectRaw(t, s), connectRaw(t, s)
	secret.NC = tls.Client(secret.NC, trusts)
	plain.Send("00 02 00*7 '/k' 01 00*7 'p'")
	for _, dialect := range []string{"", talktest.OwnMode} {
		r, w := talktest.NewRaw(t, tls.Client(connectRaw(t, s).NC, trusts)), talktest.NewRaw(t, tls.Client(connectRaw(t, s).NC, trusts))
		for _, c := range []talktest.Raw{r, w} {
			if dialect != "" {
				c.Send(dialect)
				c.Expect("00")
			}
		}
		if dialect == "" {
			w.Send("07 02 00*7 '/k'")
			w.Expect("03")
			r.Send("00 02 00*7 '/k' 01 00*7 'v' 06")
			r.Expect("01 00*7")
			w.Expect("01 02 00*7 '/k' 00*8 01 00*7 'v'")
			continue
		}
		w.Send("40 01 00*7 02 00*7 '/j'")
		r.Send("01 02 00*7 '/j' 01 00*7 'x'")
		w.Expect("00 01 00*7 'x'")
		r.Expect("00")
	}
	secret.Send("02 02 00*7 '/k'")
	secret.Expect("01 00*7 'v'")
	plain.Send("02 02 00*7 '/k' 06")
	plain.Expect("01 00*7 'p' 01 00*7")
}

func TestEveryFragmentationOfATLSHelloIsServed(t *testing.T) {
	server, trusts := talktest.Identity(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(Config{TLS: server, Plain: PlainNever})
		defer s.Close()
		for cut := 1; cut < 400; cut += 13 {
			near, far := net.Pipe()
			s.attach(far)
			nc := tls.Client(&cutting{Conn: near, at: cut}, trusts)
			r := talktest.NewRaw(t, nc)
			r.Send("06")
			r.Expect("00*8")
			nc.NetConn().Close()
		}
	})
}

// cutting sends its first write in two pieces.
type cutting struct {
	net.Conn
	at int
}

func (c *cutting) Write(b []byte) (int, error) {
	at := min(c.at, len(b))
	c.at = 0
	n, err := c.Conn.Write(b[:at])
	if err != nil || n == len(b) {
		return n, err
	}
	m, err := c.Conn.Write(b[at:])
	return n + m, err
}

func TestPlainTextIsTakenFromWhomThePolicySays(t *testing.T) {
	some, other := &tls.Config{}, os.Geteuid()+1
	ours, root, theirs, elsewhere := owner{uid: os.Geteuid()}, owner{}, owner{uid: other}, owner{err: who.ErrElsewhere}
	nobody, unsaid := owner{err: who.ErrNobody}, owner{err: who.ErrUnsaid}
	for _, x := range []struct {
		tls           *tls.Config
		plain         Plain
		far           bool // the server listens beyond loopback
		mine, strange bool // who may
	}{
		{nil, PlainAuto, false, true, false}, {nil, PlainAuto, true, true, true}, {nil, PlainAlways, false, true, true},
		{some, PlainAuto, false, true, false}, {some, PlainAuto, true, true, false},
		{some, PlainAlways, true, true, true}, {some, PlainNever, false, false, false}, {some, PlainNever, true, false, false},
	} {
		s := newServer(Config{TLS: x.tls, Plain: x.plain})
		s.far = x.far
		for _, o := range []owner{ours, root, unsaid} {
			require.Equal(t, x.mine, s.takesPlain(o) == nil, "%+v %v", x, o)
		}
		for _, o := range []owner{theirs, elsewhere, nobody} {
			err := s.takesPlain(o)
			require.Equal(t, x.strange, err == nil, "%+v %v", x, o)
			if err != nil {
				require.ErrorIs(t, err, kv.ErrProtocol)
			}
		}
	}
	for address, far := range map[string]bool{"127.0.0.1": false, "127.8.9.1": false, "::1": false, "0.0.0.0": true, "::": true, "10.0.0.1": true} {
		require.Equal(t, far, reachable(&net.TCPAddr{IP: net.ParseIP(address)}), address)
	}
	require.False(t, reachable(&net.UnixAddr{}))
}

func TestWhoSpeaksPlainTextWhereItMayNotIsClosed(t *testing.T) {
	server, trusts := talktest.Identity(t)
	log := new(talktest.Lines)
	s := startServer(t, Config{TLS: server, Plain: PlainNever, Logger: log.Logger()})
	for _, greeting := range []string{"06", talktest.Hello, "00"} {
		r := connectRaw(t, s)
		r.Send(greeting)
		r.Expect("'!tls'")
		r.ExpectClosed()
	}
	r := talktest.NewRaw(t, tls.Client(connectRaw(t, s).NC, trusts))
	r.Alive()
	require.NoError(t, s.Close())
	require.Contains(t, log.String(), "it speaks plain text")
}

func TestTLSWithoutAnIdentityIsRefused(t *testing.T) {
	_, trusts := talktest.Identity(t)
	log := new(talktest.Lines)
	s := startServer(t, Config{Logger: log.Logger()})
	require.Error(t, tls.Client(connectRaw(t, s).NC, trusts).Handshake())
	require.NoError(t, s.Close())
	require.Contains(t, log.String(), "it speaks TLS, for which this server has no identity")
}

func TestAStrangerOfTheIdentityIsNotServed(t *testing.T) {
	server, trusts := talktest.Identity(t)
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, trusts.RootCAs
	s := startServer(t, Config{TLS: server})
	nc := tls.Client(connectRaw(t, s).NC, trusts) // shows no certificate
	_, err := nc.Write([]byte{6})
	if err == nil {
		_, err = io.ReadFull(nc, make([]byte, 8))
	}
	require.Error(t, err)
	require.Empty(t, s.Stats().Commands)
}

// TLS 1.3 tells so after the handshake, on what looks like a lost connection.
func TestAClientWhoseCertificateIsRefusedDoesNotTryAgain(t *testing.T) {
	server, trusts := talktest.Identity(t)
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, trusts.RootCAs
	s := startServer(t, Config{TLS: server})
	_, err := client.Dial(t.Context(), client.Config{Addr: s.Addr(), TLS: trusts, Timeout: time.Hour})
	require.ErrorContains(t, err, "no TLS session with the store")
	require.ErrorContains(t, err, "certificate required")
}

// An hour is longer than any test: who tried again would not come back.
func TestAnotherJobsStoreIsToldAtOnce(t *testing.T) {
	server, trusts := talktest.Identity(t)
	server.NextProtos, trusts.NextProtos = []string{"store/one"}, []string{"store/another"}
	for _, plain := range []Plain{PlainAuto, PlainAlways, PlainNever} {
		s := startServer(t, Config{TLS: server, Plain: plain})
		for range 20 {
			_, err := client.Dial(t.Context(), client.Config{Addr: s.Addr(), TLS: trusts, Timeout: time.Hour})
			require.ErrorContains(t, err, "no TLS session with the store")
			require.ErrorContains(t, err, "it is the store of another job's id, or of another version of Weft")
		}
	}
}

// An hour is longer than any test: who tried again would not come back.
func TestAClientThatShowsTooLittleOrTooMuchIsToldAtOnceAndIsOneLineOfTheLog(t *testing.T) {
	server, trusts := talktest.Identity(t)
	for name, x := range map[string]struct {
		serves  Config
		shows   *tls.Config
		dialect wire.Dialect
		want    error
		logs    string
	}{
		"no TLS with a store that has nothing else":          {Config{TLS: server, Plain: PlainNever}, nil, wire.DialectAuto, kv.ErrNeedsTLS, "it speaks plain text"},
		"the same, in the dialect of a PyTorch without PING": {Config{TLS: server, Plain: PlainNever}, nil, wire.Dialect22, kv.ErrNeedsTLS, "it speaks plain text"},
		"TLS with a store that has none":                     {Config{}, trusts, wire.DialectAuto, kv.ErrNotTLS, "it speaks TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(talktest.Lines)
			x.serves.Logger = log.Logger()
			s := startServer(t, x.serves)
			for n := range 5 {
				_, err := client.Dial(t.Context(), client.Config{Addr: s.Addr(), TLS: x.shows, Dialect: x.dialect, Timeout: time.Hour})
				require.ErrorIs(t, err, x.want)
				require.NotErrorIs(t, err, kv.ErrUnreachable)
				require.EqualValues(t, n+1, s.Stats().Accepted, "one connection each")
			}
			require.NoError(t, s.Close()) // which waits for those who write
			require.Equal(t, 1, strings.Count(log.String(), x.logs), log)
		})
	}
}

func TestAMemberGoesOnWithAServerThatIsStartedAnew(t *testing.T) {
	server, trusts := talktest.Identity(t)
	for _, plain := range []Plain{PlainAuto, PlainNever} {
		s := startServer(t, Config{TLS: server, Plain: plain})
		cl, err := client.Dial(t.Context(), client.Config{Addr: s.Addr(), TLS: trusts})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		c, giveUp := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = cl.Set(c, "k", nil)
		giveUp()
		require.ErrorIs(t, err, kv.ErrTimeout, "nobody listens, which may pass")
		done := make(chan error)
		go func() { done <- cl.Set(t.Context(), "k", []byte("v")) }()
		startServer(t, Config{Addr: s.Addr(), TLS: server, Plain: plain})
		require.NoError(t, <-done)
		require.NoError(t, cl.Close())
	}
}

func TestAHandshakeThatDoesNotEndIsGivenUp(t *testing.T) {
	server, _ := talktest.Identity(t)
	for name, x := range map[string]struct {
		plain Plain
		sent  string
		stays bool
	}{
		"half a hello": {PlainAlways, "16 03 01", false}, "nothing where TLS is a must": {PlainNever, "", false},
		"nothing": {PlainAlways, "", true}, "half a greeting": {PlainAlways, "00 ce", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(Config{TLS: server, Plain: x.plain})
				defer s.Close()
				near, far := net.Pipe()
				s.attach(far)
				r := talktest.NewRaw(t, near)
				r.Send(x.sent)
				time.Sleep(proofWithin - time.Second)
				synctest.Wait()
				require.Equal(t, 1, s.Stats().Clients)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, x.stays, s.Stats().Clients == 1, fmt.Sprint(s.Stats()))
			})
		})
	}
}

// A server without TLS hangs up on a hello that it cannot read. If it is gone by the time of the
// last try, then that it had no TLS is still the news.
func TestAServerThatHadNoTLSAndIsGoneIsCalledOneWithoutTLS(t *testing.T) {
	_, trusts := talktest.Identity(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		nc, err := l.Accept()
		_ = l.Close()
		if err == nil {
			_ = nc.Close()
		}
	}()
	_, err = client.Dial(t.Context(), client.Config{Addr: l.Addr().String(), TLS: trusts, Timeout: 200 * time.Millisecond})
	<-served
	require.ErrorIs(t, err, kv.ErrTimeout)
	require.ErrorIs(t, err, kv.ErrNotTLS)
}
