package transporttest

import (
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
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Life is how long a member's certificate is valid.
const Life = 48 * time.Hour

// Authority is a CA as a user would have one.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a CA of that name.
func NewAuthority(t testing.TB, name string, now time.Time) *Authority {
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
	return &Authority{cert, key}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// PEM is the CA's file.
func (a *Authority) PEM() []byte { return block("CERTIFICATE", a.cert.Raw) }

// Member makes a certificate and its key. Without URIs it is of that name of the tests' job.
func (a *Authority) Member(t testing.TB, name string, now time.Time, uris ...string) (cert, key []byte) {
	if uris == nil {
		uris = []string{"weft://" + Job + "/" + name}
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(rand.Int64()), Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(Life),
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

// Disk is files in memory; it can be slow.
type Disk struct {
	Mu    sync.Mutex
	Files map[string][]byte
	Reads int
	Wait  chan struct{} // nil, or closed when it may answer
}

// Read gives a file.
func (d *Disk) Read(name string) ([]byte, error) {
	d.Mu.Lock()
	d.Reads++
	wait := d.Wait
	d.Mu.Unlock()
	if wait != nil {
		<-wait
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if b, ok := d.Files[name]; ok {
		return b, nil
	}
	return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
}

// Write makes or replaces a file.
func (d *Disk) Write(name string, b []byte) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if d.Files == nil {
		d.Files = map[string][]byte{}
	}
	d.Files[name] = b
}

// Put writes the files of a member as NAME.ca, NAME.cert and NAME.key.
func (d *Disk) Put(t testing.TB, name string, of *Authority, now time.Time, uris ...string) {
	cert, key := of.Member(t, name, now, uris...)
	d.Write(name+".ca", of.PEM())
	d.Write(name+".cert", cert)
	d.Write(name+".key", key)
}
