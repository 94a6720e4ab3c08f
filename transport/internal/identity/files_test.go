package identity

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// onDisk makes an identity whose files lie on the disk, as NAME.ca, NAME.cert and NAME.key.
func onDisk(t *testing.T, d *transporttest.Disk, name, job string, now func() time.Time) (*Identity, *transporttest.LogBook) {
	book, log := transporttest.NewLogBook()
	id, err := fromFiles(Files{CA: name + ".ca", Cert: name + ".cert", Key: name + ".key", Job: job, Logger: log}, d.Read, now)
	require.NoError(t, err)
	return id, book
}

func TestTheUsersOwnCertificatesServe(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return path
	}
	one, two := transporttest.NewAuthority(t, "one", time.Now()), transporttest.NewAuthority(t, "two", time.Now())
	cert, key := one.Member(t, "one", time.Now())
	_, otherKey := two.Member(t, "two", time.Now())
	good := Files{CA: save("ca", one.PEM()), Cert: save("cert", cert), Key: save("key", key), Job: transporttest.Job}
	a, err := FromFiles(good)
	require.NoError(t, err)
	b, err := FromFiles(good)
	require.NoError(t, err)
	require.NoError(t, a.verify(shows(t, b)))
	bad := good
	bad.CA = save("other-ca", two.PEM())
	_, err = FromFiles(bad)
	require.ErrorIs(t, err, wire.ErrIdentity, "the certificate is of another CA")
	bad = good
	bad.Key = save("other-key", otherKey)
	_, err = FromFiles(bad)
	require.ErrorContains(t, err, bad.Key)
	bad = good
	bad.CA = good.Key
	_, err = FromFiles(bad)
	require.ErrorContains(t, err, "no certificate in PEM")
	bad.CA = filepath.Join(dir, "absent")
	_, err = FromFiles(bad)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "absent")
}

// In a bubble a handshake never loses patience with the disk.
func TestRenewedFilesAreTakenWhenAllThreeFit(t *testing.T) { synctest.Test(t, renewed) }

func renewed(t *testing.T) {
	c := &clock{time.Now()}
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", c.t)
	d.Put(t, "w", ca, c.t)
	id, book := onDisk(t, d, "w", transporttest.Job, c.now)
	first := shows(t, id)[0]
	cert, key := ca.Member(t, "w", c.t)
	d.Write("w.cert", cert)
	require.Same(t, first, shows(t, id)[0], "not looked at yet")
	c.t = c.t.Add(lookEvery)
	require.Same(t, first, shows(t, id)[0], "the key is not of that certificate")
	c.t = c.t.Add(lookEvery)
	require.Same(t, first, shows(t, id)[0])
	require.Len(t, book.Lines(), 1, "told once")
	require.Contains(t, book.Lines()[0], "w.cert")
	d.Write("w.key", key)
	c.t = c.t.Add(lookEvery)
	second := shows(t, id)[0]
	require.NotEqual(t, first.SerialNumber, second.SerialNumber)
	require.Contains(t, book.Lines()[1], "are taken")
	d.Write("w.ca", []byte("half a fi"))
	c.t = c.t.Add(lookEvery)
	require.NoError(t, id.verify([]*x509.Certificate{first}), "the CA before is in use")
	require.Contains(t, book.Lines()[2], "w.ca holds no certificate")
	delete(d.Files, "w.ca")
	for range 3 {
		c.t = c.t.Add(lookEvery)
		require.Same(t, second, shows(t, id)[0])
	}
	require.Len(t, book.Lines(), 4)
	require.Contains(t, book.Lines()[3], "file does not exist")
	d.Put(t, "w", ca, c.t)
	c.t = c.t.Add(-time.Hour)
	require.NotSame(t, second, shows(t, id)[0], "the clock was set back")
}

func TestFilesAreLookedAtOnceASecondAtMost(t *testing.T) { synctest.Test(t, lookedAt) }

func lookedAt(t *testing.T) {
	c := &clock{time.Now()}
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", c.t)
	d.Put(t, "w", ca, c.t)
	id, _ := onDisk(t, d, "w", transporttest.Job, c.now)
	for range 100 {
		c.t = c.t.Add(lookEvery / 50)
		require.NoError(t, id.verify(shows(t, id)))
	}
	require.LessOrEqual(t, d.Reads, 3*(1+2))
	require.Greater(t, d.Reads, 3)
}

func TestASlowDiskDoesNotKeepAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
		d.Put(t, "w", ca, time.Now())
		id, _ := onDisk(t, d, "w", transporttest.Job, time.Now)
		first := shows(t, id)[0]
		d.Put(t, "w", ca, time.Now())
		d.Mu.Lock()
		d.Wait = make(chan struct{})
		d.Mu.Unlock()
		time.Sleep(lookEvery)
		for range 5 {
			asked := time.Now()
			require.Same(t, first, shows(t, id)[0])
			require.Equal(t, lookPatience, time.Since(asked))
			time.Sleep(lookEvery)
		}
		d.Mu.Lock()
		require.Equal(t, 4, d.Reads, "one looks at a time")
		close(d.Wait)
		d.Mu.Unlock()
		synctest.Wait()
		require.NotSame(t, first, shows(t, id)[0])
	})
}

func TestAnEndedCertificateIsNamedToItsOwner(t *testing.T) { synctest.Test(t, endedOwn) }

func endedOwn(t *testing.T) {
	c := &clock{time.Now()}
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", c.t)
	d.Put(t, "w", ca, c.t)
	id, book := onDisk(t, d, "w", transporttest.Job, c.now)
	c.t = c.t.Add(leafLife + time.Minute)
	for range 3 {
		_, err := id.certificate()
		require.ErrorIs(t, err, wire.ErrIdentity)
		require.ErrorContains(t, err, "w.cert, ended at")
	}
	require.Len(t, book.Lines(), 1)
	require.Contains(t, book.Lines()[0], "level=ERROR")
	_, err := fromFiles(id.files.Files, d.Read, c.now)
	require.ErrorContains(t, err, "w.cert, ended at")
	d.Put(t, "w", ca, c.t)
	c.t = c.t.Add(lookEvery)
	shows(t, id)
}

func TestAllFilesThatAreNotNamedAreToldAtOnce(t *testing.T) {
	_, err := FromFiles(Files{Cert: "x"})
	require.ErrorContains(t, err, "IdentityFiles.CA is empty")
	require.ErrorContains(t, err, "IdentityFiles.Key is empty")
	require.NotContains(t, err.Error(), "Cert is empty")
}
