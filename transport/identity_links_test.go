package transport

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// In TLS 1.3 the dialler's handshake is complete before the listener has seen its certificate.
func TestADialerThatTrustsAnybodyIsRefusedAllTheSame(t *testing.T) {
	leak.Check(t)
	book, log := transporttest.NewLogBook()
	server := fromToken(t, transporttest.Token(), "server", time.Now)
	l := listen(t, Config{Identity: server, Logger: log})
	intruder := fromToken(t, transporttest.OtherToken(), "intruder", time.Now)
	intruder.roots = server.roots
	refuse(t, intruder, l.Addr())
	<-book.Told
	require.NoError(t, l.Close())
	require.Len(t, book.Lines(), 1)
	require.Contains(t, book.Lines()[0], "this worker does not take the peer's certificate")
	require.Contains(t, book.Lines()[0], "intruder")
}

// look has an identity look at its files, however slow this machine is.
func look(id *Identity) {
	id.refresh()
	id.mu.Lock()
	looking := id.files.looking
	id.mu.Unlock()
	if looking != nil {
		<-looking
	}
}

// A job changes its CA: first all trust both, then each gets a certificate of the new one, then the old one goes.
func TestAJobChangesItsCAWhileItRuns(t *testing.T) {
	leak.Check(t)
	var skew time.Duration // of all clocks: the files are looked at when it grows
	var mu sync.Mutex
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(skew) }
	later := func() { mu.Lock(); defer mu.Unlock(); skew += lookEvery }
	d := &transporttest.Disk{}
	old, fresh := transporttest.NewAuthority(t, "old", time.Now()), transporttest.NewAuthority(t, "new", time.Now())
	d.Put(t, "a", old, time.Now())
	d.Put(t, "b", old, time.Now())
	a, _ := onDisk(t, d, "a", transporttest.Job, now)
	b, _ := onDisk(t, d, "b", transporttest.Job, now)
	_, quiet := transporttest.NewLogBook()
	l := listen(t, Config{Identity: a, Logger: quiet})
	n, err := New(Config{Identity: b})
	require.NoError(t, err)
	dial := func() (Link, error) {
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
		look(a)
		look(b)
		_, err := dial()
		require.NoError(t, err)
	}
	require.NoError(t, first.Err(), "links that exist live on")
	d.Put(t, "b", old, time.Now())
	later()
	look(b)
	_, err = dial()
	require.ErrorIs(t, err, ErrIdentity)
}

func TestDiallingWithAnEndedCertificateSaysSo(t *testing.T) {
	leak.Check(t)
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	c := &clock{time.Now()}
	d.Put(t, "b", ca, c.t)
	b, _ := onDisk(t, d, "b", transporttest.Job, c.now)
	c.t = c.t.Add(leafLife + time.Minute)
	d.Put(t, "a", ca, c.t)
	a, _ := onDisk(t, d, "a", transporttest.Job, c.now)
	_, quiet := transporttest.NewLogBook()
	l := listen(t, Config{Identity: a, Logger: quiet})
	n, err := New(Config{Identity: b})
	require.NoError(t, err)
	_, err = n.Dial(t.Context(), l.Addr())
	require.ErrorIs(t, err, ErrIdentity)
	require.ErrorContains(t, err, "b.cert, ended at")
}

func TestAProtocolsNameFitsForEveryID(t *testing.T) {
	seen := map[string]bool{}
	for _, job := range []string{"", "a", "b", strings.Repeat("x", 1<<16), "\x00\xff"} {
		id := &Identity{job: job}
		for _, p := range []string{ALPN, haulALPN, bulkALPN, storeALPN} {
			name := inJob(id, p)
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
	a, _ := onDisk(t, d, "a", transporttest.Job, time.Now)
	b, _ := onDisk(t, d, "b", transporttest.Job, time.Now)
	_, quiet := transporttest.NewLogBook()
	l := listen(t, Config{Identity: a, Logger: quiet})
	n, err := New(Config{Identity: b})
	require.NoError(t, err)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")
	require.NoError(t, here.Vouches("a", 0))
	require.NoError(t, there.Vouches("b", 1))
	require.ErrorIs(t, here.Vouches("b", 1), ErrIdentity)
	require.ErrorIs(t, there.Vouches("b", 0), ErrIdentity)
	require.ErrorIs(t, there.Vouches("a", 0), ErrIdentity)
}
