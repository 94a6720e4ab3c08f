package identity

import (
	"crypto"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// clock is a time that a test sets.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func fromToken(t *testing.T, token, name string, now func() time.Time) *Identity {
	id, err := FromToken(token, transporttest.Job, name, now)
	require.NoError(t, err)
	return id
}

// shows is what a peer of that identity sees.
func shows(t *testing.T, id *Identity) []*x509.Certificate {
	pair, err := id.certificate()
	require.NoError(t, err)
	return []*x509.Certificate{pair.Leaf}
}

func TestWorkersWithOneTokenTrustEachOther(t *testing.T) {
	a, b := fromToken(t, transporttest.Token(), "a", time.Now), fromToken(t, " "+transporttest.Token()+"\n", "b", time.Now)
	require.NoError(t, a.verify(shows(t, b)))
	require.NoError(t, b.verify(shows(t, a)))
	require.NotEqual(t, shows(t, a)[0].PublicKey, shows(t, b)[0].PublicKey)
}

func TestAnotherTokenIsRefused(t *testing.T) {
	a, b := fromToken(t, transporttest.Token(), "a", time.Now), fromToken(t, transporttest.OtherToken(), "b", time.Now)
	err := a.verify(shows(t, b))
	require.ErrorIs(t, err, wire.ErrIdentity)
	require.ErrorContains(t, err, `"b"`)
	require.ErrorIs(t, a.verify(nil), wire.ErrIdentity)
}

func TestALeafCannotSignAnotherLeaf(t *testing.T) {
	a := fromToken(t, transporttest.Token(), "a", time.Now)
	pair, err := a.certificate()
	require.NoError(t, err)
	forged, err := mintLeaf(pair.Leaf, pair.PrivateKey.(crypto.Signer), "forged", time.Now())
	require.NoError(t, err)
	require.ErrorIs(t, a.verify([]*x509.Certificate{forged.Leaf, pair.Leaf}), wire.ErrIdentity)
}

func TestAWeakOrMistypedTokenIsRefused(t *testing.T) {
	_, err := FromToken("0000000000000000", transporttest.Job, "a", time.Now)
	require.ErrorContains(t, err, "too weak")
	require.ErrorContains(t, err, `"weft token" makes a good one`)
	_, err = StrengthenToken("0000000000000000", transporttest.Job)
	require.ErrorContains(t, err, "too weak")
	_, err = FromToken(transporttest.Token()[:len(transporttest.Token())-1], transporttest.Job, "a", time.Now)
	require.ErrorContains(t, err, "mistyped")
}

func TestASecretAndTheTokenMadeOfItAreOneIdentity(t *testing.T) {
	const own = "violin teapot umbrella correct horse battery"
	strong, err := StrengthenToken(own, transporttest.Job)
	require.NoError(t, err)
	require.NotEqual(t, own, strong)
	a, b := fromToken(t, own, "a", time.Now), fromToken(t, strong, "b", time.Now)
	require.NoError(t, a.verify(shows(t, b)))
	require.NoError(t, b.verify(shows(t, a)))
	strong, err = StrengthenToken(transporttest.Token(), transporttest.Job)
	require.NoError(t, err)
	require.Equal(t, transporttest.Token(), strong)
}

func TestNewTokensDifferAndServe(t *testing.T) {
	require.NotEqual(t, NewToken(), NewToken())
	fromToken(t, NewToken(), "a", time.Now)
}

// A leaf is shown to everybody who asks.
func TestALeafHoldsNoHashOfAKey(t *testing.T) {
	leaf := shows(t, fromToken(t, transporttest.Token(), "a", time.Now))[0]
	require.Empty(t, leaf.AuthorityKeyId)
	require.Empty(t, leaf.SubjectKeyId)
	require.Equal(t, "CN=weft job", leaf.Issuer.String())
}

func TestTheIdentityOfAnotherJobWithTheSameTokenIsRefused(t *testing.T) {
	a := fromToken(t, transporttest.Token(), "a", time.Now)
	for _, job := range []string{"", "job-8", transporttest.Job + "\x00", strings.Repeat("\xff/", 1000)} {
		b, err := FromToken(transporttest.Token(), job, "b", time.Now)
		require.NoError(t, err)
		require.ErrorIs(t, a.verify(shows(t, b)), wire.ErrIdentity)
		require.ErrorIs(t, b.verify(shows(t, a)), wire.ErrIdentity)
	}
}

func TestALeafIsRenewedWhenHalfSpent(t *testing.T) {
	c := &clock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	a := fromToken(t, transporttest.Token(), "a", c.now)
	first := shows(t, a)[0]
	require.GreaterOrEqual(t, first.NotAfter.Sub(c.t), 24*time.Hour)
	require.True(t, first.NotBefore.Before(c.t), "clocks differ")
	c.t = c.t.Add(leafLife/2 - time.Second)
	require.Same(t, first, shows(t, a)[0])
	c.t = c.t.Add(2 * time.Second)
	second := shows(t, a)[0]
	require.NotEqual(t, first.SerialNumber, second.SerialNumber)
	require.NoError(t, a.verify([]*x509.Certificate{first}), "the old one is good for as long again")
	c.t = first.NotAfter.Add(time.Second)
	err := a.verify([]*x509.Certificate{first})
	require.ErrorIs(t, err, wire.ErrIdentity)
	require.ErrorContains(t, err, "clocks")
	c.t = first.NotBefore.Add(-time.Hour)
	require.NoError(t, a.verify(shows(t, a)), "after the clock was set back")
}
