package refs

import (
	"errors"
	"fmt"
)

// Node is one life of a worker: a worker that starts again under the same rank has another epoch.
// Whoever runs a worker draws the epoch at random.
type Node struct {
	Rank  int    `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint"`
}

// ID names a value: who keeps it, who asked for it, and which of that worker's claims on the owner
// that was.
type ID struct {
	Owner Node   `cbor:"1,keyasint"`
	By    Node   `cbor:"2,keyasint"`
	N     uint64 `cbor:"3,keyasint"`
}

// String is "owner, creator.n", as ranks.
func (id ID) String() string { return fmt.Sprintf("%d, %d.%d", id.Owner.Rank, id.By.Rank, id.N) }

// Share is a reference inside a message from one worker to another: N counts what the one gave to
// the other.
type Share struct {
	ID ID     `cbor:"1,keyasint"`
	N  uint64 `cbor:"2,keyasint"`
}

// Hold is a worker's own name for a share that it has in a value. 0 is none.
type Hold uint64

// Op is what a control message asks for.
type Op uint8

// The operations. The numbers are part of the wire format.
const (
	Fork    Op = 1 // user to owner: count my claim N on the value. OK, or Gone
	Delete  Op = 2 // user to owner: my claim N (or, with Given, the share N that you gave me) is not needed any more. OK
	Accept  Op = 3 // child to parent: I need you no more for the share N that you gave me. OK
	Recall  Op = 4 // parent to child: the message with share N failed; take it no more. OK, or Taken
	Abandon Op = 5 // caller to callee: I gave up the call with ticket N, and take nothing from its answer any more. OK
)

func (o Op) String() string {
	names := [...]string{Fork: "fork", Delete: "delete", Accept: "accept", Recall: "recall", Abandon: "abandon"}
	if int(o) < len(names) && names[o] != "" {
		return names[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Message is a control message. It may arrive several times and late.
type Message struct {
	Op    Op     `cbor:"1,keyasint"`
	N     uint64 `cbor:"2,keyasint"`
	Given bool   `cbor:"3,keyasint,omitempty"` // of Delete
	ID    ID     `cbor:"4,keyasint,omitzero"`  // of Fork
}

// Answer is what the receiver of a control message says.
type Answer uint8

// The answers. The numbers are part of the wire format.
const (
	OK    Answer = 0
	Gone  Answer = 1 // the value is not there
	Taken Answer = 2 // the share has arrived, and its taker will speak for itself
	Again Answer = 3 // refused for now: the sender has too much under way here
)

// Errors of this package, for errors.Is.
var (
	ErrGone      = errors.New("the value is gone")
	ErrLost      = errors.New("the worker is lost")
	ErrStale     = errors.New("the reference arrived before, or was recalled")
	ErrAbandoned = errors.New("the caller has given up")
	ErrUnready   = errors.New("the reference is released, or not confirmed yet")
	ErrInvalid   = errors.New("not this worker's to name")
	ErrLimit     = errors.New("too many references of one worker are under way")
)
