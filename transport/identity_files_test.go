package transport

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/internal/leak"
)

// authority is a CA as a user would have one.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string, now time.Time) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name + " CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *authority) pem() []byte { return block("CERTIFICATE", a.cert.Raw) }

// member makes a certificate and its key.
func (a *authority) member(t *testing.T, name string, now time.Time, uris ...string) (cert, key []byte) {
	if uris == nil {
		uris = []string{"weft://" + testJob + "/" + name}
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(rand.Int64()), Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-leafBackdate), NotAfter: now.Add(leafLife),
	}
	for _, uri := range uris {
		u, err := url.Parse(uri)
		require.NoError(t, err)
		tmpl.URIs = append(tmpl.URIs, u)
	}
	mine, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	require.NoError(t, err)
	signed, err := x509.CreateCertificate(cryptorand.Reader, tmpl, a.cert, mine.Public(), a.key)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(mine)
	require.NoError(t, err)
	return block("CERTIFICATE", signed), block("PRIVATE KEY", der)
}

// disk is files in memory; it can be slow.
type disk struct {
	mu    sync.Mutex
	files map[string][]byte
	reads int
	wait  chan struct{} // nil, or closed when it may answer
}

func (d *disk) read(name string) ([]byte, error) {
	d.mu.Lock()
	d.reads++
	wait := d.wait
	d.mu.Unlock()
	if wait != nil {
		<-wait
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.files[name]; ok {
		return b, nil
	}
	return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
}

func (d *disk) write(name string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files == nil {
		d.files = map[string][]byte{}
	}
	d.files[name] = b
}

// identity makes one whose files lie on the disk, as NAME.ca, NAME.cert and NAME.key.
func (d *disk) identity(t *testing.T, name string, now func() time.Time) (*Identity, *logBook) {
	return d.identityOf(t, name, testJob, now)
}

func (d *disk) identityOf(t *testing.T, name, job string, now func() time.Time) (*Identity, *logBook) {
	book, log := newLogBook()
	id, err := identityFromFiles(IdentityFiles{CA: name + ".ca", Cert: name + ".cert", Key: name + ".key", Job: job, Logger: log}, d.read, now)
	require.NoError(t, err)
	return id, book
}

// put writes the files of a member; without URIs it is that name of the tests' job.
func (d *disk) put(t *testing.T, name string, of *authority, now time.Time, uris ...string) {
	cert, key := of.member(t, name, now, uris...)
	d.write(name+".ca", of.pem())
	d.write(name+".cert", cert)
	d.write(name+".key", key)
}

func TestTheUsersOwnCertificatesServe(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return path
	}
	one, two := newAuthority(t, "one", time.Now()), newAuthority(t, "two", time.Now())
	cert, key := one.member(t, "one", time.Now())
	_, otherKey := two.member(t, "two", time.Now())
	good := IdentityFiles{CA: save("ca", one.pem()), Cert: save("cert", cert), Key: save("key", key), Job: testJob}
	a, err := IdentityFromFiles(good)
	require.NoError(t, err)
	b, err := IdentityFromFiles(good)
	require.NoError(t, err)
	require.NoError(t, a.verify(shows(t, b)))
	bad := good
	bad.CA = save("other-ca", two.pem())
	_, err = IdentityFromFiles(bad)
	require.ErrorIs(t, err, ErrIdentity, "the certificate is of another CA")
	bad = good
	bad.Key = save("other-key", otherKey)
	_, err = IdentityFromFiles(bad)
	require.ErrorContains(t, err, bad.Key)
	bad = good
	bad.CA = good.Key
	_, err = IdentityFromFiles(bad)
	require.ErrorContains(t, err, "no certificate in PEM")
	bad.CA = filepath.Join(dir, "absent")
	_, err = IdentityFromFiles(bad)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "absent")
}

// In a bubble a handshake never loses patience with the disk.
func TestRenewedFilesAreTakenWhenAllThreeFit(t *testing.T) { synctest.Test(t, renewed) }

func renewed(t *testing.T) {
	c := &clock{time.Now()}
	d, ca := &disk{}, newAuthority(t, "job", c.t)
	d.put(t, "w", ca, c.t)
	id, book := d.identity(t, "w", c.now)
	first := shows(t, id)[0]
	cert, key := ca.member(t, "w", c.t)
	d.write("w.cert", cert)
	require.Same(t, first, shows(t, id)[0], "not looked at yet")
	c.t = c.t.Add(lookEvery)
	require.Same(t, first, shows(t, id)[0], "the key is not of that certificate")
	c.t = c.t.Add(lookEvery)
	require.Same(t, first, shows(t, id)[0])
	require.Len(t, book.lines(), 1, "told once")
	require.Contains(t, book.lines()[0], "w.cert")
	d.write("w.key", key)
	c.t = c.t.Add(lookEvery)
	second := shows(t, id)[0]
	require.NotEqual(t, first.SerialNumber, second.SerialNumber)
	require.Contains(t, book.lines()[1], "are taken")
	d.write("w.ca", []byte("half a fi"))
	c.t = c.t.Add(lookEvery)
	require.NoError(t, id.verify([]*x509.Certificate{first}), "the CA before is in use")
	require.Contains(t, book.lines()[2], "w.ca holds no certificate")
	delete(d.files, "w.ca")
	for range 3 {
		c.t = c.t.Add(lookEvery)
		require.Same(t, second, shows(t, id)[0])
	}
	require.Len(t, book.lines(), 4)
	require.Contains(t, book.lines()[3], "file does not exist")
	d.put(t, "w", ca, c.t)
	c.t = c.t.Add(-time.Hour)
	require.NotSame(t, second, shows(t, id)[0], "the clock was set back")
}

func TestFilesAreLookedAtOnceASecondAtMost(t *testing.T) { synctest.Test(t, lookedAt) }

func lookedAt(t *testing.T) {
	c := &clock{time.Now()}
	d, ca := &disk{}, newAuthority(t, "job", c.t)
	d.put(t, "w", ca, c.t)
	id, _ := d.identity(t, "w", c.now)
	for range 100 {
		c.t = c.t.Add(lookEvery / 50)
		require.NoError(t, id.verify(shows(t, id)))
	}
	require.LessOrEqual(t, d.reads, 3*(1+2))
	require.Greater(t, d.reads, 3)
}

func TestASlowDiskDoesNotKeepAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ca := &disk{}, newAuthority(t, "job", time.Now())
		d.put(t, "w", ca, time.Now())
		id, _ := d.identity(t, "w", time.Now)
		first := shows(t, id)[0]
		d.put(t, "w", ca, time.Now())
		d.mu.Lock()
		d.wait = make(chan struct{})
		d.mu.Unlock()
		time.Sleep(lookEvery)
		for range 5 {
			asked := time.Now()
			require.Same(t, first, shows(t, id)[0])
			require.Equal(t, lookPatience, time.Since(asked))
			time.Sleep(lookEvery)
		}
		d.mu.Lock()
		require.Equal(t, 4, d.reads, "one looks at a time")
		close(d.wait)
		d.mu.Unlock()
		synctest.Wait()
		require.NotSame(t, first, shows(t, id)[0])
	})
}

func TestAnEndedCertificateIsNamedToItsOwner(t *testing.T) { synctest.Test(t, endedOwn) }

func endedOwn(t *testing.T) {
	c := &clock{time.Now()}
	d, ca := &disk{}, newAuthority(t, "job", c.t)
	d.put(t, "w", ca, c.t)
	id, book := d.identity(t, "w", c.now)
	c.t = c.t.Add(leafLife + time.Minute)
	for range 3 {
		_, err := id.certificate()
		require.ErrorIs(t, err, ErrIdentity)
		require.ErrorContains(t, err, "w.cert, ended at")
	}
	require.Len(t, book.lines(), 1)
	require.Contains(t, book.lines()[0], "level=ERROR")
	_, err := identityFromFiles(id.files.IdentityFiles, d.read, c.now)
	require.ErrorContains(t, err, "w.cert, ended at")
	d.put(t, "w", ca, c.t)
	c.t = c.t.Add(lookEvery)
	shows(t, id)
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
	d := &disk{}
	old, fresh := newAuthority(t, "old", time.Now()), newAuthority(t, "new", time.Now())
	d.put(t, "a", old, time.Now())
	d.put(t, "b", old, time.Now())
	a, _ := d.identity(t, "a", now)
	b, _ := d.identity(t, "b", now)
	_, quiet := newLogBook()
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
		func() { d.write("a.ca", bytes.Join([][]byte{old.pem(), fresh.pem()}, nil)) },
		func() { d.write("b.ca", bytes.Join([][]byte{old.pem(), fresh.pem()}, nil)) },
		func() {
			d.put(t, "a", fresh, time.Now())
			d.write("a.ca", bytes.Join([][]byte{old.pem(), fresh.pem()}, nil))
		},
		func() {
			d.put(t, "b", fresh, time.Now())
			d.write("b.ca", bytes.Join([][]byte{old.pem(), fresh.pem()}, nil))
		},
		func() { d.put(t, "a", fresh, time.Now()) },
		func() { d.put(t, "b", fresh, time.Now()) },
	} {
		step()
		later()
		look(a)
		look(b)
		_, err := dial()
		require.NoError(t, err)
	}
	require.NoError(t, first.Err(), "links that exist live on")
	d.put(t, "b", old, time.Now())
	later()
	look(b)
	_, err = dial()
	require.ErrorIs(t, err, ErrIdentity)
}

func TestDiallingWithAnEndedCertificateSaysSo(t *testing.T) {
	leak.Check(t)
	d, ca := &disk{}, newAuthority(t, "job", time.Now())
	c := &clock{time.Now()}
	d.put(t, "b", ca, c.t)
	b, _ := d.identity(t, "b", c.now)
	c.t = c.t.Add(leafLife + time.Minute)
	d.put(t, "a", ca, c.t)
	a, _ := d.identity(t, "a", c.now)
	_, quiet := newLogBook()
	l := listen(t, Config{Identity: a, Logger: quiet})
	n, err := New(Config{Identity: b})
	require.NoError(t, err)
	_, err = n.Dial(t.Context(), l.Addr())
	require.ErrorIs(t, err, ErrIdentity)
	require.ErrorContains(t, err, "b.cert, ended at")
}

func TestAllFilesThatAreNotNamedAreToldAtOnce(t *testing.T) {
	_, err := IdentityFromFiles(IdentityFiles{Cert: "x"})
	require.ErrorContains(t, err, "IdentityFiles.CA is empty")
	require.ErrorContains(t, err, "IdentityFiles.Key is empty")
	require.NotContains(t, err.Error(), "Cert is empty")
}
