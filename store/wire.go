package store

import (
	"encoding/binary"
	"errors"
	"io"
)

// The TCPStore protocol: an opcode byte and its arguments, answered by the bare result. There is no
// framing. A string is a u64 length and its bytes, a count is u64, a number is i64, all
// little-endian. dialect.go has the opcodes and says what Weft's own mode is.

// Single-byte answers.
const (
	byteReady      = 0 // check: all keys exist
	byteNotReady   = 1
	byteStop       = 0 // wait, barrier: it is over
	byteCancelled  = 1 // cancel_wait
	byteRegistered = 3 // watch: news will follow
)

// magic is what a client of Dialect22 sends first, after the opcode of opValidate.
const magic = 0x3C85F7CE

// appended is what PyTorch 2.0 tells of a watched key that grew: of no old value, and as the new
// one of what was appended.
const appended ChangeKind = 4

// Statuses of Weft's own mode. Those between are errors, by their place in statusErrors.
const (
	statusOK        = 0
	statusCancelled = 0xFE // the answer to CANCEL_WAIT
	statusNews      = 0xFF // not an answer
)

// statusErrors are the errors that keep their identity on the wire; others go as status 1.
var statusErrors = [...]error{2: ErrNotANumber, ErrTooLarge, ErrFull, errNoKey, ErrProtocol, ErrUnsupported, ErrBadKey, ErrClosed}

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

// encoder collects what is to be sent. With a writer, b goes there as it fills, and large values do
// without being copied.
type encoder struct {
	b    []byte
	to   io.Writer // nil: b holds everything
	sent uint64    // bytes that the writer took
	err  error     // the writer's first
}

// encoderFull is how much an encoder with a writer collects.
const encoderFull = 16 << 10

func (e *encoder) flush() {
	e.emit(e.b)
	e.b = e.b[:0]
}

func (e *encoder) emit(b []byte) {
	if e.err == nil && len(b) > 0 {
		var n int
		n, e.err = e.to.Write(b)
		e.sent += uint64(n)
	}
}

func (e *encoder) byte(b byte)  { e.b = append(e.b, b) }
func (e *encoder) u64(n uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, n) }
func (e *encoder) count(n int)  { e.u64(uint64(n)) }

func (e *encoder) bytes(v []byte) {
	e.count(len(v))
	if e.to != nil && len(e.b)+len(v) > encoderFull {
		e.flush()
		if len(v) >= encoderFull {
			e.emit(v)
			return
		}
	}
	e.b = append(e.b, v...)
}

func (e *encoder) string(s string) {
	e.count(len(s))
	if e.to != nil && len(e.b)+len(s) > encoderFull {
		e.flush()
	}
	e.b = append(e.b, s...)
}

func (e *encoder) strings(keys []string) {
	e.count(len(keys))
	for _, k := range keys {
		e.string(k)
	}
}

// appendCommand writes a command as a client does. It fails with ErrUnsupported, and has written
// nothing, where the dialect has no such command.
func (w wire) appendCommand(b []byte, cmd command) ([]byte, error) {
	e := encoder{b: b}
	err := w.writeCommand(&e, cmd)
	return e.b, err
}

func (w wire) writeCommand(e *encoder, cmd command) error {
	code, err := w.code(cmd.op)
	if err != nil {
		return err
	}
	e.byte(code)
	switch cmd.op {
	case opNumKeys, opList, opCancelWait:
	case opValidate:
		e.b = binary.LittleEndian.AppendUint32(e.b, magic)
	case opPing:
		e.b = binary.LittleEndian.AppendUint32(e.b, uint32(cmd.delta))
	case opCheck, opWait, opMultiGet, opFetch:
		e.strings(cmd.keys)
	case opMultiSet:
		e.count(len(cmd.pairs))
		for _, p := range cmd.pairs {
			e.string(p.Key)
			e.bytes(p.Value)
		}
	default:
		e.string(cmd.key)
		e.arguments(cmd)
	}
	return nil
}

// arguments are what follows the one key.
func (e *encoder) arguments(cmd command) {
	switch cmd.op {
	case opCompareSet:
		e.bytes(cmd.expected)
		e.bytes(cmd.value)
	case opSet, opAppend, opPush:
		e.bytes(cmd.value)
	case opAdd, opBarrier, opArrive, opReach:
		e.u64(uint64(cmd.delta))
	}
}

// settle says whether a reply is sent, and changes what the dialect puts in other words. An error
// is for what it has no word for: then the connection is closed. cause is the command that led to
// the reply, another client's perhaps.
func (w wire) settle(r *reply, cause op) (send bool, err error) {
	if r.err == nil && r.op == opMultiGet && !r.ok {
		r.err = errNoKey
	}
	switch {
	case w.own:
		return true, nil
	case r.err == nil:
	case w.dialect == Dialect22 && errors.Is(r.err, errNoKey):
		r.err = nil // what is missing is empty there
	default:
		return false, r.err
	}
	if r.op == opNews && r.event == Updated && cause == opAppend && w.dialect == Dialect20 {
		r.event, r.old, r.value = appended, nil, r.value[len(r.old):]
	}
	return w.answered(r.op), nil
}

// appendReply writes a reply as the server does. Errors can be told in Weft's own mode only.
func (w wire) appendReply(b []byte, r reply) []byte {
	e := encoder{b: b}
	w.writeReply(&e, r)
	return e.b
}

func (w wire) writeReply(e *encoder, r reply) {
	if w.own {
		switch {
		case r.err != nil:
			msg := r.err.Error()
			e.byte(statusOf(r.err))
			e.string(msg[:min(len(msg), maxTold)])
			return
		case r.op == opCancelWait:
			e.byte(statusCancelled)
			return
		case r.op == opNews:
			e.byte(statusNews)
		default:
			e.byte(statusOK)
		}
	}
	switch r.op {
	case opGet, opCompareSet:
		e.bytes(r.value)
	case opAdd, opArrive, opNumKeys, opDelete, opLen:
		e.u64(uint64(r.n))
	case opCheck:
		e.byte(choice(r.ok, byteReady, byteNotReady))
	case opWait, opBarrier, opReady, opReach:
		e.byte(byteStop)
	case opCancelWait:
		e.byte(byteCancelled)
	case opMultiGet, opFetch:
		for _, v := range r.values {
			e.bytes(v)
		}
	case opPop:
		if e.u64(uint64(r.n)); r.n > 0 {
			e.bytes(r.value)
		}
	case opList:
		e.strings(r.keys)
	case opPing:
		e.b = binary.LittleEndian.AppendUint32(e.b, uint32(r.n))
	case opWatch:
		if !w.own {
			e.byte(byteRegistered)
		}
	case opNews:
		e.byte(byte(r.event))
		e.string(r.key)
		e.bytes(r.old)
		e.bytes(r.value)
	}
}

func choice(first bool, a, b byte) byte {
	if first {
		return a
	}
	return b
}

// brokeRule says whether err is what a client did, and not what became of its connection.
func brokeRule(err error) bool {
	return statusOf(err) != statusOther
}
