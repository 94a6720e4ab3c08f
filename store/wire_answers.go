package store

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/internal/printable"
)

// reply reads what the server says next to who awaits the answer to cmd: that answer, whose err
// says why the command failed; news of a watched key (opNews), in the middle of which the answer is
// still to come; or after a CANCEL_WAIT was sent that the wait is cancelled (opCancelWait). A
// client that awaits no answer but news asks for a command of opNews. An error means that the
// connection is of no more use.
func (d *decoder) reply(cmd command) (reply, error) {
	if d.own {
		return d.ownReply(cmd)
	}
	r := reply{op: cmd.op}
	var b byte
	var err error
	switch cmd.op {
	case opWait, opBarrier, opCancelWait:
		valid := []byte{byteStop, byteCancelled}
		if d.dialect == Dialect113 {
			valid = valid[:1]
		}
		if b, err = d.oneOf(cmd.op, valid...); b == byteCancelled {
			r.op = opCancelWait
		} else if cmd.op == opCancelWait {
			r.op = opWait // it was quicker
		}
	case opWatch, opNews:
		b, err = d.oneOf(cmd.op, byte(Updated), byte(Created), byte(Deleted), byte(appended), byteRegistered)
		if err == nil && b != byteRegistered {
			return d.news(b)
		}
		if err == nil && cmd.op == opNews {
			err = fmt.Errorf("%w: a watch that was not asked for", ErrProtocol)
		}
	default:
		err = d.body(&r, cmd)
	}
	return r, unexpected(err)
}

// ownReply is reply in Weft's own mode.
func (d *decoder) ownReply(cmd command) (reply, error) {
	status, err := d.r.ReadByte()
	if err != nil {
		return reply{}, unexpected(err)
	}
	r := reply{op: cmd.op}
	switch {
	case status == statusNews:
		b, err := d.oneOf(opNews, byte(Updated), byte(Created), byte(Deleted))
		if err != nil {
			return r, unexpected(err)
		}
		return d.news(b)
	case cmd.op == opNews:
		err = fmt.Errorf("%w: status %d where nothing was asked", ErrProtocol, status)
	case status == statusCancelled:
		r.op = opCancelWait
	case status == statusOK && cmd.op == opCancelWait:
		err = fmt.Errorf("%w: cancel_wait was answered with 0", ErrProtocol)
	case status == statusOK:
		err = d.body(&r, cmd)
	default:
		r.err, err = d.told(status)
	}
	return r, unexpected(err)
}

func (d *decoder) told(status byte) (told, err error) {
	msg, err := d.bytes(maxTold, "error")
	if err != nil {
		return nil, err
	}
	e := &toldError{msg: printable.Text(string(msg), maxTold)}
	if int(status) < len(statusErrors) {
		e.is = statusErrors[status]
	}
	return e, nil
}

// body reads what is left of an answer when nothing went wrong.
func (d *decoder) body(r *reply, cmd command) (err error) {
	switch cmd.op {
	case opGet, opCompareSet:
		r.value, err = d.bytes(d.limits.Value, "value")
	case opAdd, opArrive, opNumKeys, opDelete, opLen:
		r.n, err = d.i64()
	case opCheck:
		var b byte
		b, err = d.oneOf(cmd.op, byteReady, byteNotReady)
		r.ok = b == byteReady
	case opWait, opBarrier, opReady, opReach:
		_, err = d.oneOf(cmd.op, byteStop)
	case opMultiGet, opFetch:
		for err == nil && len(r.values) < len(cmd.keys) {
			var v []byte
			v, err = d.bytes(d.limits.Value, "value")
			r.values = append(r.values, v)
		}
	case opPop:
		if r.n, err = d.i64(); err == nil && r.n > 0 {
			r.value, err = d.bytes(d.limits.Value, "value")
		}
	case opList:
		r.keys, err = d.list()
	case opPing:
		var n uint32
		n, err = d.u32()
		r.n = int64(n)
	}
	return err
}

// list reads all keys of a store, however many.
func (d *decoder) list() ([]string, error) {
	n, err := d.u64()
	var keys []string
	for total, most := 0, listMost*d.limits.Value; err == nil && uint64(len(keys)) < n; {
		var key string
		if key, err = d.key(); err != nil {
			break
		}
		if total += len(key) + 16; total > most {
			return nil, fmt.Errorf("%w: a list of keys that needs more than %d bytes", ErrTooLarge, most)
		}
		keys = append(keys, key)
	}
	return keys, err
}

// news reads the rest of what is told of a watched key.
func (d *decoder) news(kind byte) (reply, error) {
	r := reply{op: opNews, event: ChangeKind(kind)}
	var err error
	if r.key, err = d.key(); err == nil {
		if r.old, err = d.bytes(d.limits.Value, "value"); err == nil {
			r.value, err = d.bytes(d.limits.Value, "value")
		}
	}
	return r, unexpected(err)
}

// oneOf reads a byte that is one of few.
func (d *decoder) oneOf(what op, valid ...byte) (byte, error) {
	b, err := d.r.ReadByte()
	if err == nil && !slices.Contains(valid, b) {
		err = fmt.Errorf("%w: %v was answered with %d", ErrProtocol, what, b)
	}
	return b, err
}
