package wire

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/roster"
)

// Kinds of messages. The numbers are part of the wire format.
const (
	KindReply     = 1
	KindHello     = 2
	KindCall      = 3
	KindGradients = 4
	KindCleanup   = 5
	KindFetch     = 6
	KindRefs      = 7
	KindNews      = 9
	KindAbort     = 10
	KindRenew     = 11
	KindGraph     = 12
	KindPost      = 13 // not answered
	KindStatus    = 32 // in place of a greeting too: see observed
)

// TensorInfo is what a header says of each tensor of its message, beyond what the frame says.
type TensorInfo struct {
	Requires bool
	Origin   device.ID // where it lay at the sender
}

// PassInfo places a message in a pass.
type PassInfo struct {
	Pass    uint64
	Message uint64
	Tensors []TensorInfo
	Past    ctx.Lineage
	NoGrad  bool
}

// HelloHeader is a greeting: who dialled whom.
type HelloHeader struct {
	roster.Member        // who dialled
	To            string `cbor:"11,keyasint"` // whom it means to reach
	Life          uint64 `cbor:"12,keyasint"` // and in which life
	Digest        uint64 `cbor:"13,keyasint"` // of the workers that it knows
}

// HelloAnswer answers a greeting that was accepted.
type HelloAnswer struct {
	Crossed bool `cbor:"1,keyasint,omitempty"` // the callee has linked, or is about to: its link is the one
	Sync    bool `cbor:"2,keyasint,omitempty"` // the two do not know the same workers: each is to tell the other of all
}

// GradientsHeader describes the gradients of a message.
type GradientsHeader struct {
	Pass     uint64        `cbor:"1,keyasint"`
	Message  uint64        `cbor:"2,keyasint"`
	Backward uint64        `cbor:"3,keyasint"`
	Retain   bool          `cbor:"4,keyasint,omitempty"`
	Timeout  time.Duration `cbor:"5,keyasint,omitempty"`
	Mode     ctx.Mode      `cbor:"6,keyasint,omitempty"`
	Plan     []byte        `cbor:"7,keyasint,omitempty"` // ctx.Plan
	Sparse   []SparseInfo  `cbor:"8,keyasint,omitempty"`
	Anomaly  bool          `cbor:"9,keyasint,omitempty"`
	Span     uint64        `cbor:"10,keyasint,omitempty"` // the sender's; 0 where it does not trace
}

// AbortHeader tells of a failure; Err is its cause.
type AbortHeader struct {
	Failure ctx.Failure `cbor:"1,keyasint"`
	Err     *Error      `cbor:"2,keyasint"`
}

// CleanupHeader says that a pass was left.
type CleanupHeader struct {
	Pass uint64 `cbor:"1,keyasint"`
}

// RenewHeader asks for passes that the callee opened. The answer's value is a list of those that it
// has left.
type RenewHeader struct {
	Passes []ctx.PassID `cbor:"1,keyasint"`
}

// RefsHeader carries control messages of references. The answer's value is a list of as many
// refs.Answer.
type RefsHeader struct {
	Messages []refs.Message `cbor:"1,keyasint"`
}

// NewsHeader carries news of members.
type NewsHeader struct {
	News []roster.News `cbor:"1,keyasint"`
}

// GraphHeader asks for a worker's part of a pass's graph; the answer's value is a passgraph.Worker.
type GraphHeader struct {
	Pass uint64 `cbor:"1,keyasint"`
}

// SparseInfo says that a gradient of a message is sparse: its indices and its values travel as two
// tensors in its place.
type SparseInfo struct {
	At     int `cbor:"1,keyasint"` // which of the gradients; they ascend
	Extent int `cbor:"2,keyasint"` // rows of the whole gradient
}

// Error is an error on the wire.
type Error struct {
	Worker string  `cbor:"1,keyasint"`
	Text   string  `cbor:"2,keyasint"`
	Kinds  []int   `cbor:"3,keyasint,omitempty"`
	Type   string  `cbor:"4,keyasint,omitempty"`
	Causes []Cause `cbor:"5,keyasint,omitempty"`
}

// Cause is an error of a listed type: its exported fields in CBOR.
type Cause struct {
	Name   string `cbor:"1,keyasint"`
	Fields []byte `cbor:"2,keyasint"`
}

// MaxName bounds the names of functions and workers.
const MaxName = 128

// ErrProtocol is what is wrong with a message that is none.
var ErrProtocol = errors.New("bad message")

// Modes are the CBOR modes: deterministic out, bounded and strict in; unknown keys are ignored, so
// that headers can grow.
var Modes = sync.OnceValue(func() (m struct {
	Enc cbor.UserBufferEncMode
	Dec cbor.DecMode
}) {
	enc, err := cbor.EncOptions{Sort: cbor.SortCanonical, TextMarshaler: cbor.TextMarshalerTextString, Time: cbor.TimeRFC3339Nano}.UserBufferEncMode()
	m.Enc = fixed(enc, err)
	m.Dec = Decoding(cbor.DecOptions{
		MaxNestedLevels: 64, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20,
		TextUnmarshaler: cbor.TextUnmarshalerTextString, UTF8: cbor.UTF8DecodeInvalid, // Go strings hold any bytes
	})
	return m
})

// Decoding makes the mode for what comes from another worker: a key given twice, or a list beyond
// the bounds, is refused before there is memory for it.
func Decoding(o cbor.DecOptions) cbor.DecMode {
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

// Encode writes CBOR.
func Encode(v any) ([]byte, error) { return Modes().Enc.Marshal(v) }

// Decode reads what another worker wrote.
func Decode(b []byte, into any) error {
	if err := Modes().Dec.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// NoTensors refuses tensors where none belong.
func NoTensors(device.ID, int) (*device.Buffer, error) {
	return nil, fmt.Errorf("%w: it carries tensors where none belong", ErrProtocol)
}
