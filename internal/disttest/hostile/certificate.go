package hostile

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Files are a job's CA and a member's certificate and key, in PEM.
type Files struct{ CA, Cert, Key string }

// Certificates makes a job's CA, and one member.
func Certificates(dir string, uris ...string) (Files, error) {
	if uris == nil {
		uris = []string{"weft://none/worker0", "weft://none/worker1"}
	}
	f := Files{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	caDER, ca, caKey, err := certificate(nil, nil, nil)
	if err != nil {
		return f, err
	}
	der, _, key, err := certificate(ca, caKey, uris)
	if err != nil {
		return f, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	return f, errors.Join(err, write(f.CA, "CERTIFICATE", caDER), write(f.Cert, "CERTIFICATE", der), write(f.Key, "PRIVATE KEY", raw))
}

func write(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// certificate is signed by ca, or by itself and a CA.
func certificate(ca *x509.Certificate, caKey ed25519.PrivateKey, uris []string) ([]byte, *x509.Certificate, ed25519.PrivateKey, error) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: ca == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, uri := range uris {
		u, err := url.Parse(uri)
		if err != nil {
			return nil, nil, nil, err
		}
		tmpl.URIs = append(tmpl.URIs, u)
	}
	if ca == nil {
		ca, caKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, pub, caKey)
	if err != nil {
		return nil, nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return der, cert, key, err
}

// stranger is a certificate of no job.
var stranger = sync.OnceValues(func() (tls.Certificate, error) {
	der, _, key, err := certificate(nil, nil, nil)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})
