package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weft-project/weft/store"
)

// storeCollector is what a store's server counts, for Prometheus.
type storeCollector struct {
	stats func() store.ServerStats

	accepted, refused, broken, commands, in, out       *prometheus.Desc
	clients, waiters, watchers, keys, queues, contents *prometheus.Desc
}

func newStoreCollector(stats func() store.ServerStats) *storeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weft_store_"+name, help, labels, nil)
	}
	return &storeCollector{
		stats:    stats,
		accepted: desc("connections_total", "Connections that were taken."),
		refused:  desc("refused_connections_total", "Connections that were one too many."),
		broken:   desc("broken_connections_total", "Connections that were closed because the client broke a rule."),
		commands: desc("commands_total", "Commands of clients.", "command"),
		in:       desc("received_bytes_total", "Bytes of commands."),
		out:      desc("sent_bytes_total", "Bytes of answers and news."),
		clients:  desc("connections", "Connections that there are."),
		waiters:  desc("waiters", "Clients that wait for keys, for a queue or at a barrier."),
		watchers: desc("watchers", "Pairs of a client and a key that it watches."),
		keys:     desc("keys", "Keys that have a value."),
		queues:   desc("queues", "Queues that are not empty."),
		contents: desc("contents_bytes", "Bytes of keys and values."),
	}
}

// Describe lists the metrics.
func (m *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.accepted, m.refused, m.broken, m.commands, m.in, m.out, m.clients, m.waiters, m.watchers, m.keys, m.queues, m.contents,
	} {
		ch <- d
	}
}

// Collect gives the values now.
func (m *storeCollector) Collect(ch chan<- prometheus.Metric) {
	s := m.stats()
	for d, n := range map[*prometheus.Desc]uint64{m.accepted: s.Accepted, m.refused: s.Refused, m.broken: s.Broken, m.in: s.BytesIn, m.out: s.BytesOut} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	for name, n := range s.Commands {
		ch <- prometheus.MustNewConstMetric(m.commands, prometheus.CounterValue, float64(n), name)
	}
	for d, n := range map[*prometheus.Desc]int{m.clients: s.Clients, m.waiters: s.Waiters, m.watchers: s.Watchers, m.keys: s.Keys, m.queues: s.Queues, m.contents: s.Bytes} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
}

// metricsServer answers Prometheus until it is closed.
type metricsServer struct {
	listener net.Listener
	http     *http.Server
	ended    chan struct{}
}

func serveMetrics(addr string, stats func() store.ServerStats) (*metricsServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newStoreCollector(stats))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m := &metricsServer{l, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})}
	go func() {
		defer close(m.ended)
		if err := m.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("weft: metrics are not served any more", "err", err)
		}
	}()
	return m, nil
}

func (m *metricsServer) addr() net.Addr { return m.listener.Addr() }

// close waits a moment for who is being answered.
func (m *metricsServer) close() {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.http.Shutdown(c) != nil {
		_ = m.http.Close()
	}
	<-m.ended
}
