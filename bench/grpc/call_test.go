package grpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
)

var lanes = []string{"grpc-tcp", "grpc-unix", "grpc-tls"}

func add(a, b []byte) []byte {
	out := make([]byte, 0, len(a))
	for i := 0; i+4 <= len(a); i += 4 {
		x, y := math.Float32frombits(binary.LittleEndian.Uint32(a[i:])), math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x+y))
	}
	return out
}

func call(c context.Context, conn *grpc.ClientConn, method string, in []byte) (out []byte, err error) {
	err = conn.Invoke(c, "/bench/"+method, &in, &out)
	return out, err
}

// BenchmarkCall is Weft's BenchmarkCall over gRPC. A 3×3 pair is 36 and 36 bytes in one message.
func BenchmarkCall(b *testing.B) {
	for _, lane := range lanes {
		b.Run("lane="+lane, func(b *testing.B) {
			conn := dial(b, lane)
			b.Run("empty", func(b *testing.B) { timed(b, conn, "empty", nil) })
			b.Run("inflight=64", func(b *testing.B) { inFlight(b, conn, 64) })
			b.Run("tensor=3x3", func(b *testing.B) { timed(b, conn, "add", make([]byte, 72)) })
		})
	}
}

// BenchmarkTensor is Weft's BenchmarkTensor over gRPC.
func BenchmarkTensor(b *testing.B) {
	for _, lane := range lanes {
		b.Run("lane="+lane, func(b *testing.B) {
			conn := dial(b, lane)
			for _, mib := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("bytes=%dMiB", mib), func(b *testing.B) {
					timed(b, conn, "numel", make([]byte, mib<<20))
					b.ReportMetric(float64(b.N)*float64(mib<<20)/1e9/b.Elapsed().Seconds(), "GB/s")
				})
			}
		})
	}
}

func timed(b *testing.B, conn *grpc.ClientConn, method string, in []byte) {
	c := b.Context()
	for range 3 {
		_, err := call(c, conn, method, in)
		require(b, err)
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if _, err := call(c, conn, method, in); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[min(len(took)*p/100, len(took)-1)].Nanoseconds())/1e3, fmt.Sprintf("p%d-µs", p))
	}
}

// inFlight keeps so many calls under way: that many goroutines, as gRPC has no other way.
func inFlight(b *testing.B, conn *grpc.ClientConn, depth int) {
	c := b.Context()
	turns := make(chan struct{}, depth)
	var wg sync.WaitGroup
	for range depth {
		wg.Go(func() {
			for range turns {
				if _, err := call(c, conn, "empty", nil); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		turns <- struct{}{}
	}
	b.StartTimer() // the last ones count too
	close(turns)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func TestTheServerDoesTheWork(t *testing.T) {
	for _, lane := range lanes {
		t.Run(lane, func(t *testing.T) {
			conn := dial(t, lane)
			one := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))
			sum, err := call(t.Context(), conn, "add", append(one, one...))
			require(t, err)
			if got := math.Float32frombits(binary.LittleEndian.Uint32(sum)); got != 2 {
				t.Fatal(got)
			}
			n, err := call(t.Context(), conn, "numel", make([]byte, 5<<20))
			require(t, err)
			if string(n) != fmt.Sprint(5<<18) {
				t.Fatalf("%s", n)
			}
		})
	}
}
