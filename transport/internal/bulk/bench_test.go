//go:build unix

package bulk

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// BenchmarkBulk moves a tensor over the lane's stripes, and as many bytes over one connection of
// Go's own TLS, one after the other in each iteration. It gives each way's speed and the processor
// time of both ends, which are in this process, and the ratio of the medians. Rows with more
// processors than the machine has say nothing.
func BenchmarkBulk(b *testing.B) {
	for _, stripes := range []int{1, 2, 4} {
		for _, procs := range []int{1, 2, 4, 8, 16} {
			if procs > 2 && procs > runtime.NumCPU() {
				continue
			}
			for _, mib := range []int{1, 16} {
				b.Run(fmt.Sprintf("stripes=%d/procs=%d/bytes=%dMiB", stripes, procs, mib), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					besideTLS(b, stripes, mib<<20)
				})
			}
		}
	}
}

func besideTLS(b *testing.B, stripes, bytes int) {
	p := join(b, overTLS(b, stripes))
	x := tensorOn(b, device.Host(), bytes/4)
	defer x.Buf.Release() //nolint:errcheck // the one reference
	stream := tlsStream(b, bytes)
	ways := [2]func(){
		func() {
			got := []wire.Tensor{{Dtype: x.Dtype, Shape: x.Shape}}
			sent, fetched := p.move(b.Context(), 0, []wire.Tensor{x}, got, nil)
			require.NoError(b, sent)
			require.NoError(b, fetched)
			lane.ReleaseAll(got)
		},
		func() { require.NoError(b, stream()) },
	}
	var took, spent [2][]float64
	for b.Loop() {
		for i, send := range ways {
			start, used := time.Now(), processorTime()
			send()
			took[i] = append(took[i], time.Since(start).Seconds())
			spent[i] = append(spent[i], (processorTime() - used).Seconds())
		}
	}
	gb := float64(bytes) / 1e9
	for i, name := range []string{"bulk", "TLS"} {
		b.ReportMetric(gb/median(took[i]), name+"-GB/s")
		b.ReportMetric(median(spent[i])/gb, name+"-s/GB")
	}
	b.ReportMetric(median(took[1])/median(took[0]), "bulk/TLS")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tlsStream sends so many bytes over a connection of Go's own, into a buffer that is kept, and
// waits for a byte in answer.
func tlsStream(b *testing.B, bytes int) func() error {
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(b, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", identity.TLSConfig(id, wire.ALPN))
	require.NoError(b, err)
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := ln.Accept()
		accepted <- conn
		buf := make([]byte, bytes)
		for err == nil {
			if _, err = io.ReadFull(conn, buf); err == nil {
				_, err = conn.Write(buf[:1])
			}
		}
	}()
	conn, err := tls.Dial("tcp", ln.Addr().String(), identity.TLSConfig(id, wire.ALPN))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(); _ = (<-accepted).Close() })
	buf := make([]byte, bytes)
	return func() error {
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, buf[:1])
		return err
	}
}
