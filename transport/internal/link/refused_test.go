package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// memberOf is a member of the tests' job, or of that with another token.
func memberOf(t testing.TB, token, name string, now func() time.Time) *identity.Identity {
	id, err := identity.FromToken(token, transporttest.Job, name, now)
	require.NoError(t, err)
	return id
}

// certified is the member of a job whose certificates are NAME.ca, NAME.cert and NAME.key on the
// disk.
func certified(t testing.TB, d *transporttest.Disk, name, job string) *identity.Identity {
	dir := t.TempDir()
	for _, kind := range []string{".ca", ".cert", ".key"} {
		b, err := d.Read(name + kind)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+kind), b, 0o600))
	}
	path := filepath.Join(dir, name)
	_, quiet := transporttest.NewLogBook()
	id, err := identity.FromFiles(identity.Files{CA: path + ".ca", Cert: path + ".cert", Key: path + ".key", Job: job, Logger: quiet})
	require.NoError(t, err)
	return id
}

func listen(t *testing.T, cfg Config) wire.Listener {
	n, err := New(cfg)
	require.NoError(t, err)
	return transporttest.Listen(t, n)
}

// refuse dials and expects to be refused.
func refuse(t *testing.T, id *identity.Identity, addr string) error {
	n, err := New(Config{Identity: id})
	require.NoError(t, err)
	return transporttest.Refused(t, n, addr)
}

func TestADialerWithAnotherTokenIsRefusedAndBothSidesAreTold(t *testing.T) {
	leak.Check(t)
	book, log := transporttest.NewLogBook()
	l := listen(t, Config{Identity: memberOf(t, transporttest.Token(), "server", time.Now), Logger: log})
	err := refuse(t, memberOf(t, transporttest.OtherToken(), "client", time.Now), l.Addr())
	require.ErrorContains(t, err, `"server" is not of this job's CA; compare the tokens`)
	<-book.Told
	require.NoError(t, l.Close())
	require.Len(t, book.Lines(), 1)
	require.Contains(t, book.Lines()[0], "level=WARN")
	require.Contains(t, book.Lines()[0], "the peer has another secret, or another CA")
	require.Contains(t, book.Lines()[0], "peer=127.0.0.1")
}

func TestAStaleClockIsRefusedAndNamed(t *testing.T) {
	leak.Check(t)
	_, log := transporttest.NewLogBook()
	l := listen(t, Config{Identity: memberOf(t, transporttest.Token(), "server", time.Now), Logger: log})
	err := refuse(t, memberOf(t, transporttest.Token(), "client", func() time.Time { return time.Now().Add(-10 * 24 * time.Hour) }), l.Addr())
	require.ErrorContains(t, err, "compare the clocks")
}

func TestWhoShowsNoCertificateGetsNoLink(t *testing.T) {
	leak.Check(t)
	book, log := transporttest.NewLogBook()
	l := listen(t, Config{Identity: memberOf(t, transporttest.Token(), "server", time.Now), Logger: log})
	conn, err := transporttest.RawDial(t, l.Addr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{wire.ALPN}})
	if err == nil {
		_, err = conn.AcceptUniStream(t.Context())
	}
	refused, _ := identity.Refused(err)
	require.True(t, refused, "%v", err)
	<-book.Told
	c, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = l.Accept(c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A job's workers with one token, or with certificates of one CA.
func TestTheWorkersOfTwoJobsRefuseEachOtherAndSayWhy(t *testing.T) {
	leak.Check(t)
	token := func(job, name string) *identity.Identity {
		id, err := identity.FromToken(transporttest.Token(), job, name, time.Now)
		require.NoError(t, err)
		return id
	}
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	certificate := func(job, name string) *identity.Identity {
		d.Put(t, name, ca, time.Now(), "weft://job-7/server", "weft://job-8/client")
		id := certified(t, d, name, job)
		return id
	}
	for _, make := range []func(job, name string) *identity.Identity{token, certificate} {
		book, log := transporttest.NewLogBook()
		l := listen(t, Config{Identity: make("job-7", "server"), Logger: log})
		err := refuse(t, make("job-8", "client"), l.Addr())
		require.ErrorContains(t, err, "another job's id, or of another version of Weft")
		<-book.Told
		require.Contains(t, book.Lines()[0], "another job's id")
	}
}

func TestOpenWaitsWhileThePeerHasEnoughStreams(t *testing.T) {
	leak.Check(t)
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	l := listen(t, Config{Identity: id, MaxStreams: 2})
	n, err := New(Config{Identity: id})
	require.NoError(t, err)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	var open []wire.Stream
	for range 2 {
		s, err := here.Open(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Send(t.Context(), &wire.Message{}))
		open = append(open, s)
	}
	c, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = here.Open(c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	open[0].Reset(nil)
	s, err := there.Accept(t.Context())
	require.NoError(t, err)
	s.Reset(nil)
	_, err = here.Open(t.Context())
	require.NoError(t, err)
}

func TestNobodyThereIsUnreachable(t *testing.T) {
	leak.Check(t)
	n, err := New(Config{Identity: memberOf(t, transporttest.Token(), "w", time.Now)})
	require.NoError(t, err)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // a port that does not answer
	require.NoError(t, err)
	defer udp.Close()
	c, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = n.Dial(c, udp.LocalAddr().String())
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:notaport", "127.0.0.1:99999"} {
		_, err = n.Dial(t.Context(), addr)
		require.ErrorIs(t, err, wire.ErrUnreachable, addr)
		_, err = n.Listen(t.Context(), cmp.Or(addr, "?"))
		require.Error(t, err, addr)
	}
}

func TestConfigErrorsAreAllReported(t *testing.T) {
	_, err := New(Config{IdleTimeout: -1, KeepAlive: -1, MaxStreams: -1, Limits: wire.Limits{MaxHeader: -1}})
	for _, field := range []string{"Identity", "IdleTimeout", "KeepAlive", "MaxStreams", "MaxHeader"} {
		require.ErrorContains(t, err, field)
	}
	d := Config{}.withDefaults()
	require.LessOrEqual(t, d.IdleTimeout+d.KeepAlive, 3*time.Second)
}
