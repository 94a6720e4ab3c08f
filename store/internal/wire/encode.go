package wire

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Single-byte answers.
const (
	byteReady      = 0 // check: all keys exist
	byteNotReady   = 1
	ByteStop       = 0 // wait, barrier: it is over
	byteCancelled  = 1 // cancel_wait
	byteRegistered = 3 // watch: news will follow
)

// magic is what a client of Dialect22 sends first, after the opcode of OpValidate.
const magic = 0x3C85F7CE

// appended is what PyTorch 2.0 tells of a watched key that grew: of no old value, and as the new
// one of what was appended.
const appended kv.ChangeKind = 4

// Statuses of Weft's own mode. Those between are errors, by their place in statusErrors.
const (
	statusOK        = 0
	statusCancelled = 0xFE // the answer to CANCEL_WAIT
	statusNews      = 0xFF // not an answer
)

// statusErrors are the errors that keep their identity on the wire; others go as status 1.
var statusErrors = [...]error{2: kv.ErrNotANumber, kv.ErrTooLarge, kv.ErrFull, kv.ErrNoKey, kv.ErrProtocol, kv.ErrUnsupported, kv.ErrBadKey, kv.ErrClosed}

const statusOther = 1

func statusOf(err error) byte {
	for i, known := range statusErrors {
		if known != nil && errors.Is(err, known) {
			return byte(i)
		}
	}
	return statusOther
}

// toldError is what a server said went wrong.
type toldError struct {
	msg string
	is  error // one of statusErrors, or nil
}

func (e *toldError) Error() string { return e.msg }
func (e *toldError) Unwrap() error { return e.is }

// maxTold bounds the text of an error.
const maxTold = 1 << 10

// Encoder collects what is to be sent. With a writer, Buf goes there as it fills, and large values
// do without being copied.
type Encoder struct {
	Buf  []byte
	To   io.Writer // nil: Buf holds everything
	Sent uint64    // bytes that the writer took
	Err  error     // the writer's first
}

// EncoderFull is how much an encoder with a writer collects.
const EncoderFull = 16 << 10

// Flush writes what is collected.
func (e *Encoder) Flush() {
	e.Emit(e.Buf)
	e.Buf = e.Buf[:0]
}

// Emit writes b as it is.
func (e *Encoder) Emit(b []byte) {
	if e.Err == nil && len(b) > 0 {
		var n int
		n, e.Err = e.To.Write(b)
		e.Sent += uint64(n)
	}
}

func (e *Encoder) byte(b byte)  { e.Buf = append(e.Buf, b) }
func (e *Encoder) u64(n uint64) { e.Buf = binary.LittleEndian.AppendUint64(e.Buf, n) }
func (e *Encoder) count(n int)  { e.u64(uint64(n)) }

func (e *Encoder) bytes(v []byte) {
	e.count(len(v))
	if e.To != nil && len(e.Buf)+len(v) > EncoderFull {
		e.Flush()
		if len(v) >= EncoderFull {
			e.Emit(v)
			return
		}
	}
	e.Buf = append(e.Buf, v...)
}

func (e *Encoder) string(s string) {
	e.count(len(s))
	if e.To != nil && len(e.Buf)+len(s) > EncoderFull {
		e.Flush()
	}
	e.Buf = append(e.Buf, s...)
}

func (e *Encoder) strings(keys []string) {
	e.count(len(keys))
	for _, k := range keys {
		e.string(k)
	}
}

// AppendCommand writes a command as a client does. It fails with ErrUnsupported, and has written
// nothing, where the dialect has no such command.
func (w Protocol) AppendCommand(b []byte, cmd state.Command) ([]byte, error) {
	e := Encoder{Buf: b}
	err := w.writeCommand(&e, cmd)
	return e.Buf, err
}

func (w Protocol) writeCommand(e *Encoder, cmd state.Command) error {
	code, err := w.Code(cmd.Op)
	if err != nil {
		return err
	}
	e.byte(code)
	switch cmd.Op {
	case state.OpNumKeys, state.OpList, state.OpCancelWait:
	case state.OpValidate:
		e.Buf = binary.LittleEndian.AppendUint32(e.Buf, magic)
	case state.OpPing:
		e.Buf = binary.LittleEndian.AppendUint32(e.Buf, uint32(cmd.Delta))
	case state.OpCheck, state.OpWait, state.OpMultiGet, state.OpFetch:
		e.strings(cmd.Keys)
	case state.OpMultiSet:
		e.count(len(cmd.Pairs))
		for _, p := range cmd.Pairs {
			e.string(p.Key)
			e.bytes(p.Value)
		}
	default:
		e.string(cmd.Key)
		e.arguments(cmd)
	}
	return nil
}

// arguments are what follows the one key.
func (e *Encoder) arguments(cmd state.Command) {
	switch cmd.Op {
	case state.OpCompareSet:
		e.bytes(cmd.Expected)
		e.bytes(cmd.Value)
	case state.OpSet, state.OpAppend, state.OpPush:
		e.bytes(cmd.Value)
	case state.OpAdd, state.OpBarrier, state.OpArrive, state.OpReach:
		e.u64(uint64(cmd.Delta))
	}
}

// Adapt says whether a reply is sent, and changes what the dialect puts in other words. An error
// is for what it has no word for: then the connection is closed. cause is the command that led to
// the reply, another client's perhaps.
func (w Protocol) Adapt(r *state.Reply, cause state.Op) (send bool, err error) {
	if r.Err == nil && r.Op == state.OpMultiGet && !r.OK {
		r.Err = kv.ErrNoKey
	}
	switch {
	case w.Own:
		return true, nil
	case r.Err == nil:
	case w.Dialect == Dialect22 && errors.Is(r.Err, kv.ErrNoKey):
		r.Err = nil // what is missing is empty there
	default:
		return false, r.Err
	}
	if r.Op == state.OpNews && r.Event == kv.Updated && cause == state.OpAppend && w.Dialect == Dialect20 {
		r.Event, r.Old, r.Value = appended, nil, r.Value[len(r.Old):]
	}
	return w.Answered(r.Op), nil
}

// AppendReply writes a reply as the server does. Errors can be told in Weft's own mode only.
func (w Protocol) AppendReply(b []byte, r state.Reply) []byte {
	e := Encoder{Buf: b}
	w.WriteReply(&e, r)
	return e.Buf
}

// WriteReply writes a reply as the server does. Errors can be told in Weft's own mode only.
func (w Protocol) WriteReply(e *Encoder, r state.Reply) {
	if w.Own {
		switch {
		case r.Err != nil:
			msg := r.Err.Error()
			e.byte(statusOf(r.Err))
			e.string(msg[:min(len(msg), maxTold)])
			return
		case r.Op == state.OpCancelWait:
			e.byte(statusCancelled)
			return
		case r.Op == state.OpNews:
			e.byte(statusNews)
		default:
			e.byte(statusOK)
		}
	}
	switch r.Op {
	case state.OpGet, state.OpCompareSet:
		e.bytes(r.Value)
	case state.OpAdd, state.OpArrive, state.OpNumKeys, state.OpDelete, state.OpLen:
		e.u64(uint64(r.N))
	case state.OpCheck:
		e.byte(choice(r.OK, byteReady, byteNotReady))
	case state.OpWait, state.OpBarrier, state.OpReady, state.OpReach:
		e.byte(ByteStop)
	case state.OpCancelWait:
		e.byte(byteCancelled)
	case state.OpMultiGet, state.OpFetch:
		for _, v := range r.Values {
			e.bytes(v)
		}
	case state.OpPop:
		if e.u64(uint64(r.N)); r.N > 0 {
			e.bytes(r.Value)
		}
	case state.OpList:
		e.strings(r.Keys)
	case state.OpPing:
		e.Buf = binary.LittleEndian.AppendUint32(e.Buf, uint32(r.N))
	case state.OpWatch:
		if !w.Own {
			e.byte(byteRegistered)
		}
	case state.OpNews:
		e.byte(byte(r.Event))
		e.string(r.Key)
		e.bytes(r.Old)
		e.bytes(r.Value)
	}
}

func choice(first bool, a, b byte) byte {
	if first {
		return a
	}
	return b
}

// BrokeRule says whether err is what a client did, and not what became of its connection.
func BrokeRule(err error) bool {
	return statusOf(err) != statusOther
}
