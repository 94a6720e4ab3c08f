package refs

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// DefaultLimit bounds what one peer can make a Machine keep for it.
const DefaultLimit = 1 << 20

// Machine is one worker's part in the protocol. See the package comment.
type Machine struct {
	me      Node
	limit   int
	peers   map[Node]*peer // whom messages are exchanged with; the worker itself is always among them
	values  map[ID]*value
	holds   map[Hold]*hold
	last    Hold
	packets uint64
	actions []Action
}

// value is something that this worker keeps for references.
type value struct {
	count  int  // claims on it, and shares of it given to others
	making bool // the call that makes it is under way
}

// hold is this worker's share in a value.
type hold struct {
	id       ID
	n        uint64 // the claim on the owner, or the owner's share
	given    bool   // n is the owner's
	state    state
	handles  int    // how often the user has it
	children int    // shares given to others that are not settled
	parent   Node   // who waits to hear that the hold is confirmed
	share    uint64 // the parent's number
}

type state uint8

const (
	creating  state = iota // the call that makes the value is under way
	asking                 // the owner was asked
	confirmed              // the owner counts it
	failed                 // the owner does not
)

// peer is what a Machine knows of another worker, while it is neither lost nor has left.
type peer struct {
	node Node

	claims  uint64           // the last number of a claim of this worker's there
	shares  uint64           // the last number of a share given to it
	tickets uint64           // the last number of a call to it whose answer may bring references
	asked   map[uint64]Hold  // my claims there that are not answered
	given   map[uint64]child // what it was given and is not settled; of this worker's values: what it holds
	arrived map[uint64]Hold  // what it gave and this worker is still to settle: unconfirmed, or its own value's

	used     spans         // its claims that were seen here
	counted  map[uint64]ID // those that count
	seen     spans         // its shares that arrived or were recalled
	answered spans         // its tickets that are used up

	out outbox
}

// child is a share that was given away.
type child struct {
	id     ID
	hold   Hold   // the parent, which must stay; 0 where the value is this worker's, which counts the child
	ticket uint64 // the call whose answer carries it; 0 where it is a request's
	asked  bool   // it is being recalled
}

// ActionKind says what is to be done.
type ActionKind uint8

// The kinds of actions.
const (
	Send      ActionKind = iota // send Messages to To, and tell Answered or Failed of it with the number Packet
	Freed                       // nobody refers to the value any more: forget it
	Confirmed                   // the owner counts the hold: it can be used
	Denied                      // there is no value for the hold; Err says why
)

// Action is something for the caller to do.
type Action struct {
	Kind     ActionKind
	To       Node
	Packet   uint64
	Messages []Message
	Failures int // how often in a row packets to To have failed
	ID       ID
	Hold     Hold
	Err      error
}

// New makes the machine of a worker. limit bounds what a peer can make it keep; 0 means
// DefaultLimit.
func New(me Node, limit int) *Machine {
	if limit <= 0 {
		limit = DefaultLimit
	}
	m := &Machine{me: me, limit: limit, peers: map[Node]*peer{}, values: map[ID]*value{}, holds: map[Hold]*hold{}}
	m.Meet(me)
	return m
}

// Actions gives what is to be done since it was last called, in order.
func (m *Machine) Actions() []Action {
	a := m.actions
	m.actions = nil
	return a
}

func (m *Machine) act(a Action) { m.actions = append(m.actions, a) }

// Me is this worker.
func (m *Machine) Me() Node { return m.me }

// Meet says that messages can be exchanged with a worker. A worker that was lost must not be met
// again under the same Node.
func (m *Machine) Meet(n Node) {
	if m.peers[n] == nil {
		m.peers[n] = &peer{
			node: n, asked: map[uint64]Hold{}, given: map[uint64]child{}, arrived: map[uint64]Hold{}, counted: map[uint64]ID{},
			out: outbox{flying: map[uint64][]Message{}},
		}
	}
}

// Lose says that nothing more comes from a worker or reaches it. What it held here is released, and
// what waits for it ends.
func (m *Machine) Lose(now time.Time, n Node) {
	p := m.peers[n]
	if p == nil || n == m.me {
		return
	}
	delete(m.peers, n) // from here on nothing is sent to it
	for _, n := range slices.Sorted(maps.Keys(p.counted)) {
		m.uncount(p.counted[n])
	}
	for _, n := range slices.Sorted(maps.Keys(p.given)) {
		m.orphan(now, p.given[n])
	}
	for _, n := range slices.Sorted(maps.Keys(p.asked)) {
		m.deny(now, p.asked[n], ErrLost)
	}
}

// sorted gives the peers in an order that does not change from run to run.
func (m *Machine) sorted() []*peer {
	return slices.SortedFunc(maps.Values(m.peers), func(a, b *peer) int { return a.node.compare(b.node) })
}

func (n Node) compare(o Node) int {
	return cmp.Or(cmp.Compare(n.Rank, o.Rank), cmp.Compare(n.Epoch, o.Epoch))
}

// orphan settles a share that was given away.
func (m *Machine) orphan(now time.Time, c child) {
	if c.hold == 0 {
		m.uncount(c.id)
		return
	}
	m.holds[c.hold].children--
	m.retire(now, c.hold)
}
