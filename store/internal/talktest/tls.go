package talktest

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Identity makes the TLS configurations of a server and of a client that trusts it.
func Identity(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	// Times of which synctest's clock, that begins in 2000, sees no end either.
	from := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"store"}, NotBefore: time.Unix(0, 0),
		NotAfter: time.Unix(1<<33, 0), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, from, from, public, private)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}},
		&tls.Config{RootCAs: pool, ServerName: "store"}
}
