package identity

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/transport/internal/wire"
)

const (
	leafLife     = 48 * time.Hour // renewed when half is spent, so that what is shown has a day to go
	leafBackdate = time.Hour      // clocks of workers differ
)

// Identity proves that a worker belongs to a job, and checks that its peers do: both ends of a link
// show a certificate of the job's CA, and speak for the same job's id. Names of hosts play no part.
// It is safe for concurrent use.
type Identity struct {
	job   string
	now   func() time.Time
	mint  func(now time.Time) (*tls.Certificate, error) // nil when the certificate is the user's own
	files *loadedFiles                                  // nil when it is not
	marks Marks

	mu    sync.Mutex
	roots *x509.CertPool
	leaf  *tls.Certificate
}

// NewToken makes a job's token: 256 random bits, with a checksum that finds typing errors.
func NewToken() string { return secret.New() }

// StrengthenToken makes a token of a job's secret. A token of [NewToken] stays what it is. Any
// other secret must be worth 50 bits, and goes through argon2id with the job's id: 64 MiB of memory
// and more than 100 ms, which each guess of an attacker costs too. A letter of a word is worth 1.5
// bits, any other character the binary logarithm of how many different characters the secret has; a
// character counts nothing where it follows the one before it for the second time ("abab"), or goes
// on as the two before it did ("1234", "ccc"). All members of a job make the same token of the same
// secret; who has it needs no argon2id. White space around a secret does not count.
func StrengthenToken(token, job string) (string, error) {
	strong, err := secret.Strengthen(token, job)
	if err != nil {
		return "", fmt.Errorf("transport: %w", err)
	}
	return strong, nil
}

// FromToken derives the CA of a job from its token and its id, the same at every worker, and mints
// certificates for the worker called name. Any bytes may be an id, also none. A secret that is no
// token goes through [StrengthenToken] first. now is time.Now (so is nil), or a test's.
func FromToken(token, job, name string, now func() time.Time) (*Identity, error) {
	if now == nil {
		now = time.Now
	}
	const markKey = sha256.Size
	seeds, err := secret.Derive(token, job, "CA", ed25519.SeedSize+markKey)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seeds[:ed25519.SeedSize])
	ca, err := jobCA(key)
	if err != nil {
		return nil, fmt.Errorf("transport: make the job's CA: %w", err)
	}
	id := &Identity{job: job, roots: x509.NewCertPool(), now: now, marks: Marks{seeds[ed25519.SeedSize:]}}
	id.roots.AddCert(ca)
	id.mint = func(now time.Time) (*tls.Certificate, error) { return mintLeaf(ca, key, name, now) }
	if _, err := id.certificate(); err != nil {
		return nil, err
	}
	return id, nil
}

// jobCA is the same certificate, byte for byte, at every worker that has the key.
func jobCA(key ed25519.PrivateKey) (*x509.Certificate, error) {
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "weft job"},
		NotBefore:             time.Unix(0, 0),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:                  true,
		MaxPathLenZero:        true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key) // Ed25519 signs without chance
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	ca.SubjectKeyId = nil // a hash of the CA's key, which leaves would show to anybody who asks
	return ca, nil
}

// mintLeaf makes a short-lived certificate with a key of its own.
func mintLeaf(ca *x509.Certificate, caKey crypto.Signer, name string, now time.Time) (*tls.Certificate, error) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("transport: make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("transport: make a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-leafBackdate),
		NotAfter:     now.Add(leafLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, pub, caKey)
	if err != nil {
		return nil, fmt.Errorf("transport: make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("transport: make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// certificate is what this worker shows; a minted one is renewed when half its life is over, or the
// clock was set back.
func (id *Identity) certificate() (*tls.Certificate, error) {
	id.refresh()
	id.mu.Lock()
	defer id.mu.Unlock()
	now := id.now()
	if id.files != nil {
		return id.files.own(id.leaf, now)
	}
	if id.leaf != nil && now.Before(id.leaf.Leaf.NotAfter.Add(-leafLife/2)) && now.After(id.leaf.Leaf.NotBefore) {
		return id.leaf, nil
	}
	leaf, err := id.mint(now)
	if err != nil {
		return nil, err
	}
	id.leaf = leaf
	return leaf, nil
}

// verify says whether a peer's chain leads to the job's CA, and where that is the user's own
// whether it is for this job. The error wraps ErrIdentity.
func (id *Identity) verify(chain []*x509.Certificate) error {
	id.refresh()
	id.mu.Lock()
	roots := id.roots
	id.mu.Unlock()
	if id.files == nil {
		return verifyChain(chain, roots, id.now(), "the tokens, and the jobs' ids")
	}
	if err := verifyChain(chain, roots, id.now(), "the CA files"); err != nil {
		return err
	}
	return checkJob(chain[0], id.job)
}

// verifyChain verifies a chain; compare is what differs where it is of another CA.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, now time.Time, compare string) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: the peer shows no certificate", wire.ErrIdentity)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // both ends dial and listen: membership is what counts
	})
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: the certificate of %q is not valid at %v; compare the clocks (%w)", wire.ErrIdentity, chain[0].Subject.CommonName, now.UTC().Format(time.RFC3339), err)
	default:
		return fmt.Errorf("%w: the certificate of %q is not of this job's CA; compare %s (%w)", wire.ErrIdentity, chain[0].Subject.CommonName, compare, err)
	}
}

// TLSConfig is for both roles: each end shows its certificate and verifies the other's, and both
// speak one of the protocols for this job.
func TLSConfig(id *Identity, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: id.forJob(protocols),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return id.certificate()
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return id.certificate()
		},
		ClientAuth: tls.RequireAnyClientCert,
		// crypto/tls can only check names of hosts, which workers do not have. VerifyConnection
		// checks the chain in both roles, for every connection.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.NegotiatedProtocol == "" { // crypto/tls lets one pass over TCP that names none
				return fmt.Errorf("%w: the peer names no protocol: %s", wire.ErrIdentity, anotherJob)
			}
			return id.verify(s.PeerCertificates)
		},
	}
}
