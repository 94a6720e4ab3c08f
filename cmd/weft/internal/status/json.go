package status

import (
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
)

// jsonFrame is a frame for programs; times are in seconds.
type jsonFrame struct {
	Job         string      `json:"job"`
	Endpoint    string      `json:"endpoint"`
	Store       string      `json:"workers_store,omitempty"` // its URL
	Phase       string      `json:"phase"`                   // gathering, complete or closed
	Round       int         `json:"round"`
	Age         float64     `json:"age_s"`
	PhaseSince  float64     `json:"phase_since_s"`
	Left        float64     `json:"phase_left_s,omitempty"` // a round that gathers takes more, or waits for those that it lacks
	Leader      string      `json:"leader"`
	Silent      float64     `json:"leader_silent_s"` // 0: it was heard
	Away        bool        `json:"store_away"`      // the store does not answer
	Min         int         `json:"min_nodes"`
	Max         int         `json:"max_nodes"`
	Restarts    int         `json:"restarts"`
	MaxRestarts int         `json:"max_restarts"`
	Failed      bool        `json:"failed"`
	Outcome     string      `json:"outcome,omitempty"`
	Counts      [3]int      `json:"participating_waiting_redundant"`
	Nodes       []jsonNode  `json:"nodes"`
	Ended       []jsonEnded `json:"ended"`
}

type jsonNode struct {
	ID       string  `json:"id"`
	Addr     string  `json:"addr"`
	Role     string  `json:"role"`
	State    string  `json:"state"` // in, done, waiting or redundant
	Since    float64 `json:"since_s"`
	Rank     int     `json:"rank"` // -1: none
	First    int     `json:"first_worker"`
	Workers  int     `json:"workers"`
	Failures int     `json:"failures"`
	// Heard is within how many seconds it was heard of. Where it is late that is when, and LostIn
	// when it is lost.
	Heard   float64     `json:"heard_s"`
	Late    bool        `json:"late"`
	LostIn  float64     `json:"lost_in_s,omitempty"`
	Earlier []jsonEnded `json:"earlier,omitempty"` // its parts that have ended before; it is back
}

type jsonEnded struct {
	ID   string  `json:"id"`
	Addr string  `json:"addr"`
	Rank int     `json:"rank"`
	How  string  `json:"how"` // left, lost, gave up or done
	Why  string  `json:"why,omitempty"`
	Ago  float64 `json:"ago_s"`
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

func (f frame) asJSON() jsonFrame {
	ended := func(all []rdzv.Parted) (out []jsonEnded) {
		for _, e := range all {
			out = append(out, jsonEnded{e.ID, e.Addr, e.Rank, e.How.String(), e.Why, seconds(e.Ago)})
		}
		return out
	}
	out := jsonFrame{
		Job: f.job, Endpoint: f.at, Phase: f.Phase.String(), Round: f.Round, Age: seconds(f.Age), PhaseSince: seconds(f.For), Left: seconds(f.Left), Leader: f.Leader, Store: f.store,
		Silent: seconds(f.silent), Away: f.away > 0, Min: f.Min, Max: f.Max, Restarts: f.Restarts, MaxRestarts: f.MaxRestarts, Failed: f.Failed, Outcome: f.Outcome,
		Counts: [3]int{f.Summary.Nodes, f.Waiting, f.Redundant}, Nodes: []jsonNode{}, Ended: []jsonEnded{},
	}
	for _, n := range f.Nodes {
		node := jsonNode{
			ID: n.ID, Addr: n.Addr, Role: n.Role, State: state(n), Since: seconds(n.For), Rank: n.Rank, First: n.First, Workers: n.Slots,
			Failures: n.Failures, Heard: seconds(f.heardWithin()), Late: n.Silent > 0, Earlier: ended(n.Earlier),
		}
		if node.Late {
			node.Heard, node.LostIn = seconds(n.Silent), seconds(f.lostIn(n))
		}
		out.Nodes = append(out.Nodes, node)
	}
	out.Ended = append(out.Ended, ended(f.Ended)...)
	return out
}

// still is the frame without what only time changes.
func (f jsonFrame) still() jsonFrame {
	f.Age, f.PhaseSince, f.Left = 0, 0, 0
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Since, n.Heard, n.LostIn = 0, 0, 0
		for k := range n.Earlier {
			n.Earlier[k].Ago = 0
		}
	}
	for i := range f.Ended {
		f.Ended[i].Ago = 0
	}
	return f
}
