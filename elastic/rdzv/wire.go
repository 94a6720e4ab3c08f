package rdzv

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/internal/printable"
)

// The keys of a rendezvous, below its own prefix.
const (
	keyLeader  = "leader"  // a lease: who leads, and how far it has come
	keySummary = "summary" // a bulletin, which everybody watches
	keyInbox   = "inbox"   // queue of messages to the leader
	keyShown   = "shown"   // the leader's state for those who look, which the rendezvous itself does without
)

// keyState is the state that a lease names. Whoever still leads a rendezvous whose store has lost
// all must not write over another's.
func (l lease) keyState() string { return fmt.Sprintf("state/%d.%d/%x", l.From, l.Seq, l.Life) }

// keyTo is the queue of answers to a node.
func keyTo(id string) string { return "to/" + id }

const maxMessage = 4 << 10 // bytes of a message, an answer, a lease or a bulletin

const maxText = 1 << 10 // of a reason in them

// lease is who leads. Taking over and committing a state are both a compare-and-set of it.
type lease struct {
	_      struct{} `cbor:",toarray"`
	V      int
	Term   int
	Leader string // empty: nobody does, somebody should
	Seq    int    // of the state that counts, in StateTerm; 0 before there is one
	From   int    // the term in which that was written
	Life   uint64 // of the rendezvous: which of those that have had these keys, one after another, as their store has lost all
}

// bulletin is what everybody watches: it grows with every beat of the leader.
type bulletin struct {
	_       struct{} `cbor:",toarray"`
	V       int
	Term    int
	Beat    int
	Vacant  bool          // the leader has gone
	Age     time.Duration // of the rendezvous
	Summary Summary
	Life    uint64
	Changes []Change
}

// message is an Event on its way to the leader.
type message struct {
	_     struct{} `cbor:",toarray"`
	V     int
	Event Event
}

// answer is an Action on its way to a node.
type answer struct {
	_         struct{} `cbor:",toarray"`
	V         int
	Term      int
	Kind      ActionKind
	Placement Placement
	Nth       int
	Why       string
	Err       int // index in answerErrors, from 1
	Text      string
	Life      uint64
}

// answerErrors are the sentinels that travel.
var answerErrors = [...]error{ErrClosed, ErrTimeout, ErrTaken, ErrRefused, ErrLost, ErrCorrupt}

func newAnswer(l lease, a Action) answer {
	out := answer{V: version, Term: l.Term, Life: l.Life, Kind: a.Kind, Placement: a.Placement, Nth: a.Nth, Why: cut(a.Why)}
	if a.Err != nil {
		out.Err, out.Text = len(answerErrors), cut(a.Err.Error())
		for i := len(answerErrors) - 1; i >= 0; i-- {
			if errors.Is(a.Err, answerErrors[i]) {
				out.Err = i + 1
			}
		}
	}
	return out
}

// action is the answer as its receiver takes it.
func (a answer) action(id string) Action {
	out := Action{Kind: a.Kind, ID: id, Placement: a.Placement, Nth: a.Nth, Why: a.Why}
	if a.Err != 0 {
		out.Err = told{text: a.Text, is: answerErrors[a.Err-1]}
	}
	return out
}

// told is an error that a leader found, at the node that it was told.
type told struct {
	text string
	is   error
}

func (e told) Error() string { return e.text }
func (e told) Unwrap() error { return e.is }

// cut makes words fit to travel, and to be shown: of this node's workers before they are sent, and
// of others when they are read.
func cut(s string) string { return printable.Text(s, maxText) }

func pack(v any) []byte {
	b, _ := cbor.Marshal(v) // of our own plain structs, which it never refuses
	return b
}

func wrongVersion(v int) error {
	return fmt.Errorf("%w: version %d, expected %d; all nodes of a job must run one version of weft", ErrCorrupt, v, version)
}

// impossible is the error of what can be read and cannot be.
func impossible(what string, v any) error {
	return fmt.Errorf("%w: an impossible %s %s", ErrCorrupt, what, cut(fmt.Sprintf("%+v", v)))
}

func readLease(b []byte) (lease, error) {
	var l lease
	switch err := unmarshal(b, maxMessage, 16, &l); {
	case err != nil:
		return l, err
	case l.V != version:
		return l, wrongVersion(l.V)
	case l.Term < 1 || l.Seq < 0 || l.From < 0 || l.From > l.Term || !nameable(l.Leader, maxID):
		return l, impossible("lease", l)
	}
	return l, nil
}

func readBulletin(b []byte) (bulletin, error) {
	var n bulletin
	switch err := unmarshal(b, maxMessage, 16, &n); {
	case err != nil:
		return n, err
	case n.V != version:
		return n, wrongVersion(n.V)
	case len(n.Changes) > maxChanges || slices.ContainsFunc(n.Changes, func(c Change) bool { return c.Nth < 1 || len(c.What) > maxChange }):
		return n, fmt.Errorf("%w: impossible changes in a bulletin", ErrCorrupt)
	case n.Term < 1 || n.Beat < 0 || n.Age < 0 || n.Summary.Epoch < 0 || n.Summary.Round < 0 || n.Summary.Phase < Gathering || n.Summary.Phase > Closed:
		return n, impossible("bulletin", n)
	}
	n.Summary.Outcome = cut(n.Summary.Outcome)
	for i := range n.Changes {
		n.Changes[i].What = cut(n.Changes[i].What)
	}
	return n, nil
}

func readMessage(b []byte) (Event, error) {
	var m message
	switch err := unmarshal(b, maxMessage, 16, &m); {
	case err != nil:
		return m.Event, err
	case m.V != version:
		return m.Event, wrongVersion(m.V)
	case m.Event.Kind <= Tick || m.Event.Kind > Close || !nameable(m.Event.ID, maxID) || m.Event.Nth < 0 || m.Event.Since < 0 || m.Event.Round < 0 || !m.Event.Past.possible():
		return m.Event, impossible("message", m.Event)
	}
	m.Event.Why = cut(m.Event.Why)
	return m.Event, nil
}

func readAnswer(b []byte) (answer, error) {
	var a answer
	switch err := unmarshal(b, maxMessage, 32, &a); {
	case err != nil:
		return a, err
	case a.V != version:
		return a, wrongVersion(a.V)
	case a.Kind < Place || a.Kind > Finished || a.Err < 0 || a.Err > len(answerErrors) || a.Err == 0 && a.Kind == Refuse:
		return a, fmt.Errorf("%w: an impossible answer", ErrCorrupt)
	}
	if p := a.Placement; a.Kind == Place || a.Kind == Restart {
		if p.Nodes < 1 || p.Nodes > maxNodes || p.Rank < 0 || p.Rank >= p.Nodes || p.Slots < 1 || p.Slots > maxSlots ||
			p.First < 0 || p.First+p.Slots > p.World || p.World > maxNodes*maxSlots || p.Source < -1 || p.Source >= p.Nodes || !nameable(p.MasterAddr, maxAddr) {
			return a, impossible("place", p)
		}
	}
	a.Why, a.Text = cut(a.Why), cut(a.Text)
	return a, nil
}
