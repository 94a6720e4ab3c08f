package identity

import (
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func TestACertificateBindsTheNameAndTheRankOfItsHolder(t *testing.T) {
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	for _, c := range []struct {
		uris  []string
		name  string
		rank  int
		bound bool
	}{
		{[]string{"weft://job-7/w1"}, "w1", 5, true},
		{[]string{"weft://job-7/w1"}, "w2", 5, false},
		{[]string{"weft://job-7/w1?rank=5"}, "w1", 5, true},
		{[]string{"weft://job-7/w1?rank=5"}, "w1", 6, false},
		{[]string{"weft://job-7/w1?rank=0"}, "w1", 0, true},
		{[]string{"weft://job-7/w1", "weft://job-7/w2?rank=2"}, "w2", 2, true},
		{[]string{"weft://job-8/w2", "weft://job-7/w1"}, "w2", 0, false},
		{[]string{"https://job-7/w2", "weft://job-7/w1"}, "w2", 0, false},
		{[]string{"weft://job-7/w1?rank=-1", "weft://job-7/x"}, "w1", 0, false},
		{[]string{"weft://job-7/w1?rank=1&rank=2", "weft://job-7/x"}, "w1", 1, false},
		{[]string{"weft://job-7/w1?color=red", "weft://job-7/x"}, "w1", 0, false},
	} {
		d.Put(t, "w", ca, time.Now(), c.uris...)
		id, _ := onDisk(t, d, "w", transporttest.Job, time.Now)
		err := id.Vouches(c.name, c.rank)
		if c.bound {
			require.NoError(t, err, c.uris)
			continue
		}
		require.ErrorIs(t, err, wire.ErrIdentity, c.uris)
		require.ErrorContains(t, err, "expected the subjectAltName URI:weft://job-7/"+c.name)
	}
	require.NoError(t, fromToken(t, transporttest.Token(), "a", time.Now).Vouches("b", 7), "a shared token gives all authority to each")
}

func TestACertificateTellsTheIDOfAJobThatNobodyNamedAndItsHoldersNames(t *testing.T) {
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	d.Put(t, "w", ca, time.Now(), "weft://job-7/w1", "weft://job-8/w9", "weft://job-7/w2?rank=2", "weft://job-7/w2?rank=3", "weft:x")
	of := func(job string) (*Identity, error) {
		return fromFiles(Files{CA: "w.ca", Cert: "w.cert", Key: "w.key", Job: job}, d.Read, time.Now)
	}
	for _, unnamed := range []string{"", NoJob} {
		_, err := of(unnamed)
		require.ErrorIs(t, err, wire.ErrIdentity)
		require.ErrorContains(t, err, "the job's id is missing: w.cert is for the job job-7, job-8: give --rdzv-id job-7")
	}
	id, err := of("job-7")
	require.NoError(t, err)
	require.Equal(t, []string{"w1", "w2"}, id.Names())
	require.Empty(t, fromToken(t, transporttest.Token(), "a", time.Now).Names(), "a shared secret binds none")
}

func TestACertificateThatIsNotForTheJobIsRefusedAndTheErrorSaysWhatToPutIn(t *testing.T) {
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	d.Put(t, "good", ca, time.Now())
	good, _ := onDisk(t, d, "good", transporttest.Job, time.Now)
	for _, uri := range []string{"weft://job-8/w", "https://job-7/w", "weft://job-7/", "weft://job-7", "weft:job-7/w", "weft://job-7/w?rank=x"} {
		d.Put(t, "w", ca, time.Now(), uri)
		_, err := fromFiles(Files{CA: "w.ca", Cert: "w.cert", Key: "w.key", Job: transporttest.Job}, d.Read, time.Now)
		require.ErrorIs(t, err, wire.ErrIdentity, uri)
		require.ErrorContains(t, err, "w.cert")
		require.ErrorContains(t, err, "expected one with the subjectAltName URI:weft://job-7/NAME")
		u, err := url.Parse(uri)
		require.NoError(t, err)
		theirs := *shows(t, good)[0]
		theirs.URIs = []*url.URL{u}
		require.ErrorIs(t, good.verify([]*x509.Certificate{&theirs}), wire.ErrIdentity, uri)
	}
}

func TestAnIDThatNoCertificateCanNameIsRefused(t *testing.T) {
	for _, job := range []string{"a/b", "a b", "a?rank=1", "a:1", "ä", "\x00"} {
		_, err := FromFiles(Files{CA: "a", Cert: "b", Key: "c", Job: job})
		require.ErrorContains(t, err, "A-Z a-z 0-9 . _ -", job)
	}
	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	for _, job := range []string{"", "a.b", "A_b-7"} {
		d.Put(t, "w", ca, time.Now(), "weft://"+job+"/w")
		id, _ := onDisk(t, d, "w", job, time.Now)
		require.NoError(t, id.Vouches("w", 0), job)
	}
}
