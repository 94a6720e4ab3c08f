package storecmd

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weft-project/weft/store"
)

// storeCollector is what a store's server counts, for Prometheus.
type storeCollector struct {
	stats func() store.ServerStats

	accepted, refused, evicted, broken, commands, in, out *prometheus.Desc
	clients, waiters, watchers, keys, queues, contents    *prometheus.Desc
}

func newStoreCollector(stats func() store.ServerStats) *storeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weft_store_"+name, help, labels, nil)
	}
	return &storeCollector{
		stats:    stats,
		accepted: desc("connections_total", "Connections that were taken."),
		refused:  desc("refused_connections_total", "Connections that were one too many, or of another user."),
		evicted:  desc("evicted_connections_total", "Connections that had shown nothing and made room for others."),
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
		m.accepted, m.refused, m.evicted, m.broken, m.commands, m.in, m.out, m.clients, m.waiters, m.watchers, m.keys, m.queues, m.contents,
	} {
		ch <- d
	}
}

// Collect gives the values now.
func (m *storeCollector) Collect(ch chan<- prometheus.Metric) {
	s := m.stats()
	for d, n := range map[*prometheus.Desc]uint64{m.accepted: s.Accepted, m.refused: s.Refused, m.evicted: s.Evicted, m.broken: s.Broken, m.in: s.BytesIn, m.out: s.BytesOut} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	for name, n := range s.Commands {
		ch <- prometheus.MustNewConstMetric(m.commands, prometheus.CounterValue, float64(n), name)
	}
	for d, n := range map[*prometheus.Desc]int{m.clients: s.Clients, m.waiters: s.Waiters, m.watchers: s.Watchers, m.keys: s.Keys, m.queues: s.Queues, m.contents: s.Bytes} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
}
