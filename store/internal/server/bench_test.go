package server

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/talktest"
)

// echo is the least that a server can do.
func echo(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				var buf [2048]byte
				for {
					n, err := nc.Read(buf[:])
					if err == nil {
						_, err = nc.Write(buf[:n])
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func benchServer(b *testing.B) *Server {
	s, err := Serve(Config{})
	require.NoError(b, err)
	b.Cleanup(func() { s.Close() })
	return s
}

// trip asks and reads an answer of so many bytes.
func trip(b *testing.B, nc net.Conn, ask []byte, answer int) {
	var buf [64]byte
	if _, err := nc.Write(ask); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(nc, buf[:answer]); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkServerTrip is a round trip of one client, beside one that is only echoed.
func BenchmarkServerTrip(b *testing.B) {
	floor, addr := echo(b), benchServer(b).Addr()
	for _, x := range []struct {
		name, addr, before, ask string
		answer                  int // bytes; before is answered by one
	}{
		{"echo", floor, "", "03 02 00*7 '/n' 01 00*7", 19},
		{"add", addr, "", "03 02 00*7 '/n' 01 00*7", 8},
		{"compare_set", addr, "", "01 02 00*7 '/c' 00*8 00*8", 8},
		{"wait", addr, "", "05 01 00*7 02 00*7 '/n'", 1},
		{"get", addr, "00 02 00*7 '/k' 08 00*7 '12345678' 04 00*8", "02 02 00*7 '/k'", 16},
		{"set-own", addr, talktest.OwnMode, "01 02 00*7 '/k' 08 00*7 '12345678'", 1},
		{"get-own", addr, talktest.Hello + " 01 02 00*7 '/k' 08 00*7 '12345678' 05 01 00*7 06 00*7 'weft/1'", "40 01 00*7 02 00*7 '/k'", 17},
	} {
		b.Run("op="+x.name, func(b *testing.B) {
			nc, err := net.Dial("tcp", x.addr)
			require.NoError(b, err)
			defer nc.Close()
			ask := talktest.Unhex(b, x.ask)
			if x.before != "" {
				trip(b, nc, talktest.Unhex(b, x.before), 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				trip(b, nc, ask, x.answer)
			}
		})
	}
}

// BenchmarkServerPipelined is what the server does itself: commands come by the hundred.
func BenchmarkServerPipelined(b *testing.B) {
	nc, err := net.Dial("tcp", benchServer(b).Addr())
	require.NoError(b, err)
	defer nc.Close()
	const many = 100
	var asks []byte
	for range many {
		asks = append(asks, talktest.Unhex(b, "03 02 00*7 '/n' 01 00*7")...)
	}
	answers := make([]byte, 8*many)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(asks); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, answers); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/many, "ns/command")
}

// BenchmarkServerWake wakes all who wait for one key.
func BenchmarkServerWake(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			s := benchServer(b)
			waiters := make([]net.Conn, n)
			for i := range waiters {
				nc, err := net.Dial("tcp", s.Addr())
				require.NoError(b, err)
				defer nc.Close()
				waiters[i] = nc
			}
			nc, err := net.Dial("tcp", s.Addr())
			require.NoError(b, err)
			defer nc.Close()
			wait, set, del := talktest.Unhex(b, "05 01 00*7 02 00*7 '/k'"), talktest.Unhex(b, "00 02 00*7 '/k' 00*8"), talktest.Unhex(b, "08 02 00*7 '/k'")
			var took time.Duration
			for b.Loop() {
				for _, w := range waiters {
					if _, err := w.Write(wait); err != nil {
						b.Fatal(err)
					}
				}
				for s.Stats().Waiters < n {
					runtime.Gosched()
				}
				start := time.Now()
				if _, err := nc.Write(set); err != nil {
					b.Fatal(err)
				}
				for _, w := range waiters {
					if _, err := io.ReadFull(w, make([]byte, 1)); err != nil {
						b.Fatal(err)
					}
				}
				took += time.Since(start)
				trip(b, nc, del, 8)
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs/wake")
		})
	}
}

// BenchmarkServerWaiting is the memory of the server that one waiting connection costs.
func BenchmarkServerWaiting(b *testing.B) {
	const n = 2000
	s := benchServer(b)
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	clients := make([]net.Conn, n)
	before := memory()
	for i := range clients {
		nc, err := net.Dial("tcp", s.Addr())
		require.NoError(b, err)
		defer nc.Close()
		_, err = nc.Write(talktest.Unhex(b, "05 01 00*7 02 00*7 '/k'"))
		require.NoError(b, err)
		clients[i] = nc
	}
	for s.Stats().Waiters < n {
		runtime.Gosched()
	}
	each := float64(memory()-before) / n
	for b.Loop() { //nolint:revive // only the memory matters
	}
	b.ReportMetric(each, "B/waiter")
}
