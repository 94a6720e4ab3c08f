package run

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weft-project/weft/cmd/weft/internal/web"
	"github.com/weft-project/weft/elastic/agent"
)

// askTimeout is after how long an agent that does not answer is not well.
const askTimeout = 3 * time.Second

// serveHealth serves how an agent is: /healthz says whether it works at all, /readyz whether its
// workers run, /metrics counts. Without a host only this machine sees it.
func serveHealth(addr string, probe *agent.Probe) (*web.Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("--health-addr: expected [host]:port, got %q", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	mux := web.Metrics(newAgentCollector(probe))
	answer := func(path string, well func(agent.Status) bool) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			c, cancel := context.WithTimeout(r.Context(), askTimeout)
			defer cancel()
			status, err := probe.Ask(c)
			switch {
			case err != nil:
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			case !well(status):
				http.Error(w, status.String(), http.StatusServiceUnavailable)
			default:
				fmt.Fprintln(w, status)
			}
		})
	}
	answer("/healthz", func(agent.Status) bool { return true })
	answer("/readyz", agent.Status.Ready)
	server, err := web.Serve(net.JoinHostPort(host, port), mux)
	if err != nil {
		return nil, fmt.Errorf("--health-addr: %w", err)
	}
	return server, nil
}

// agentCollector is what an agent counts, for Prometheus.
type agentCollector struct {
	probe                                                             *agent.Probe
	up, ready, round, node, nodes, world, workers, restarts, failures *prometheus.Desc
	connected, heard, metRound, metNodes                              *prometheus.Desc // of the rendezvous
}

func newAgentCollector(probe *agent.Probe) *agentCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weft_agent_"+name, help, labels, nil)
	}
	return &agentCollector{
		probe:    probe,
		up:       desc("up", "1 if the agent answers."),
		ready:    desc("ready", "1 if the workers of this machine run in a round."),
		round:    desc("round", "Number of the round."),
		node:     desc("node_rank", "Rank of this machine."),
		nodes:    desc("nodes", "Machines in the round."),
		world:    desc("world_size", "Workers in the round."),
		workers:  desc("workers", "Workers of this machine.", "state"),
		restarts: desc("restarts_total", "Failed workers that the job has started again."),
		failures: desc("failures_total", "Failures of this machine's workers."),

		connected: desc("rendezvous_connected", "1 if the rendezvous' leader was heard of within keep_alive_timeout."),
		heard:     desc("rendezvous_last_heard_timestamp_seconds", "When the rendezvous' leader was last heard of."),
		metRound:  desc("rendezvous_round", "Number of the round that the leader spoke of last; it may be gathering."),
		metNodes:  desc("rendezvous_nodes", "Machines in that round."),
	}
}

// Describe lists the metrics.
func (m *agentCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.ready, m.round, m.node, m.nodes, m.world, m.workers, m.restarts, m.failures,
		m.connected, m.heard, m.metRound, m.metNodes} {
		ch <- d
	}
}

// Collect gives the values now.
func (m *agentCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	yes := map[bool]int{true: 1}
	c, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	s, err := m.probe.Ask(c)
	gauge(m.up, yes[err == nil])
	if err != nil {
		return
	}
	gauge(m.ready, yes[s.Ready()])
	gauge(m.workers, s.Running, "running")
	gauge(m.workers, s.Succeeded, "succeeded")
	gauge(m.workers, s.Failed, "failed")
	ch <- prometheus.MustNewConstMetric(m.restarts, prometheus.CounterValue, float64(s.Restarts))
	ch <- prometheus.MustNewConstMetric(m.failures, prometheus.CounterValue, float64(s.Failures))
	met := !s.Contact.Heard.IsZero()
	gauge(m.connected, yes[met && !s.Contact.Lost()])
	if met {
		ch <- prometheus.MustNewConstMetric(m.heard, prometheus.GaugeValue, float64(s.Contact.Heard.UnixMilli())/1000)
	}
	if s.Contact.Known {
		gauge(m.metRound, s.Contact.Round)
		gauge(m.metNodes, s.Contact.Nodes)
	}
	if s.Placed {
		gauge(m.round, s.Round)
		gauge(m.node, s.Rank)
		gauge(m.nodes, s.Nodes)
		gauge(m.world, s.World)
	}
}
