package rpc

import (
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/refs"
	"github.com/weft-project/weft/rpc/roster"
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
	kindNews      = 9
	kindAbort     = 10
	kindRenew     = 11
	kindGraph     = 12
	kindStatus    = 32 // in place of a greeting too: see observed
)

// tensorInfo is what a header says of each tensor of its message, beyond what the frame says.
type tensorInfo struct {
	Requires bool
	Origin   device.ID // where it lay at the sender
}

// passInfo places a message in a pass.
type passInfo struct {
	Pass    uint64
	Message uint64
	Tensors []tensorInfo
	Past    ctx.Lineage
	NoGrad  bool
}

type helloHeader struct {
	roster.Member        // who dialled
	To            string `cbor:"11,keyasint"` // whom it means to reach
	Life          uint64 `cbor:"12,keyasint"` // and in which life
	Digest        uint64 `cbor:"13,keyasint"` // of the workers that it knows
}

type helloAnswer struct {
	Crossed bool `cbor:"1,keyasint,omitempty"` // the callee has linked, or is about to: its link is the one
	Sync    bool `cbor:"2,keyasint,omitempty"` // the two do not know the same workers: each is to tell the other of all
}

type gradientsHeader struct {
	Pass     uint64        `cbor:"1,keyasint"`
	Message  uint64        `cbor:"2,keyasint"`
	Backward uint64        `cbor:"3,keyasint"`
	Retain   bool          `cbor:"4,keyasint,omitempty"`
	Timeout  time.Duration `cbor:"5,keyasint,omitempty"`
	Mode     ctx.Mode      `cbor:"6,keyasint,omitempty"`
	Plan     []byte        `cbor:"7,keyasint,omitempty"` // ctx.Plan
	Sparse   []sparseInfo  `cbor:"8,keyasint,omitempty"`
	Anomaly  bool          `cbor:"9,keyasint,omitempty"`
	Span     uint64        `cbor:"10,keyasint,omitempty"` // the sender's; 0 where it does not trace
}

// abortHeader tells of a failure; Err is its cause.
type abortHeader struct {
	Failure ctx.Failure `cbor:"1,keyasint"`
	Err     *wireError  `cbor:"2,keyasint"`
}

type cleanupHeader struct {
	Pass uint64 `cbor:"1,keyasint"`
}

// renewHeader asks for passes that the callee opened. The answer's value is a list of those that it
// has left.
type renewHeader struct {
	Passes []ctx.PassID `cbor:"1,keyasint"`
}

// refsHeader carries control messages of references. The answer's value is a list of as many
// refs.Answer.
type refsHeader struct {
	Messages []refs.Message `cbor:"1,keyasint"`
}

// modes are the CBOR modes: deterministic out, bounded and strict in; unknown keys are ignored, so
// that headers can grow.
var modes = sync.OnceValue(func() (m struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
}) {
	enc, err := cbor.EncOptions{Sort: cbor.SortCanonical, TextMarshaler: cbor.TextMarshalerTextString, Time: cbor.TimeRFC3339Nano}.UserBufferEncMode()
	m.enc = fixed(enc, err)
	m.dec = decoding(cbor.DecOptions{
		MaxNestedLevels: 64, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20,
		TextUnmarshaler: cbor.TextUnmarshalerTextString, UTF8: cbor.UTF8DecodeInvalid, // Go strings hold any bytes
	})
	return m
})

// decoding makes the mode for what comes from another worker: a key given twice, or a list beyond
// the bounds, is refused before there is memory for it.
func decoding(o cbor.DecOptions) cbor.DecMode {
	o.DupMapKey = cbor.DupMapKeyEnforcedAPF
	dec, err := o.DecMode()
	return fixed(dec, err)
}

// fixed is a mode whose options stand in the code.
func fixed[M any](mode M, err error) M {
	if err != nil {
		panic(fmt.Sprintf("rpc: the CBOR options are wrong: %v", err)) // seen by every test
	}
	return mode
}

func encode(v any) ([]byte, error) { return modes().enc.Marshal(v) }

func decode(b []byte, into any) error {
	if err := modes().dec.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}
