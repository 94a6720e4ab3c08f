package passgraph

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-project/weft/device"
)

// ErrPart says that a part of a graph cannot be one.
var ErrPart = errors.New("not a part of a pass's graph")

// Limits of one worker's part.
const (
	MaxNodes = 4096
	MaxLinks = 1 << 14 // results and inputs of all its nodes
	maxText  = 120     // bytes of a name
	maxRank  = 1<<16 - 1

	maxBytes = 700 << 10 // of what Bound leaves, in CBOR: a header holds it
)

// Graph is what the workers of a pass recorded.
type Graph struct {
	Pass    uint64
	Workers []Worker // by rank
}

// Worker is one worker's part of the graph.
type Worker struct {
	Rank    int    `cbor:"1,keyasint"`
	Name    string `cbor:"2,keyasint"`
	Lost    string `cbor:"3,keyasint,omitempty"` // why nothing is known of its part; empty where it is
	Omitted int    `cbor:"4,keyasint,omitempty"` // nodes beyond the limits
	Nodes   []Node `cbor:"5,keyasint"`           // those that a node reads come before it
	Peers   []int  `cbor:"6,keyasint,omitempty"` // ranks with which it exchanged messages in the pass
	Held    int64  `cbor:"7,keyasint,omitempty"` // bytes of the pass's tensors on it
}

// Kind is what a node stands for.
type Kind uint8

// The kinds of nodes. The numbers are part of the wire format.
const (
	Function  Kind = 1 // a function that was called
	Parameter Kind = 2 // a tensor whose gradient accumulates
	Send      Kind = 3 // tensors that left for another worker, whether gradients come back or not
	Recv      Kind = 4 // tensors that came from one
)

// Node is one recorded call, a parameter, or an end of a message.
type Node struct {
	Kind    Kind    `cbor:"1,keyasint"`
	Name    string  `cbor:"2,keyasint,omitempty"` // the function; of a message what it was for
	Results []Type  `cbor:"3,keyasint,omitempty"` // of a message its tensors
	Inputs  []Input `cbor:"4,keyasint,omitempty"` // those through which gradients flow
	Root    bool    `cbor:"5,keyasint,omitempty"` // a backward began, or is to begin, here
	Message uint64  `cbor:"6,keyasint,omitempty"` // of a message its id, the same at both ends
	Peer    int     `cbor:"7,keyasint,omitempty"` // of a message the rank of the other end

	Forward  time.Duration `cbor:"8,keyasint,omitempty"` // how long its call took; 0 where nobody measured
	Backward time.Duration `cbor:"9,keyasint,omitempty"` // how long its gradients took, in all backwards so far; 0 as above

	Site string `cbor:"10,keyasint,omitempty"` // file and line of the call, where that is known

	Back int64 `cbor:"11,keyasint,omitempty"` // where tensors left: bytes of gradients that came back, in all backwards so far
}

// Input is a result of an earlier node of the same worker.
type Input struct {
	Node int `cbor:"1,keyasint,omitempty"` // its place in Worker.Nodes
	Slot int `cbor:"2,keyasint,omitempty"` // which of its results
}

// Type is a tensor's dtype and shape.
type Type struct {
	Dtype device.Dtype `cbor:"1,keyasint"`
	Shape device.Shape `cbor:"2,keyasint,omitempty"`
}

// bytes is the size of the value.
func (t Type) bytes() int64 { return int64(t.Shape.Elems() * t.Dtype.Size()) }

// bytes is the size of a node's results.
func (n *Node) bytes() (sum int64) {
	for _, t := range n.Results {
		sum += t.bytes()
	}
	return sum
}

// Lose makes the part of a worker that could not be asked.
func Lose(rank int, name string, why error) Worker {
	return Worker{Rank: rank, Name: shown(name), Lost: shown(why.Error())}
}

// Bound cuts texts, and leaves out the last nodes, where they are beyond the limits.
func (w *Worker) Bound() {
	w.Name, w.Lost = shown(w.Name), shown(w.Lost)
	w.Peers = w.Peers[:min(len(w.Peers), MaxNodes)]
	links, bytes := 0, 6*len(w.Peers)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		n.Name, n.Site = shown(n.Name), shown(n.Site)
		bytes += 64 + len(n.Name) + len(n.Site) + 24*len(n.Inputs)
		for _, t := range n.Results {
			bytes += 8 + 9*len(t.Shape)
		}
		if links += len(n.Results) + len(n.Inputs); i == MaxNodes || links > MaxLinks || bytes > maxBytes {
			w.Omitted += len(w.Nodes) - i
			w.Nodes = w.Nodes[:i]
			return
		}
	}
}

// Check says what is wrong with a part; the error matches ErrPart.
func (w *Worker) Check() error {
	if w.Rank < 0 || w.Rank > maxRank || w.Omitted < 0 || w.Held < 0 || len(w.Nodes) > MaxNodes || len(w.Name) > maxText || len(w.Lost) > maxText || len(w.Peers) > MaxNodes {
		return fmt.Errorf("%w: rank %d, %d nodes, a name of %d bytes, a loss of %d", ErrPart, w.Rank, len(w.Nodes), len(w.Name), len(w.Lost))
	}
	for _, p := range w.Peers {
		if p < 0 || p > maxRank {
			return fmt.Errorf("%w: a peer of rank %d", ErrPart, p)
		}
	}
	links := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if links += len(n.Results) + len(n.Inputs); links > MaxLinks {
			return fmt.Errorf("%w: more than %d results and inputs", ErrPart, MaxLinks)
		}
		if err := w.checkNode(i, n); err != nil {
			return fmt.Errorf("%w: node %d: %w", ErrPart, i, err)
		}
	}
	return nil
}

func (w *Worker) checkNode(i int, n *Node) error {
	if n.Kind < Function || n.Kind > Recv || len(n.Name) > maxText || len(n.Site) > maxText || n.Peer < 0 || n.Peer > maxRank || n.Forward < 0 || n.Backward < 0 || n.Back < 0 {
		return fmt.Errorf("kind %d, a name of %d bytes, peer %d, %v and %v", n.Kind, len(n.Name), n.Peer, n.Forward, n.Backward)
	}
	for _, in := range n.Inputs {
		if in.Node < 0 || in.Node >= i || in.Slot < 0 || in.Slot >= len(w.Nodes[in.Node].Results) {
			return fmt.Errorf("it reads result %d of node %d", in.Slot, in.Node)
		}
	}
	for _, t := range n.Results {
		if !t.Dtype.Valid() {
			return fmt.Errorf("a result of %v", t.Dtype)
		}
		if err := t.Shape.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Merge puts the parts of a pass's workers together. It fails with ErrPart where one cannot be a
// part, or two are of the same worker.
func Merge(pass uint64, parts ...Worker) (*Graph, error) {
	g := &Graph{Pass: pass, Workers: slices.Clone(parts)}
	slices.SortStableFunc(g.Workers, func(a, b Worker) int { return cmp.Compare(a.Rank, b.Rank) })
	for i := range g.Workers {
		w := &g.Workers[i]
		if err := w.Check(); err != nil {
			return nil, fmt.Errorf("rank %d: %w", w.Rank, err)
		}
		if i > 0 && g.Workers[i-1].Rank == w.Rank {
			return nil, fmt.Errorf("%w: two are of rank %d", ErrPart, w.Rank)
		}
	}
	return g, nil
}

// At is a node of the graph: its worker's place in Graph.Workers, and its own in Worker.Nodes.
type At struct{ Worker, Node int }

// Link is an edge of the graph, in the direction of the data; gradients take it the other way.
type Link struct {
	From, To At
	Bytes    int64  // of the results that flow
	Back     int64  // of the gradients that came back by a message, in all backwards so far
	Message  uint64 // 0 inside a worker
}

// Links lists the edges: inside the workers, one for each pair of nodes, then those from send to
// recv. A message of which one end is missing has none.
func (g *Graph) Links() []Link {
	var links []Link
	sends := map[uint64]At{}
	for wi := range g.Workers {
		for ni := range g.Workers[wi].Nodes {
			n := &g.Workers[wi].Nodes[ni]
			if n.Kind == Send {
				sends[n.Message] = At{wi, ni}
			}
			seen := map[Input]bool{}
			first := len(links)
			for _, in := range n.Inputs {
				if seen[in] {
					continue
				}
				seen[in] = true
				bytes := g.Workers[wi].Nodes[in.Node].Results[in.Slot].bytes()
				same := slices.IndexFunc(links[first:], func(l Link) bool { return l.From.Node == in.Node })
				if same >= 0 {
					links[first+same].Bytes += bytes
					continue
				}
				links = append(links, Link{From: At{wi, in.Node}, To: At{wi, ni}, Bytes: bytes})
			}
		}
	}
	for wi := range g.Workers {
		for ni := range g.Workers[wi].Nodes {
			n := &g.Workers[wi].Nodes[ni]
			from, ok := sends[n.Message]
			if n.Kind == Recv && ok && g.rank(from) == n.Peer && g.node(from).Peer == g.Workers[wi].Rank {
				links = append(links, Link{From: from, To: At{wi, ni}, Bytes: g.node(from).bytes(), Back: g.node(from).Back, Message: n.Message})
				delete(sends, n.Message) // one recv function for each send function
			}
		}
	}
	return links
}

func (g *Graph) node(at At) *Node { return &g.Workers[at.Worker].Nodes[at.Node] }

func (g *Graph) rank(at At) int { return g.Workers[at.Worker].Rank }
