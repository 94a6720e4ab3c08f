// Package guess plays a stranger who collects what a job shows to everybody, and tries secrets out
// against it at home.
package guess

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"runtime"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

const (
	chosen = "violin teapot umbrella correct horse battery"
	job    = "job-7"
	dear   = 64 << 20 // bytes of memory for a guess
)

// loot is what a stranger has who knows the job's id, and no secret.
type loot struct {
	leaves []*x509.Certificate // of a worker and of the store
	proof  string              // as the rendezvous shows it to whoever reads there
}

func collect(t *testing.T) (l loot) {
	token, err := transport.StrengthenToken(chosen, job)
	require.NoError(t, err)
	id, err := transport.IdentityFromToken(token, job, "worker0", time.Now)
	require.NoError(t, err)
	srv, err := store.Serve(store.ServerConfig{TLS: id.StoreTLS()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	network, err := transport.New(transport.Config{Identity: id})
	require.NoError(t, err)
	worker, err := network.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, worker.Close()) })

	sum := sha256.Sum256([]byte("weft job id\x00" + job))
	curious := func(protocol string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol + " " + hex.EncodeToString(sum[:16])},
			VerifyConnection: func(s tls.ConnectionState) error { l.leaves = append(l.leaves, s.PeerCertificates...); return nil }}
	}
	if conn, err := tls.Dial("tcp", srv.Addr(), curious("weft-store/1")); err == nil {
		require.NoError(t, conn.Close())
	}
	if conn, err := quic.DialAddr(t.Context(), worker.Addr(), curious(transport.ALPN), nil); err == nil {
		require.NoError(t, conn.CloseWithError(0, ""))
	}
	require.Len(t, l.leaves, 2)
	l.proof, err = agent.Proof(token, job)
	require.NoError(t, err)
	return l
}

// fits tries a key of the job's CA out against all leaves.
func (l loot) fits(seed []byte) bool {
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	for _, leaf := range l.leaves {
		if ed25519.Verify(public, leaf.RawTBSCertificate, leaf.Signature) {
			return true
		}
	}
	return false
}

func TestAStrangersGuessAtASecretCostsAnArgon2id(t *testing.T) {
	l := collect(t)
	found, right := "", []byte(nil)
	for _, guess := range []string{"umbrella teapot violin correct horse battery", chosen} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		seed, err := secret.Derive(guess, job, "CA", ed25519.SeedSize)
		require.NoError(t, err)
		if l.fits(seed) {
			found, right = guess, seed
		}
		runtime.ReadMemStats(&after)
		require.GreaterOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(dear))
		t.Logf("a guess took %v", time.Since(began))
	}
	require.Equal(t, chosen, found, "or the test tries nothing out")
	l.nothingFaster(t, ed25519.NewKeyFromSeed(right).Public().(ed25519.PublicKey))
}

// nothingFaster looks for what was enough before: a hash of the CA's key in a leaf, keys and proofs
// that no argon2id delays.
func (l loot) nothingFaster(t *testing.T, public ed25519.PublicKey) {
	hash := sha256.Sum256(public)
	for _, leaf := range l.leaves {
		require.Empty(t, leaf.AuthorityKeyId)
		require.NotContains(t, string(leaf.Raw), string(hash[:8]), "a hash of the CA's key")
		require.NotContains(t, string(leaf.Raw), string(public[:8]), "the CA's key")
	}
	for _, info := range []string{"weft/1 job CA", "weft CA\x00" + job, "weft CA\x00"} {
		fast, err := hkdf.Key(sha256.New, []byte(chosen), nil, info, ed25519.SeedSize)
		require.NoError(t, err)
		require.False(t, l.fits(fast), "a key of the CA without argon2id")
	}
	for _, text := range []string{"weft rendezvous " + chosen, "weft rendezvous\x00" + job + chosen, chosen} {
		digest := sha256.Sum256([]byte(text))
		require.NotEqual(t, l.proof, hex.EncodeToString(digest[:4]))
	}
}

func BenchmarkAGuess(b *testing.B) {
	for b.Loop() {
		if _, err := secret.Derive(chosen, job, "CA", ed25519.SeedSize); err != nil {
			b.Fatal(err)
		}
	}
}
