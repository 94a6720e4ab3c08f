package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/refs"
)

// The headers of calls, fetches and answers are written by hand, for speed; what follows the last
// field is the value, in CBOR. Numbers are varints, ids 8 bytes, little-endian:
//
//	call, fetch  flags 1, function (length, bytes; empty in a fetch), [timeout], [ticket], [span],
//	             [reference], [shares], [pass], arguments
//	answer       flags 1, [error], [shares], [pass], value
//	reference, shares, error: length, CBOR
//	pass         pass id, message id, tensors, and per tensor: device kind 1 (its highest bit:
//	             requires a gradient), device index; the messages they come from (ids), ancestors,
//	             and per ancestor: id, those it comes from (ids)
const (
	flagTimeout = 1 << iota
	flagTicket
	flagRef
	flagShares
	flagPass
	flagNoGrad
	flagSpan
	callFlags = flagSpan<<1 - 1
)

const (
	flagError = 1 << iota
	flagReplyShares
	flagReplyPass
	flagReplyNoGrad
	replyFlags = flagReplyNoGrad<<1 - 1
)

const requiresBit = 0x80

// CallHeader is the header of a call, and of a fetch.
type CallHeader struct {
	Function string
	Timeout  time.Duration // what is left of the caller's; 0: none
	Ticket   uint64        // under which the answer may bring references; 0: it may not
	Span     uint64        // the caller's, for the callee's trace; 0: none
	Ref      *refs.ID      // call: keep the result under this id instead of sending it; fetch: what to send
	Refs     []refs.Share  // the references among the arguments
	Pass     *PassInfo
	Args     []byte // to the header's end
}

// PassID is the pass of the call, 0 where it has none.
func (h *CallHeader) PassID() ctx.PassID {
	if h.Pass == nil {
		return 0
	}
	return ctx.PassID(h.Pass.Pass)
}

// ReplyHeader is the header of an answer.
type ReplyHeader struct {
	Err   *Error
	Refs  []refs.Share
	Pass  *PassInfo
	Value []byte // to the header's end
}

// Append writes all but the arguments.
func (h *CallHeader) Append(b []byte) (_ []byte, err error) {
	var flags byte
	set := func(flag byte, on bool) {
		if on {
			flags |= flag
		}
	}
	set(flagTimeout, h.Timeout > 0)
	set(flagTicket, h.Ticket != 0)
	set(flagSpan, h.Span != 0)
	set(flagRef, h.Ref != nil)
	set(flagShares, len(h.Refs) > 0)
	set(flagPass, h.Pass != nil)
	set(flagNoGrad, h.Pass != nil && h.Pass.NoGrad)
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(h.Function)))
	b = append(b, h.Function...)
	if h.Timeout > 0 {
		b = binary.AppendUvarint(b, uint64(h.Timeout))
	}
	if h.Ticket != 0 {
		b = binary.AppendUvarint(b, h.Ticket)
	}
	if h.Span != 0 {
		b = binary.LittleEndian.AppendUint64(b, h.Span)
	}
	if h.Ref != nil {
		if b, err = appendCBOR(b, h.Ref); err != nil {
			return nil, err
		}
	}
	if len(h.Refs) > 0 {
		if b, err = appendCBOR(b, h.Refs); err != nil {
			return nil, err
		}
	}
	return h.Pass.appendTo(b), nil
}

// Parse reads what append wrote; the arguments are a part of b.
func (h *CallHeader) Parse(b []byte) error {
	r := cursor{b: b}
	flags := r.flags(callFlags)
	h.Function = string(r.bytes(r.bounded(MaxName)))
	if flags&flagTimeout != 0 {
		h.Timeout = time.Duration(r.bounded(math.MaxInt64))
	}
	if flags&flagTicket != 0 {
		h.Ticket = r.uvarint()
	}
	if flags&flagSpan != 0 {
		h.Span = r.id()
	}
	if flags&flagRef != 0 {
		h.Ref = &refs.ID{}
		r.cbor(h.Ref)
	}
	if flags&flagShares != 0 {
		r.cbor(&h.Refs)
	}
	h.Pass = r.pass(flags&flagPass != 0, flags&flagNoGrad != 0)
	h.Args = r.b
	return r.err("call")
}

// Append writes all but the value.
func (h *ReplyHeader) Append(b []byte) (_ []byte, err error) {
	var flags byte
	set := func(flag byte, on bool) {
		if on {
			flags |= flag
		}
	}
	set(flagError, h.Err != nil)
	set(flagReplyShares, len(h.Refs) > 0)
	set(flagReplyPass, h.Pass != nil)
	set(flagReplyNoGrad, h.Pass != nil && h.Pass.NoGrad)
	b = append(b, flags)
	if h.Err != nil {
		if b, err = appendCBOR(b, h.Err); err != nil {
			return nil, err
		}
	}
	if len(h.Refs) > 0 {
		if b, err = appendCBOR(b, h.Refs); err != nil {
			return nil, err
		}
	}
	return h.Pass.appendTo(b), nil
}

// Parse reads what append wrote; the value is a part of b.
func (h *ReplyHeader) Parse(b []byte) error {
	r := cursor{b: b}
	flags := r.flags(replyFlags)
	if flags&flagError != 0 {
		h.Err = &Error{}
		r.cbor(h.Err)
	}
	if flags&flagReplyShares != 0 {
		r.cbor(&h.Refs)
	}
	h.Pass = r.pass(flags&flagReplyPass != 0, flags&flagReplyNoGrad != 0)
	h.Value = r.b
	return r.err("answer")
}

// appendCBOR writes what v points to, with its length.
func appendCBOR(b []byte, v any) ([]byte, error) {
	raw, err := Encode(v)
	b = binary.AppendUvarint(b, uint64(len(raw)))
	return append(b, raw...), err
}

func (p *PassInfo) appendTo(b []byte) []byte {
	if p == nil {
		return b
	}
	b = binary.LittleEndian.AppendUint64(b, p.Pass)
	b = binary.LittleEndian.AppendUint64(b, p.Message)
	b = binary.AppendUvarint(b, uint64(len(p.Tensors)))
	for _, t := range p.Tensors {
		kind := byte(t.Origin.Kind)
		if t.Requires {
			kind |= requiresBit
		}
		b = append(b, kind)
		b = binary.AppendUvarint(b, uint64(t.Origin.Index))
	}
	b = appendIDs(b, p.Past.Parents)
	b = binary.AppendUvarint(b, uint64(len(p.Past.Ancestors)))
	for _, a := range p.Past.Ancestors {
		b = appendIDs(binary.LittleEndian.AppendUint64(b, uint64(a.ID)), a.Parents)
	}
	return b
}

func appendIDs(b []byte, ids []ctx.MessageID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
	}
	return b
}

// cursor reads a header. After the first thing that does not fit it gives zeros, and says so at the
// end.
type cursor struct {
	b     []byte
	wrong error
}

func (r *cursor) err(of string) error {
	if r.wrong != nil {
		return fmt.Errorf("the header of a %s: %w", of, r.wrong)
	}
	return nil
}

// fail notes what is wrong; only the first time counts.
func (r *cursor) fail(what string) {
	if r.wrong == nil {
		r.wrong = fmt.Errorf("%w: %s", ErrProtocol, what)
	}
	r.b = nil
}

// bytes gives the next n bytes.
func (r *cursor) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail("it ends too early")
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// flags gives a byte in which no other bits than these may be set.
func (r *cursor) flags(known byte) byte {
	b := r.bytes(1)
	if len(b) == 0 || b[0]&^known != 0 {
		r.fail("unknown flags")
		return 0
	}
	return b[0]
}

func (r *cursor) id() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("no number where one belongs")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bounded gives a number that may be most at most.
func (r *cursor) bounded(most uint64) int {
	v := r.uvarint()
	if v > most {
		r.fail("a number is too large")
		return 0
	}
	return int(v)
}

// cbor fills what into points to.
func (r *cursor) cbor(into any) {
	raw := r.bytes(r.bounded(uint64(len(r.b))))
	if r.wrong == nil {
		r.wrong = Decode(raw, into)
	}
}

func (r *cursor) pass(present, noGrad bool) *PassInfo {
	if !present {
		if noGrad {
			r.fail("unknown flags")
		}
		return nil
	}
	p := &PassInfo{Pass: r.id(), Message: r.id(), NoGrad: noGrad}
	n := r.bounded(uint64(len(r.b) / 2)) // a tensor has two bytes at least
	if n > 0 {
		p.Tensors = make([]TensorInfo, n)
	}
	for i := range p.Tensors {
		kind := r.bytes(1)
		if r.wrong != nil {
			break
		}
		p.Tensors[i] = TensorInfo{
			Requires: kind[0]&requiresBit != 0,
			Origin:   device.ID{Kind: device.Kind(kind[0] &^ requiresBit), Index: r.bounded(math.MaxInt32)},
		}
	}
	p.Past.Parents = r.ids()
	if n := r.bounded(uint64(len(r.b) / 9)); n > 0 { // an ancestor has nine bytes at least
		p.Past.Ancestors = make([]ctx.Ancestor, n)
	}
	for i := range p.Past.Ancestors {
		p.Past.Ancestors[i] = ctx.Ancestor{ID: ctx.MessageID(r.id()), Parents: r.ids()}
	}
	return p
}

func (r *cursor) ids() []ctx.MessageID {
	n := r.bounded(uint64(len(r.b) / 8))
	if n == 0 {
		return nil
	}
	ids := make([]ctx.MessageID, n)
	for i := range ids {
		ids[i] = ctx.MessageID(r.id())
	}
	return ids
}
