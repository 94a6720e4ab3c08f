package identity_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-project/weft/transport/internal/quicstream"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/bulk"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/link"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func network(t *testing.T, cfg link.Config) wire.Network {
	n, err := link.New(cfg)
	require.NoError(t, err)
	return n
}

// In TLS 1.3 the dialler's handshake is complete before the listener has seen its certificate.
func TestADialerThatTrustsAnybodyIsRefusedAllTheSame(t *testing.T) {
	leak.Check(t)
	book, log := transporttest.NewLogBook()
	server := identity.TokenOf(t, transporttest.Token(), "server", time.Now)
	l := transporttest.Listen(t, network(t, link.Config{Identity: server, Logger: log}))
	intruder := identity.TokenOf(t, transporttest.OtherToken(), "intruder", time.Now)
	identity.Trust(intruder, server)
	transporttest.Refused(t, network(t, link.Config{Identity: intruder}), l.Addr())
	<-book.Told
	require.NoError(t, l.Close())
	require.Len(t, book.Lines(), 1)
	require.Contains(t, book.Lines()[0], "this worker does not take the peer's certificate")
	require.Contains(t, book.Lines()[0], "intruder")
}

// A job changes its CA: first all trust both, then each gets a certificate of the new one, then the
// old one goes.
func TestAJobChangesItsCAWhileItRuns(t *testing.T) {
	leak.Check(t)
	var skew time.Duration // of all clocks: the files are looked at when it grows
	var mu sync.Mutex
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(skew) }
	later := func() { mu.Lock(); defer mu.Unlock(); skew += identity.LookEvery }
	d := &transporttest.Disk{}
	old, fresh := transporttest.NewAuthority(t, "old", time.Now()), transporttest.NewAuthority(t, "new", time.Now())
	d.Put(t, "a", old, time.Now())
	d.Put(t, "b", old, time.Now())
	a, _ := identity.OnDisk(t, d, "a", transporttest.Job, now)
	b, _ := identity.OnDisk(t, d, "b", transporttest.Job, now)
	_, quiet := transporttest.NewLogBook()
	l := transporttest.Listen(t, network(t, link.Config{Identity: a, Logger: quiet}))
	n, err := link.New(link.Config{Identity: b})
	require.NoError(t, err)
	dial := func() (wire.Link, error) {
		c, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		link, err := n.Dial(c, l.Addr())
		if err == nil {
			t.Cleanup(func() { _ = link.Close("") })
		}
		return link, err
	}
	first, err := dial()
	require.NoError(t, err)
	for _, step := range []func(){
		func() { d.Write("a.ca", bytes.Join([][]byte{old.PEM(), fresh.PEM()}, nil)) },
		func() { d.Write("b.ca", bytes.Join([][]byte{old.PEM(), fresh.PEM()}, nil)) },
		func() {
			d.Put(t, "a", fresh, time.Now())
			d.Write("a.ca", bytes.Join([][]byte{old.PEM(), fresh.PEM()}, nil))
		},
		func() {
			d.Put(t, "b", fresh, time.Now())
			d.Write("b.ca", bytes.Join([][]byte{old.PEM(), fresh.PEM()}, nil))
		},
		func() { d.Put(t, "a", fresh, time.Now()) },
		func() { d.Put(t, "b", fresh, time.Now()) },
	} {
		step()
		later()
		identity.Look(a)
		identity.Look(b)
		_, err := dial()
		require.NoError(t, err)
	}
	require.NoError(t, first.Err(), "links that exist live on")
	d.Put(t, "b", old, time.Now())
	later()
	identity.Look(b)
	_, err = dial()
	require.ErrorIs(t, err, wire.ErrIdentity)
}

func TestDiallingWithAnEndedCertificateSaysSo(t *testing.T) {
	leak.Check(t)
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	now := time.Now()
	clock := func() time.Time { return now }
	d.Put(t, "b", ca, now)
	b, _ := identity.OnDisk(t, d, "b", transporttest.Job, clock)
	now = now.Add(identity.LeafLife + time.Minute)
	d.Put(t, "a", ca, now)
	a, _ := identity.OnDisk(t, d, "a", transporttest.Job, clock)
	_, quiet := transporttest.NewLogBook()
	l := transporttest.Listen(t, network(t, link.Config{Identity: a, Logger: quiet}))
	n, err := link.New(link.Config{Identity: b})
	require.NoError(t, err)
	_, err = n.Dial(t.Context(), l.Addr())
	require.ErrorIs(t, err, wire.ErrIdentity)
	require.ErrorContains(t, err, "b.cert, ended at")
}

func TestAProtocolsNameFitsForEveryID(t *testing.T) {
	seen := map[string]bool{}
	for _, job := range []string{"", "a", "b", strings.Repeat("x", 1<<16), "\x00\xff"} {
		id := identity.OfJob(job)
		for _, p := range []string{wire.ALPN, quicstream.ALPN, bulk.ALPN, identity.StoreALPN} {
			name := identity.InJob(id, p)
			require.Less(t, len(name), 100)
			require.False(t, seen[name])
			seen[name] = true
		}
	}
}

// Each end of a link hears from it whether the other may call itself so.
func TestALinkSaysUnderWhichNameItsPeerMayCome(t *testing.T) {
	leak.Check(t)
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	d.Put(t, "a", ca, time.Now(), "weft://job-7/a?rank=0")
	d.Put(t, "b", ca, time.Now(), "weft://job-7/b?rank=1")
	a, _ := identity.OnDisk(t, d, "a", transporttest.Job, time.Now)
	b, _ := identity.OnDisk(t, d, "b", transporttest.Job, time.Now)
	_, quiet := transporttest.NewLogBook()
	l := transporttest.Listen(t, network(t, link.Config{Identity: a, Logger: quiet}))
	n, err := link.New(link.Config{Identity: b})
	require.NoError(t, err)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")
	require.NoError(t, here.Vouches("a", 0))
	require.NoError(t, there.Vouches("b", 1))
	require.ErrorIs(t, here.Vouches("b", 1), wire.ErrIdentity)
	require.ErrorIs(t, there.Vouches("b", 0), wire.ErrIdentity)
	require.ErrorIs(t, there.Vouches("a", 0), wire.ErrIdentity)
}
