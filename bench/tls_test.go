package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// BenchmarkTLS is Go's own TLS 1.3 over one TCP connection between the same two processes: a length
// and so many bytes go there, into a buffer that is kept, and one byte comes back. Every iteration
// also sends a tensor of that size over the bulk lane, so that the ratio of the two is of one
// sitting.
func BenchmarkTLS(b *testing.B) {
	w := startJob(b, transport.LaneBulk)
	why := w.net.without(transport.LaneBulk)
	c := w.worker.Context(b.Context())
	conn := dialTLS(b, c)
	for _, mib := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("bytes=%dMiB", mib), func(b *testing.B) {
			t, raw := autodiff.Ones(device.Float32, mib<<18), make([]byte, mib<<20)
			var overTLS, overBulk latencies
			bulk := func() {
				_, err := numel.Call(c, peer, t)
				require.NoError(b, err)
			}
			require.NoError(b, sendTLS(conn, raw))
			if why == "" {
				bulk()
			}
			for b.Loop() {
				start := time.Now()
				require.NoError(b, sendTLS(conn, raw))
				overTLS.add(start)
				if why == "" {
					start = time.Now()
					bulk()
					overBulk.add(start)
				}
			}
			bytes := float64(mib<<20) / 1e3 // per µs, in GB/s
			b.ReportMetric(bytes/overTLS.at(50), "GB/s")
			if why != "" {
				b.Logf("nothing to compare: lane bulk is not used: %s", why)
				return
			}
			b.ReportMetric(bytes/overBulk.at(50), "bulk-GB/s")
			b.ReportMetric(overTLS.at(50)/overBulk.at(50), "bulk/TLS")
		})
	}
}

func sendTLS(conn net.Conn, raw []byte) error {
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(raw)))); err != nil {
		return err
	}
	if _, err := conn.Write(raw); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func dialTLS(b *testing.B, c context.Context) net.Conn { //nolint:revive // b is first in benchmarks
	addr, err := sinkTLS.Call(c, peer, struct{}{})
	require.NoError(b, err)
	conn, err := tls.Dial("tcp", addr, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // it is measured, not trusted
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sinkTLS makes the callee listen for one connection of BenchmarkTLS; the result is where.
var sinkTLS = rpc.Define("tls", func(context.Context, struct{}) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return "", err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		return "", err
	}
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var length [8]byte
		var into []byte
		for {
			if _, err := io.ReadFull(conn, length[:]); err != nil {
				return
			}
			if n := binary.LittleEndian.Uint64(length[:]); n > uint64(len(into)) {
				into = make([]byte, n)
			}
			if _, err := io.ReadFull(conn, into[:binary.LittleEndian.Uint64(length[:])]); err != nil {
				return
			}
			if _, err := conn.Write(length[:1]); err != nil {
				return
			}
		}
	}()
	return l.Addr().String(), nil
})
