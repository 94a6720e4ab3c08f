package bulk

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

var bulkSizes = []int{256 << 10, 1 << 20, 16 << 20}

// BenchmarkBulk moves tensors one at a time over the lane's connections; BenchmarkTLSStream is what
// there is to reach.
func BenchmarkBulk(b *testing.B) {
	for _, stripes := range []int{1, 2, 4} {
		for _, n := range bulkSizes {
			b.Run(fmt.Sprintf("stripes=%d/bytes=%d", stripes, n), func(b *testing.B) {
				p := join(b, overTLS(b, stripes))
				x := tensorOn(b, device.Host(), n/4)
				b.SetBytes(int64(n))
				b.ResetTimer()
				for b.Loop() {
					got := []wire.Tensor{{Dtype: x.Dtype, Shape: x.Shape}}
					sent, fetched := p.move(b.Context(), 0, []wire.Tensor{x}, got, nil)
					require.NoError(b, sent)
					require.NoError(b, fetched)
					lane.ReleaseAll(got)
				}
			})
		}
	}
}

// BenchmarkTLSStream sends as many bytes over one TLS connection, into a buffer, and waits for a
// byte in answer.
func BenchmarkTLSStream(b *testing.B) {
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(b, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", identity.TLSConfig(id, wire.ALPN))
	require.NoError(b, err)
	defer ln.Close()
	for _, n := range bulkSizes {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			accepted := make(chan net.Conn, 1)
			go func() {
				conn, _ := ln.Accept()
				accepted <- conn
				buf := make([]byte, n)
				for {
					if _, err := io.ReadFull(conn, buf); err != nil {
						return
					}
					if _, err := conn.Write(buf[:1]); err != nil {
						return
					}
				}
			}()
			conn, err := tls.Dial("tcp", ln.Addr().String(), identity.TLSConfig(id, wire.ALPN))
			require.NoError(b, err)
			defer conn.Close()
			defer func() { (<-accepted).Close() }()
			buf := make([]byte, n)
			b.SetBytes(int64(n))
			b.ResetTimer()
			for b.Loop() {
				_, err := conn.Write(buf)
				require.NoError(b, err)
				_, err = io.ReadFull(conn, buf[:1])
				require.NoError(b, err)
			}
		})
	}
}
