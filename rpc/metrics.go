package rpc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/transport"
)

// Metrics gives what this worker counts, for Prometheus. Several workers of a process can be
// registered together: every metric has the label worker. Functions are told apart where this
// worker serves or calls them; what peers ask for beyond that is one count.
func (w *Worker) Metrics() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weft_rpc_"+name, help, labels, prometheus.Labels{"worker": w.name})
	}
	return &collector{
		w:              w,
		clientCalls:    desc("client_calls_total", "Calls that this worker made and that have ended.", "function", "outcome"),
		clientSeconds:  desc("client_call_seconds", "From a call until its result is here, as its caller sees it.", "function"),
		clientInFlight: desc("client_calls_in_flight", "Calls that this worker made and that have not ended.", "function"),
		serverCalls:    desc("server_calls_total", "Calls that this worker has answered.", "function", "outcome"),
		serverSeconds:  desc("server_handler_seconds", "How long functions worked, without waiting for their turn.", "function"),
		serverInFlight: desc("server_calls_in_flight", "Calls that have arrived and are not answered: waiting, running or pending.", "function"),
		unserved:       desc("server_unserved_calls_total", "Calls of functions that this worker does not serve, or that it could not read."),
		running:        desc("server_handlers_running", "Functions that run now; Config.MaxRunning bounds them."),
		queued:         desc("server_calls_queued", "Calls that wait for their turn; Config.MaxQueued bounds them."),
		laneSent:       desc("lane_sent_bytes_total", "Bytes of frames and tensors sent on the link with a peer.", "peer", "lane"),
		laneReceived:   desc("lane_received_bytes_total", "Bytes of frames and tensors received on the link with a peer.", "peer", "lane"),
		laneUsed:       desc("lane_used", "1 for the lanes that carry the calls and the tensors of a pair of workers.", "peer", "lane", "use"),
		lanePassed:     desc("lane_passed_messages_total", "Messages with tensors of an accelerator for the peer's that another lane than this one carried.", "peer", "lane"),
		deviceWork:     desc("device_work_total", "What devices have made ready, by what does it; why is empty where nothing does it better.", "device", "work", "by", "why"),
		deviceMemory:   desc("device_memory_bytes", "Memory of devices that this process uses, has kept of what was released, and used at most.", "device", "of"),
		peers:          desc("peers", "The other workers, by state.", "state"),
		passes:         desc("passes", "Passes that are alive here."),
		passBytes:      desc("pass_tensor_bytes", "Bytes of the tensors of all passes that are alive here."),
		references:     desc("references", "What is kept for references.", "kind"),
		groups:         newGroupMetrics(w.name),
	}
}

type collector struct {
	w *Worker

	clientCalls, clientSeconds, clientInFlight *prometheus.Desc
	serverCalls, serverSeconds, serverInFlight *prometheus.Desc
	unserved, running, queued                  *prometheus.Desc
	laneSent, laneReceived, laneUsed           *prometheus.Desc
	lanePassed, deviceWork, deviceMemory       *prometheus.Desc
	peers, passes, passBytes, references       *prometheus.Desc
	groups                                     groupMetrics
}

// Describe lists the metrics.
func (m *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(m.groups.all(),
		m.clientCalls, m.clientSeconds, m.clientInFlight, m.serverCalls, m.serverSeconds, m.serverInFlight, m.unserved, m.running, m.queued,
		m.laneSent, m.laneReceived, m.laneUsed, m.lanePassed, m.deviceWork, m.deviceMemory, m.peers, m.passes, m.passBytes, m.references,
	) {
		ch <- d
	}
}

// Collect gives the values now.
func (m *collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	calls := &m.w.calls
	functions := func(f *counts.FunctionStats, total, seconds, inFlight *prometheus.Desc) {
		for name, s := range f.List() {
			if name != s.Label {
				continue
			}
			for o := range counts.Outcomes {
				counter(total, s.Ended[o].Load(), s.Label, o.String())
			}
			gauge(inFlight, float64(s.InFlight.Load()), s.Label)
			ch <- s.Histogram(seconds)
		}
	}
	functions(&calls.out, m.clientCalls, m.clientSeconds, m.clientInFlight)
	functions(&m.w.serving.stats, m.serverCalls, m.serverSeconds, m.serverInFlight)
	counter(m.unserved, m.w.serving.unserved.Load())
	running, queued := m.w.serving.gate.Load()
	gauge(m.running, float64(running))
	gauge(m.queued, float64(queued))

	for _, l := range m.w.Lanes() {
		for _, s := range l.Lanes {
			if s.Why == "" {
				counter(m.laneSent, s.Sent, l.Peer, s.Name)
				counter(m.laneReceived, s.Received, l.Peer, s.Name)
			}
			if s.Name == transport.LaneCUDA {
				counter(m.lanePassed, s.Passed, l.Peer, s.Name)
			}
		}
		if l.Calls != "" {
			gauge(m.laneUsed, 1, l.Peer, l.Calls, "calls")
			gauge(m.laneUsed, 1, l.Peer, l.Tensors, "tensors")
		}
	}
	for _, id := range m.w.devices.IDs() {
		if d, err := m.w.devices.Get(id); err == nil {
			for _, way := range backend.Ways(d) {
				counter(m.deviceWork, uint64(way.Times), id.String(), way.Work, way.By, way.Why)
			}
			s := d.Stats()
			gauge(m.deviceMemory, float64(s.UsedBytes), id.String(), "used")
			gauge(m.deviceMemory, float64(s.PooledBytes), id.String(), "cached")
			gauge(m.deviceMemory, float64(s.PeakBytes), id.String(), "peak")
		}
	}
	for state, n := range peerStates(m.w) {
		gauge(m.peers, float64(n), state)
	}
	var bytes int64
	passes := m.w.Passes()
	for _, p := range passes {
		bytes += p.Bytes
	}
	gauge(m.passes, float64(len(passes)))
	gauge(m.passBytes, float64(bytes))
	r := m.w.References()
	for kind, n := range map[string]int{
		"owners": r.Owners, "forks": r.Forks, "pending_users": r.PendingUsers, "pending_children": r.PendingChildren,
	} {
		gauge(m.references, float64(n), kind)
	}
	for _, g := range m.w.shown.list() {
		m.groups.collect(ch, &g)
	}
}

// peerStates counts the other workers by what is known of them.
func peerStates(w *Worker) map[string]int {
	n := map[string]int{"joining": 0, "linked": 0, "left": 0, "lost": 0}
	for _, p := range w.members.All() {
		switch {
		case p.Rank == w.rank:
		case errors.Is(p.Gone, ErrPeerLost):
			n["lost"]++
		case p.Gone != nil:
			n["left"]++
		case p.Link == nil:
			n["joining"]++
		default:
			n["linked"]++
		}
	}
	return n
}

// groupMetrics are those of the groups that a worker shows.
type groupMetrics struct {
	operations, bytes, seconds, size, generation, pending, awaited *prometheus.Desc
}

func newGroupMetrics(worker string) groupMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weft_group_"+name, help, append([]string{"group"}, labels...), prometheus.Labels{"worker": worker})
	}
	return groupMetrics{
		operations: desc("operations_total", "Operations of a group that have ended here.", "operation", "outcome"),
		bytes:      desc("bytes_total", "Bytes that this worker brought to operations that are done, or got as messages.", "operation"),
		seconds:    desc("operation_seconds_total", "How long operations took that are done, as their callers see it.", "operation"),
		size:       desc("size", "Members of a group."),
		generation: desc("generation", "How often the members of a group have changed."),
		pending:    desc("operations_pending", "Operations that this worker waits in."),
		awaited:    desc("awaited", "In how many of its operations this worker waits for a member.", "peer"),
	}
}

func (m *groupMetrics) all() []*prometheus.Desc {
	return []*prometheus.Desc{m.operations, m.bytes, m.seconds, m.size, m.generation, m.pending, m.awaited}
}

// collect gives the values of a group now.
func (m *groupMetrics) collect(ch chan<- prometheus.Metric, g *GroupStatus) {
	give := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{g.Name}, labels...)...)
	}
	for _, t := range g.Totals {
		give(m.operations, prometheus.CounterValue, float64(t.Done), t.Operation, "done")
		give(m.operations, prometheus.CounterValue, float64(t.Failed), t.Operation, "failed")
		give(m.bytes, prometheus.CounterValue, float64(t.Bytes), t.Operation)
		give(m.seconds, prometheus.CounterValue, t.Seconds, t.Operation)
	}
	give(m.size, prometheus.GaugeValue, float64(g.Size))
	give(m.generation, prometheus.GaugeValue, float64(g.Generation))
	give(m.pending, prometheus.GaugeValue, float64(len(g.Pending)))
	awaited := map[string]int{}
	for _, p := range g.Pending {
		for _, a := range p.Waits {
			awaited[a.Worker]++
		}
	}
	for peer, n := range awaited {
		give(m.awaited, prometheus.GaugeValue, float64(n), peer)
	}
}
