package rpc

import (
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/refs"
)

// Kinds of messages. The numbers are part of the wire format.
const (
	kindReply     = 1
	kindHello     = 2
	kindCall      = 3
	kindGradients = 4
	kindCleanup   = 5
	kindFetch     = 6
	kindRefs      = 7
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
	Keep     *refs.ID        `cbor:"5,keyasint,omitempty"` // keep the result under this id instead of sending it
	Ticket   uint64          `cbor:"6,keyasint,omitempty"` // under which the answer may bring references
	Refs     []refs.Share    `cbor:"7,keyasint,omitempty"` // the references among the arguments
}

type replyHeader struct {
	Err   *wireError      `cbor:"1,keyasint,omitempty"`
	Value cbor.RawMessage `cbor:"2,keyasint,omitempty"`
	Pass  *passInfo       `cbor:"3,keyasint,omitempty"`
	Refs  []refs.Share    `cbor:"4,keyasint,omitempty"`
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
	Ref     refs.ID       `cbor:"1,keyasint"`
	Pass    *passInfo     `cbor:"2,keyasint,omitempty"`
	Timeout time.Duration `cbor:"3,keyasint,omitempty"`
	Ticket  uint64        `cbor:"4,keyasint,omitempty"` // as in a call
}

// refsHeader carries control messages of references. The answer's value is a list of as many refs.Answer.
type refsHeader struct {
	Messages []refs.Message `cbor:"1,keyasint"`
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
