package process

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// besieged is a world of two whose worker1 listens where a third process, the attacker, knows it.
// The two talk over QUIC, through the same socket that is attacked.
type besieged struct {
	*town
	attacker *proctest.Proc
	attack   hostile.Attack // but for its kind and time
}

func besiege(t testing.TB) *besieged {
	t.Helper()
	files, err := hostile.Certificates(t.TempDir())
	require.NoError(t, err)
	to := settle(t, workload.Place{Size: 2, Files: files, Listen: free(t), Lanes: []string{transport.LaneQUIC}})
	return &besieged{to, proctest.Start(t, nil), hostile.Attack{Addr: to.place.Listen, Cert: files.Cert, Key: files.Key}}
}

// free is an address that nobody listened at a moment ago.
func free(t testing.TB) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer conn.Close()
	return conn.LocalAddr().String()
}

// during has the attacker attack while fn runs, which is to end when c does.
func (b *besieged) during(t testing.TB, kind string, share float64, d time.Duration, fn func(c context.Context)) hostile.Report {
	t.Helper()
	a := b.attack
	a.Kind, a.Share, a.For = kind, share, d
	c, cancel := context.WithCancel(t.Context())
	defer cancel()
	var report hostile.Report
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- b.attacker.Ask(t.Context(), "attack", a, &report)
	}()
	fn(c)
	require.NoError(t, <-done)
	return report
}

func TestAHostileClientHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	for _, kind := range hostile.Kinds() {
		t.Run("attack="+kind, func(t *testing.T) {
			t.Parallel()
			b := besiege(t)
			mix := workload.Mix{W: b.Worker, Rand: mathrand.New(mathrand.NewPCG(1, 0)), MaxElems: 1 << 14}
			for range 20 { // so that pools are filled
				require.NoError(t, mix.Step(t.Context()))
			}
			var before, after resources
			require.NoError(t, b.procs[1].Ask(t.Context(), "look", nil, &before))
			report := b.during(t, kind, 0, time.Second, func(c context.Context) {
				for c.Err() == nil {
					require.NoError(t, mix.Step(t.Context()))
				}
			})
			require.Positive(t, report.Times)
			t.Logf("attacked %d times; the last ended with %q", report.Times, report.Err)
			require.NotContains(t, report.Err, "a stranger got in")
			require.Eventually(t, func() bool {
				runtime.GC() // what lies in worker1's memory and is nobody's here goes back to it
				require.NoError(t, b.procs[1].Ask(t.Context(), "look", nil, &after))
				return after.leavesNothing(before) && after.Goroutines <= before.Goroutines+10 && after.RSS < before.RSS+256<<20
			}, 15*time.Second, 50*time.Millisecond, "before %v, after %v", before, printed{&after})
			require.NoError(t, mix.Step(t.Context()))
		})
	}
}

// printed prints what is there when it is printed.
type printed struct{ r *resources }

func (p printed) String() string { return p.r.String() }

// BenchmarkCallUnderAttack compares calls, 64 in flight, to a worker under attack with calls while
// the attacker burns as much of the processor as the attack took it, and leaves the worker alone.
// One iteration is half a second of each, in turns. ratio is calls/s under attack by calls/s
// without: 0.8 and more is what is promised.
func BenchmarkCallUnderAttack(b *testing.B) {
	for _, kind := range hostile.Kinds() {
		b.Run("attack="+kind, func(b *testing.B) {
			s := besiege(b)
			const turn = 500 * time.Millisecond
			s.rate(b, hostile.Burn, 0, turn) // warm
			var under, alone float64
			var report hostile.Report
			for b.Loop() {
				for range 2 {
					var rate float64
					rate, report = s.rate(b, kind, 0, turn)
					under += rate
					rate, _ = s.rate(b, hostile.Burn, report.CPU.Seconds()/turn.Seconds(), turn)
					alone += rate
				}
			}
			b.ReportMetric(under/float64(2*b.N), "calls/s")
			b.ReportMetric(under/alone, "ratio")
			b.ReportMetric(float64(report.Times)/turn.Seconds(), "attacks/s")
			b.ReportMetric(report.CPU.Seconds()/turn.Seconds(), "attacker-cores")
		})
	}
}

// rate is the calls per second during an attack.
func (b *besieged) rate(t testing.TB, kind string, share float64, d time.Duration) (float64, hostile.Report) {
	calls, start := 0, time.Now()
	report := b.during(t, kind, share, d, func(c context.Context) {
		var window [64]*rpc.Future[int]
		for c.Err() == nil {
			i := calls % len(window)
			if window[i] != nil {
				v, err := window[i].Wait(t.Context())
				require.NoError(t, err)
				require.Equal(t, 2*i, v, fmt.Sprintf("call %d", calls))
			}
			window[i] = workload.Double.Async(b.Context(t.Context()), "worker1", i)
			calls++
		}
		for _, f := range window {
			if f != nil {
				_, err := f.Wait(t.Context())
				require.NoError(t, err)
			}
		}
	})
	return float64(calls) / time.Since(start).Seconds(), report
}
