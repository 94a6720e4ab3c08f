package collective

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// note is what one member sends to another: slots of an operation, or its failure. The tensors of
// the message hold what is large. On the wire a note is a CBOR map, which bytes of small slots
// follow at the next multiple of bodyAt.
type note struct {
	Scope   string       `cbor:"1,keyasint,omitempty"`
	N       uint64       `cbor:"2,keyasint"`
	Call    noteCall     `cbor:"3,keyasint,omitempty"`
	Step    int          `cbor:"4,keyasint,omitempty"`
	Slots   []notePart   `cbor:"5,keyasint,omitempty"`
	inline  []part       // what travels behind the note, of one to be sent
	body    []byte       // that, of one that has arrived
	Failure *noteFailure `cbor:"7,keyasint,omitempty"`
	Ask     bool         `cbor:"8,keyasint,omitempty"` // say what you have called
	Closed  bool         `cbor:"9,keyasint,omitempty"` // the sender has closed the group, after so many other notes to this member
	Sent    uint64       `cbor:"10,keyasint,omitempty"`
	Leaves  bool         `cbor:"13,keyasint,omitempty"` // it has part in no next generation
	Talk    *noteTalk    `cbor:"11,keyasint,omitempty"`
	Part    int          `cbor:"12,keyasint,omitempty"`
}

// noteCall is a desk.Call.
type noteCall struct {
	_         struct{} `cbor:",toarray"`
	Kind      plan.Kind
	Algorithm plan.Algorithm
	Fn        fold.Fn
	Factor    float64
	Dtype     device.Dtype
	Count     int
	Root      int
	For       string
	Line      string
	Left      time.Duration
}

func packCall(c desk.Call) noteCall {
	return noteCall{Kind: c.Kind, Algorithm: c.Algorithm, Fn: c.Op.Fn, Factor: c.Op.Factor, Dtype: c.Dtype, Count: c.Count, Root: c.Root, For: c.For, Line: c.Line, Left: c.Left}
}

func (c noteCall) call() desk.Call {
	return desk.Call{Kind: c.Kind, Algorithm: c.Algorithm, Op: fold.Op{Fn: c.Fn, Factor: c.Factor}, Dtype: c.Dtype, Count: c.Count, Root: c.Root, For: c.For, Line: c.Line, Left: c.Left}
}

// notePart is where a slot lies: in the inline bytes (Tensor −1), or in a tensor of the message.
type notePart struct {
	_              struct{} `cbor:",toarray"`
	Tensor, Off, N int
}

// noteFailure is why an operation, or the group, has failed.
type noteFailure struct {
	What  uint8       `cbor:"1,keyasint"`
	Group bool        `cbor:"2,keyasint,omitempty"` // the whole group
	Ranks [2]int      `cbor:"3,keyasint,omitempty"`
	Calls [2]noteCall `cbor:"4,keyasint,omitempty"`
	Names []string    `cbor:"5,keyasint,omitempty"`
	Text  string      `cbor:"6,keyasint,omitempty"`
}

// What a failure is.
const (
	failedMismatch = iota + 1
	failedLost
	failedLate
	failedAborted
)

func packFailure(err error) *noteFailure {
	var mismatch *MismatchError
	var lost *LostError
	var late *LateError
	switch {
	case errors.As(err, &mismatch):
		return &noteFailure{What: failedMismatch, Ranks: mismatch.Ranks, Calls: [2]noteCall{packCall(mismatch.Calls[0]), packCall(mismatch.Calls[1])}}
	case errors.As(err, &lost):
		return &noteFailure{What: failedLost, Group: true, Ranks: [2]int{lost.Rank}, Names: []string{lost.Worker}, Text: lost.Cause.Error()}
	case errors.As(err, &late):
		return &noteFailure{What: failedLate, Names: append([]string{late.By}, late.Missing...)}
	}
	return &noteFailure{What: failedAborted, Text: err.Error()}
}

// failure is the error that a member told of.
func (f *noteFailure) failure(k desk.Key, from Member) error {
	switch {
	case f.What == failedMismatch:
		return &MismatchError{Key: k, Ranks: f.Ranks, Calls: [2]desk.Call{f.Calls[0].call(), f.Calls[1].call()}}
	case f.What == failedLost && len(f.Names) == 1:
		return &LostError{Rank: f.Ranks[0], Worker: f.Names[0], Cause: fmt.Errorf("%w, %s says: %s", rpc.ErrPeerLost, from.Worker, f.Text)}
	case f.What == failedLate && len(f.Names) > 0:
		return &LateError{By: f.Names[0], Missing: f.Names[1:]}
	}
	return fmt.Errorf("%w: %s: %s", ErrAborted, from.Worker, f.Text)
}

func (n *note) key() desk.Key { return desk.Key{Scope: n.Scope, N: n.N, Part: n.Part} }

// encode appends the note, and what travels inline.
func (n *note) encode(b *bytes.Buffer) {
	if err := encoding().MarshalToBuffer(n, b); err != nil {
		panic(err) // a note is numbers, texts and lists of them: none has a value that cannot be encoded
	}
	if len(n.inline) == 0 {
		return
	}
	b.Write(make([]byte, bodyAt-1)[:padTo(b.Len(), bodyAt)-b.Len()])
	for _, p := range n.inline {
		b.Write(p.mem)
	}
}

// encoding is the mode of notes.
var encoding = sync.OnceValue(func() cbor.UserBufferEncMode {
	mode, err := cbor.EncOptions{}.UserBufferEncMode()
	if err != nil {
		panic(err) // of no option at all: every test would see it
	}
	return mode
})

// decoding is the mode of what members say. Text may be of any bytes, as causes, scopes and names
// of files are.
var decoding = sync.OnceValue(func() cbor.DecMode {
	mode, err := cbor.DecOptions{UTF8: cbor.UTF8DecodeInvalid}.DecMode()
	if err != nil {
		panic(err) // of an option that is there: every test would see it
	}
	return mode
})

// bodyAt is how the body of a note is aligned, in bytes, so that elements can be read where they
// are.
const bodyAt = 8

// What a note may hold.
const (
	saying   = -1 // the step of a note that only says what its sender calls
	maxSlots = 1 << 16
	maxScope = 256 // bytes
)

// decode reads a note of a member, which may hold anything.
func (n *note) decode(b []byte, size int) error {
	rest, err := decoding().UnmarshalFirst(b, n)
	if err != nil {
		return fmt.Errorf("%w: %w", rpc.ErrProtocol, err)
	}
	n.body = b[min(padTo(len(b)-len(rest), bodyAt), len(b)):]
	if len(n.Slots) > maxSlots || len(n.Scope) > len(scopeOfTalks)+maxScope || n.Step < saying || n.Part < 0 {
		return fmt.Errorf("%w: a note of %d slots, step %d, in a scope of %d bytes", rpc.ErrProtocol, len(n.Slots), n.Step, len(n.Scope))
	}
	if f := n.Failure; f != nil && (f.Ranks[0] < 0 || f.Ranks[0] >= size || f.Ranks[1] < 0 || f.Ranks[1] >= size) {
		return fmt.Errorf("%w: a failure of ranks %v in a group of %d", rpc.ErrProtocol, f.Ranks, size)
	}
	if n.Talk != nil {
		return n.Talk.plausible()
	}
	return nil
}
