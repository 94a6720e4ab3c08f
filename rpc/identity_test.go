package rpc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// certificates makes a CA and a member's files.
func certificates(t *testing.T) transport.IdentityFiles {
	t.Helper()
	f, err := hostile.Certificates(t.TempDir())
	require.NoError(t, err)
	return transport.IdentityFiles{CA: f.CA, Cert: f.Cert, Key: f.Key}
}

func setCertificates(t *testing.T, f transport.IdentityFiles) {
	t.Helper()
	t.Setenv(CAVariable, f.CA)
	t.Setenv(CertVariable, f.Cert)
	t.Setenv(KeyVariable, f.Key)
}

func TestWorkersWithTheUsersCertificatesJoinAndOthersAreRefused(t *testing.T) {
	leak.Check(t)
	t.Setenv("WEFT_TOKEN", testToken) // as weft run does; it must not open another way in
	st, files := memory(t), certificates(t)
	setCertificates(t, files)
	type joined struct {
		w   *Worker
		err error
	}
	leader := make(chan joined, 1)
	cfg := Config{Store: st, WorldSize: 2, Functions: []Function{double}, JoinTimeout: time.Minute, Logger: discard}
	byEnv := cfg
	go func() {
		w, err := Join(t.Context(), byEnv)
		leader <- joined{w, err}
	}()
	cfg.Rank = 1
	cfg.Certificates = certificates(t)
	_, err := Join(t.Context(), cfg)
	require.ErrorIs(t, err, transport.ErrIdentity, "another CA")
	require.ErrorContains(t, err, "compare the CA files")
	cfg.Certificates, cfg.Token = transport.IdentityFiles{}, testToken
	_, err = Join(t.Context(), cfg)
	require.ErrorIs(t, err, transport.ErrIdentity, "the token of the same job's environment")
	cfg.Certificates, cfg.Token = files, ""
	w1, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	w0 := <-leader
	require.NoError(t, w0.err)
	n, err := double.Call(w1.Context(t.Context()), "worker0", 21)
	require.NoError(t, err)
	require.Equal(t, 42, n)
	leaveAll(t, []*Worker{w0.w, w1})
}

func TestAWorkerTakesTheSecretFromAFileThatAVariableNames(t *testing.T) {
	leak.Check(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(testToken+"\n"), 0o600))
	t.Setenv("WEFT_TOKEN", "")
	t.Setenv("WEFT_TOKEN_FILE", file)
	w, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Logger: discard})
	require.NoError(t, err)
	leaveAll(t, []*Worker{w})
	require.True(t, (&prepared{}).identified())
	_, err = transport.IdentityFromEnv("me", discard)
	require.NoError(t, err)
	t.Setenv("WEFT_TOKEN", testToken)
	_, err = Join(t.Context(), Config{Store: memory(t), WorldSize: 1})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "$WEFT_TOKEN and $WEFT_TOKEN_FILE are both set")
	_, err = transport.IdentityFromEnv("me", discard)
	require.ErrorContains(t, err, "$WEFT_TOKEN and $WEFT_TOKEN_FILE are both set")
	setCertificates(t, certificates(t)) // they come before both
	w, err = Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Logger: discard})
	require.NoError(t, err)
	leaveAll(t, []*Worker{w})
}

func TestBadCertificatesAreReportedWithAllElse(t *testing.T) {
	t.Setenv("WEFT_TOKEN", testToken)
	cfg := Config{Store: memory(t), WorldSize: 1, Token: testToken, Listen: "nohost", Certificates: transport.IdentityFiles{CA: "x"}}
	_, err := Join(t.Context(), cfg)
	require.ErrorIs(t, err, ErrConfig)
	for _, part := range []string{"both a token and certificates", "IdentityFiles.Cert is empty", "IdentityFiles.Key is empty", `listen at "nohost"`} {
		require.ErrorContains(t, err, part)
	}
	cfg = Config{Store: cfg.Store, WorldSize: 1, Certificates: certificates(t)}
	cfg.Certificates.CA = certificates(t).CA
	_, err = Join(t.Context(), cfg)
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorIs(t, err, transport.ErrIdentity, "peers would refuse it")
	setCertificates(t, transport.IdentityFiles{Cert: "c.pem"})
	_, err = Join(t.Context(), Config{Store: cfg.Store, WorldSize: 1})
	require.ErrorIs(t, err, ErrConfig, "the token does not stand in")
	require.ErrorContains(t, err, `$WEFT_CA is "", $WEFT_CERT "c.pem", $WEFT_KEY ""`)
}

// blind cannot read one key, and notes who wants another.
type blind struct {
	store.Store
	cannot, notes string
	noted         atomic.Int32
}

var errBlind = errors.New("the disk is gone")

func (b *blind) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	switch key {
	case b.cannot:
		return nil, errBlind
	case b.notes:
		b.noted.Add(1)
	}
	return b.Store.CompareSet(c, key, expected, desired)
}

func TestRankZeroThatCannotReadWhoIsThereClaimsNothing(t *testing.T) {
	leak.Check(t)
	st := &blind{Store: memory(t), cannot: membership.RankKey(1), notes: membership.RankKey(0)}
	require.NoError(t, st.Set(t.Context(), membership.RankKey(0), []byte(membership.Going))) // it was there before
	_, err := Join(t.Context(), Config{Store: st, WorldSize: 2, Token: testToken, JoinTimeout: time.Minute, Logger: discard})
	require.ErrorIs(t, err, errBlind)
	require.Zero(t, st.noted.Load(), "claims of its rank")
}
