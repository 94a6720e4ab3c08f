package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// scrape reads the workers' metrics as Prometheus does, and gives the samples by series.
func scrape(t *testing.T, ws ...*Worker) map[string]string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, w := range ws {
		require.NoError(t, reg.Register(w.Metrics()))
		problems, err := testutil.CollectAndLint(w.Metrics())
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	r := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, r.Code, r.Body)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	samples := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			i := strings.LastIndex(line, " ")
			samples[line[:i]] = strings.TrimSpace(line[i:])
		}
	}
	return samples
}

// sample gives one of worker i's, with the labels in alphabetical order; the label worker comes
// last.
func sample(name, labels string, i int) string {
	if labels != "" {
		labels += ","
	}
	return fmt.Sprintf(`weft_rpc_%s{%sworker="worker%d"}`, name, labels, i)
}

func TestEveryEndOfACallIsCountedAtBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := Define("fail", func(context.Context, int) (int, error) { return 0, errors.New("no") })
		hang := Define("hang", func(c context.Context, _ int) (int, error) {
			<-c.Done()
			return 0, c.Err()
		})
		unsendable := Define("unsendable", func(context.Context, int) (RRef[int], error) { return RRef[int]{failedRef(errors.New("no"))}, nil })
		ws, net := simWith(t, 2, simnet.Config{}, limited(2, 1, double, fail, hang, unsendable))
		c, end := context.WithTimeout(ws[0].Context(t.Context()), time.Hour)
		defer end()
		for range 3 {
			_, err := double.Call(c, "worker1", 1)
			require.NoError(t, err)
		}
		_, err := fail.Call(c, "worker1", 1)
		require.Error(t, err)
		_, err = unsendable.Call(c, "worker1", 1)
		require.Error(t, err)
		_, err = hang.Call(WithTimeout(c, time.Second), "worker1", 1)
		require.ErrorIs(t, err, ErrTimeout)
		stopped, stop := context.WithCancel(c)
		f := hang.Async(stopped, "worker1", 1)
		synctest.Wait()
		stop()
		_, err = f.Wait(c)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		for range 3 {
			hang.Async(c, "worker1", 1)
		}
		synctest.Wait()
		_, err = hang.Call(c, "worker1", 1)
		require.ErrorIs(t, err, ErrBusy)
		for _, made := range []string{"up", "by", "a peer"} {
			_, err = Define(made, func(context.Context, int) (int, error) { return 0, nil }).Call(c, "worker1", 1)
			require.ErrorIs(t, err, ErrNotServed)
		}
		ref := double.Remote(c, "worker1", 4)
		require.ErrorIs(t, ref.Ready(c), ErrBusy)

		m := scrape(t, ws...)
		for key, want := range map[string]string{
			sample("client_calls_total", `function="double",outcome="ok"`, 0):                                 "3",
			sample("client_calls_total", `function="double",outcome="busy"`, 0):                               "1",
			sample("client_calls_total", `function="fail",outcome="error"`, 0):                                "1",
			sample("client_calls_total", `function="unsendable",outcome="error"`, 0):                          "1",
			sample("client_calls_total", `function="hang",outcome="timeout"`, 0):                              "1",
			sample("client_calls_total", `function="hang",outcome="cancelled"`, 0):                            "1",
			sample("client_calls_total", `function="hang",outcome="busy"`, 0):                                 "1",
			sample("client_calls_total", `function="up",outcome="error"`, 0):                                  "1",
			sample("client_calls_in_flight", `function="hang"`, 0):                                            "3",
			sample("client_calls_in_flight", `function="double"`, 0):                                          "0",
			sample("client_call_seconds_count", `function="hang"`, 0):                                         "3",
			sample("client_call_seconds_sum", `function="hang"`, 0):                                           "1",
			strings.Replace(sample("client_call_seconds_bucket", `function="hang"`, 0), "}", `,le="0.5"}`, 1): "2", // cancelled, busy
			strings.Replace(sample("client_call_seconds_bucket", `function="hang"`, 0), "}", `,le="1"}`, 1):   "3",
			sample("server_calls_total", `function="double",outcome="ok"`, 1):                                 "3",
			sample("server_calls_total", `function="fail",outcome="error"`, 1):                                "1",
			sample("server_calls_total", `function="unsendable",outcome="error"`, 1):                          "1",
			sample("server_calls_total", `function="hang",outcome="busy"`, 1):                                 "1",
			sample("server_handler_seconds_count", `function="hang"`, 1):                                      "2",
			sample("server_calls_in_flight", `function="hang"`, 1):                                            "3",
			sample("server_handlers_running", "", 1):                                                          "2",
			sample("server_calls_queued", "", 1):                                                              "1",
			sample("server_unserved_calls_total", "", 1):                                                      "3",
			sample("server_calls_total", `function="double",outcome="ok"`, 0):                                 "0",
			sample("peers", `state="linked"`, 0):                                                              "1",
		} {
			require.Equal(t, want, m[key], key)
		}
		number := func(key string) (n int) {
			_, err := fmt.Sscan(m[key], &n)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 2, number(sample("server_calls_total", `function="hang",outcome="timeout"`, 1))+
			number(sample("server_calls_total", `function="hang",outcome="cancelled"`, 1)), "the caller's reset may come before the deadline is noticed")
		for key := range m {
			require.False(t, strings.Contains(key, "server_") && strings.Contains(key, "a peer"), key)
		}

		net.Kill("host1")
		time.Sleep(time.Minute) // on the bubble's clock
		m = scrape(t, ws[0])
		require.Equal(t, "3", m[sample("client_calls_total", `function="hang",outcome="lost"`, 0)])
		require.Equal(t, "0", m[sample("client_calls_in_flight", `function="hang"`, 0)])
		require.Equal(t, "1", m[sample("peers", `state="lost"`, 0)])
		require.Equal(t, "0", m[sample("peers", `state="linked"`, 0)])
	})
}

func TestLanesPassesAndReferencesAreShown(t *testing.T) {
	ws := world(t, 2, nil, func(_ int, cfg *Config) {
		cfg.Functions = []Function{double, twice}
		cfg.Lanes = []string{transport.LaneQUIC}
	})
	ref := double.Remote(ws[0].Context(t.Context()), "worker1", 4)
	v, err := ref.ToHere(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, v)
	err = ws[0].Pass(t.Context(), func(c context.Context) error {
		_, err := twice.Call(c, "worker1", autodiff.New([]float32{4}))
		require.NoError(t, err)
		m := scrape(t, ws...)
		require.Equal(t, "1", m[sample("passes", "", 1)])
		require.NotEqual(t, "0", m[sample("pass_tensor_bytes", "", 1)])
		require.Equal(t, "1", m[sample("references", `kind="owners"`, 1)])
		require.Equal(t, "1", m[sample("client_calls_total", `function="(fetch)",outcome="ok"`, 0)])
		require.Equal(t, "1", m[sample("server_calls_total", `function="(fetch)",outcome="ok"`, 1)])
		for _, use := range []string{"calls", "tensors"} {
			require.Equal(t, "1", m[fmt.Sprintf(`weft_rpc_lane_used{lane="quic",peer="worker1",use=%q,worker="worker0"}`, use)])
		}
		sent := m[`weft_rpc_lane_sent_bytes_total{lane="quic",peer="worker1",worker="worker0"}`]
		require.Greater(t, len(sent), 2, sent)
		return nil
	})
	require.NoError(t, err)
	ref.Release()
	eventually(t, "the pass and the reference go", func() bool {
		m := scrape(t, ws[1])
		return m[sample("passes", "", 1)] == "0" && m[sample("references", `kind="owners"`, 1)] == "0"
	})
}

func TestNamesOfFunctionsMakeNoBadAndNotTooManyLabels(t *testing.T) {
	var f counts.FunctionStats
	bad := f.Of("\xff")
	require.Equal(t, `"\xff"`, bad.Label)
	require.Same(t, bad, f.Of("\xff"))
	require.Same(t, bad, f.Of(`"\xff"`))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2 * counts.MaxLabels {
				f.Of(fmt.Sprint(i)).Ended[counts.OutcomeOK].Add(1)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(f.List()), counts.MaxLabels+1)
	total := uint64(0)
	for name, s := range f.List() {
		if name == s.Label {
			total += s.Ended[counts.OutcomeOK].Load()
		}
	}
	require.EqualValues(t, 8*counts.MaxLabels, total, "none is lost")
	require.NotZero(t, f.Of(counts.OtherLabel).Ended[counts.OutcomeOK].Load())
}

func TestDurationsFallIntoTheBucketsThatPrometheusExpects(t *testing.T) {
	var s counts.CallStats
	want := make([]uint64, len(counts.Bounds)+1)
	for range 10_000 {
		d := time.Duration(1) << rand.IntN(40)
		d += time.Duration(rand.Int64N(int64(d)))
		if rand.IntN(10) == 0 {
			d = counts.Bounds[rand.IntN(len(counts.Bounds))]
		}
		s.Observe(d)
		for i, b := range counts.Bounds {
			if d <= b {
				want[i]++
			}
		}
		want[len(counts.Bounds)]++
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		ch <- s.Histogram(prometheus.NewDesc("x", "", []string{"function"}, nil))
	}))
	families, err := reg.Gather()
	require.NoError(t, err)
	h := families[0].Metric[0].Histogram
	require.Equal(t, want[len(counts.Bounds)], h.GetSampleCount())
	require.Len(t, h.Bucket, len(counts.Bounds))
	for i, b := range h.Bucket {
		require.Equal(t, counts.Bounds[i].Seconds(), b.GetUpperBound())
		require.Equal(t, want[i], b.GetCumulativeCount())
	}
}

func TestOutcomesTellAPeerThatIsLostFromAnErrorItReports(t *testing.T) {
	remote := func(kind error) error { return &Error{"a", "b", "f", &RemoteError{kinds: []error{kind}}} }
	for _, c := range []struct {
		err  error
		want counts.Outcome
	}{
		{nil, counts.OutcomeOK},
		{io.EOF, counts.OutcomeError},
		{fmt.Errorf("x: %w", ErrPeerLost), counts.OutcomeLost},
		{ErrPeerLeft, counts.OutcomeLost},
		{remote(ErrPeerLost), counts.OutcomeError},
		{remote(ErrBusy), counts.OutcomeBusy},
		{remote(ErrTimeout), counts.OutcomeTimeout},
		{remote(context.Canceled), counts.OutcomeCancelled},
		{ErrLeft, counts.OutcomeCancelled},
		{context.DeadlineExceeded, counts.OutcomeTimeout},
	} {
		require.Equal(t, c.want, outcomeOf(c.err), "%v", c.err)
	}
}

// What a call costs at both ends together, for its counters.
func BenchmarkCounting(b *testing.B) {
	var out, in counts.FunctionStats
	served, clock := in.Of("double"), counts.NewClock()
	out.Of("double")
	b.ReportAllocs()
	for b.Loop() {
		s, began := out.Of("double"), clock.Now()
		s.InFlight.Add(1)
		served.InFlight.Add(1)
		ran := clock.Now()
		served.Observe(clock.Now() - ran)
		served.End(outcomeOf(nil))
		s.Observe(clock.Now() - began)
		s.End(outcomeOf(nil))
	}
}

func TestCountingACallAllocatesNothing(t *testing.T) {
	var f counts.FunctionStats
	name := strings.Repeat("double", 1)
	f.Of(name)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s := f.Of(name)
		s.InFlight.Add(1)
		s.Observe(time.Microsecond)
		s.End(outcomeOf(nil))
	}))
}
