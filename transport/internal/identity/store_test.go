package identity

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// shake is a handshake, and a byte each way: with TLS 1.3 a client hears only then that it was
// refused.
func shake(t *testing.T, server, client *tls.Config) (atServer, atClient error) {
	leak.Check(t)
	here, there := transporttest.UnixPair(t) // it keeps what is not read yet: who refuses does so while the other still writes
	ended := make(chan error)
	go func() {
		conn := tls.Server(there, server)
		err := exchangeByte(conn)
		there.Close()
		ended <- err
	}()
	atClient = exchangeByte(tls.Client(here, client))
	here.Close()
	return <-ended, atClient
}

func exchangeByte(conn *tls.Conn) error {
	if err := conn.Handshake(); err != nil {
		return err
	}
	sent := make(chan error)
	go func() {
		_, err := conn.Write([]byte{1})
		sent <- err
	}()
	_, err := conn.Read(make([]byte, 1))
	if err != nil {
		_ = conn.NetConn().Close()
	}
	if errSent := <-sent; err == nil {
		err = errSent
	}
	return err
}

func TestAStoreAndItsClientsAreOfOneJob(t *testing.T) {
	a, b := fromToken(t, transporttest.Token(), "the store", time.Now), fromToken(t, transporttest.Token(), "a client", time.Now)
	atServer, atClient := shake(t, a.StoreTLS(), b.StoreTLS())
	require.NoError(t, atServer)
	require.NoError(t, atClient)

	d, ca := &transporttest.Disk{}, transporttest.NewAuthority(t, "job", time.Now())
	d.Put(t, "s", ca, time.Now())
	d.Put(t, "c", ca, time.Now())
	s, _ := onDisk(t, d, "s", transporttest.Job, time.Now)
	c, _ := onDisk(t, d, "c", transporttest.Job, time.Now)
	atServer, atClient = shake(t, s.StoreTLS(), c.StoreTLS())
	require.NoError(t, atServer)
	require.NoError(t, atClient)
}

func TestAStoreRefusesAStrangerWithAnotherToken(t *testing.T) {
	a, b := fromToken(t, transporttest.Token(), "the store", time.Now), fromToken(t, transporttest.OtherToken(), "a stranger", time.Now)
	careless := b.StoreTLS()
	careless.VerifyConnection = nil // so that it is not the stranger who ends it
	atServer, atClient := shake(t, a.StoreTLS(), careless)
	require.ErrorIs(t, atServer, wire.ErrIdentity)
	require.ErrorContains(t, atServer, `"a stranger"`)
	require.ErrorContains(t, atClient, "bad certificate")

	careless.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	atServer, _ = shake(t, a.StoreTLS(), careless)
	require.ErrorContains(t, atServer, "client didn't provide a certificate")
}

func TestAClientRefusesTheStoreOfAStranger(t *testing.T) {
	a, b := fromToken(t, transporttest.OtherToken(), "a stranger", time.Now), fromToken(t, transporttest.Token(), "a client", time.Now)
	careless := a.StoreTLS()
	careless.VerifyConnection, careless.ClientAuth = nil, tls.NoClientCert
	_, atClient := shake(t, careless, b.StoreTLS())
	require.ErrorIs(t, atClient, wire.ErrIdentity)
	require.ErrorContains(t, atClient, `"a stranger"`)
}

func TestALinkAndAStoreAreNotTakenForEachOther(t *testing.T) {
	id := fromToken(t, transporttest.Token(), "a", time.Now)
	for _, ends := range [][2]*tls.Config{{id.StoreTLS(), TLSConfig(id, wire.ALPN)}, {TLSConfig(id, wire.ALPN), id.StoreTLS()}} {
		atServer, atClient := shake(t, ends[0], ends[1])
		require.ErrorContains(t, atServer, "application protocol")
		require.ErrorContains(t, atClient, "no application protocol")
	}
}

func TestWhoNamesNoProtocolIsRefused(t *testing.T) {
	id := fromToken(t, transporttest.Token(), "a", time.Now)
	silent := id.StoreTLS()
	silent.NextProtos, silent.VerifyConnection = nil, nil
	atServer, _ := shake(t, id.StoreTLS(), silent)
	require.ErrorIs(t, atServer, wire.ErrIdentity)
	require.ErrorContains(t, atServer, "names no protocol")
	_, atClient := shake(t, silent, id.StoreTLS())
	require.ErrorIs(t, atClient, wire.ErrIdentity)
}
