package rpc

import (
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/device"
)

// Kinds of messages. The numbers are part of the wire format.
const (
	kindReply     = 1
	kindHello     = 2
	kindCall      = 3
	kindGradients = 4
	kindCleanup   = 5
	kindFetch     = 6
	kindFork      = 7
	kindDelete    = 8
	kindLeaving   = 9
)

// tensorInfo is what a header says of each tensor of its message, beyond what the frame says.
type tensorInfo struct {
	Requires bool      `cbor:"1,keyasint,omitempty"`
	Origin   device.ID `cbor:"2,keyasint"` // where it lay at the sender
}

// passInfo places a message in a pass.
type passInfo struct {
	Pass    uint64       `cbor:"1,keyasint"`
	Message uint64       `cbor:"2,keyasint"`
	Tensors []tensorInfo `cbor:"3,keyasint,omitempty"`
	NoGrad  bool         `cbor:"4,keyasint,omitempty"`
}

type callHeader struct {
	Function string          `cbor:"1,keyasint"`
	Args     cbor.RawMessage `cbor:"2,keyasint"`
	Pass     *passInfo       `cbor:"3,keyasint,omitempty"`
	Timeout  time.Duration   `cbor:"4,keyasint,omitempty"` // what is left of the caller's; 0: none
	Ref      *refID          `cbor:"5,keyasint,omitempty"` // keep the result under this id instead of sending it
	Holds    bool            `cbor:"6,keyasint,omitempty"` // the caller ends the stream only when it holds what the answer refers to
}

type replyHeader struct {
	Err   *wireError      `cbor:"1,keyasint,omitempty"`
	Value cbor.RawMessage `cbor:"2,keyasint,omitempty"`
	Pass  *passInfo       `cbor:"3,keyasint,omitempty"`
	Took  bool            `cbor:"4,keyasint,omitempty"` // the request's references are held by this end now

	holds bool // what the request says; it does not travel
}

type helloHeader struct {
	Name  string `cbor:"1,keyasint"`
	Rank  int    `cbor:"2,keyasint"`
	World int    `cbor:"3,keyasint"`
	To    string `cbor:"4,keyasint"` // whom the dialler means to reach
}

type gradientsHeader struct {
	Pass     uint64        `cbor:"1,keyasint"`
	Message  uint64        `cbor:"2,keyasint"`
	Backward uint64        `cbor:"3,keyasint"`
	Retain   bool          `cbor:"4,keyasint,omitempty"`
	Timeout  time.Duration `cbor:"5,keyasint,omitempty"`
}

type cleanupHeader struct {
	Pass uint64 `cbor:"1,keyasint"`
}

type fetchHeader struct {
	Ref     refID         `cbor:"1,keyasint"`
	Pass    *passInfo     `cbor:"2,keyasint,omitempty"`
	Timeout time.Duration `cbor:"3,keyasint,omitempty"`
	Holds   bool          `cbor:"4,keyasint,omitempty"` // as in a call
}

// refHeader adds or removes a fork of a reference.
type refHeader struct {
	Ref refID `cbor:"1,keyasint"`
}

// refID names one holder's share in a value: the value by its creator's counter, the fork by the holder's.
type refID struct {
	Owner int    `cbor:"1,keyasint"`
	ID    uint64 `cbor:"2,keyasint"`
	Fork  uint64 `cbor:"3,keyasint,omitempty"`
}

// modes are the CBOR modes: deterministic out, bounded and strict in; unknown keys are ignored, so that headers can grow.
var modes = sync.OnceValue(func() (m struct {
	enc cbor.EncMode
	dec cbor.DecMode
}) {
	enc, err := cbor.EncOptions{Sort: cbor.SortCanonical, TextMarshaler: cbor.TextMarshalerTextString, Time: cbor.TimeRFC3339Nano}.EncMode()
	if err == nil {
		m.enc = enc
		m.dec, err = cbor.DecOptions{
			DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 64, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20,
			TextUnmarshaler: cbor.TextUnmarshalerTextString, UTF8: cbor.UTF8DecodeInvalid, // Go strings hold any bytes
		}.DecMode()
	}
	if err != nil {
		panic(fmt.Sprintf("rpc: the CBOR options are wrong: %v", err)) // fixed at compile time, seen by every test
	}
	return m
})

func encode(v any) ([]byte, error) { return modes().enc.Marshal(v) }

func decode(b []byte, into any) error {
	if err := modes().dec.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}
