package wire

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Reply reads what the server says next to who awaits the answer to cmd: that answer, whose err
// says why the command failed; news of a watched key (OpNews), in the middle of which the answer is
// still to come; or after a CANCEL_WAIT was sent that the wait is cancelled (OpCancelWait). A
// client that awaits no answer but news asks for a command of OpNews. An error means that the
// connection is of no more use.
func (d *Decoder) Reply(cmd state.Command) (state.Reply, error) {
	if d.Own {
		return d.ownReply(cmd)
	}
	r := state.Reply{Op: cmd.Op}
	var b byte
	var err error
	switch cmd.Op {
	case state.OpWait, state.OpBarrier, state.OpCancelWait:
		valid := []byte{ByteStop, byteCancelled}
		if d.Dialect == Dialect113 {
			valid = valid[:1]
		}
		if b, err = d.oneOf(cmd.Op, valid...); b == byteCancelled {
			r.Op = state.OpCancelWait
		} else if cmd.Op == state.OpCancelWait {
			r.Op = state.OpWait // it was quicker
		}
	case state.OpWatch, state.OpNews:
		b, err = d.oneOf(cmd.Op, byte(kv.Updated), byte(kv.Created), byte(kv.Deleted), byte(appended), byteRegistered)
		if err == nil && b != byteRegistered {
			return d.news(b)
		}
		if err == nil && cmd.Op == state.OpNews {
			err = fmt.Errorf("%w: a watch that was not asked for", kv.ErrProtocol)
		}
	default:
		err = d.body(&r, cmd)
	}
	return r, unexpected(err)
}

// ownReply is reply in Weft's own mode.
func (d *Decoder) ownReply(cmd state.Command) (state.Reply, error) {
	status, err := d.Reader.ReadByte()
	if err != nil {
		return state.Reply{}, unexpected(err)
	}
	r := state.Reply{Op: cmd.Op}
	switch {
	case status == statusNews:
		b, err := d.oneOf(state.OpNews, byte(kv.Updated), byte(kv.Created), byte(kv.Deleted))
		if err != nil {
			return r, unexpected(err)
		}
		return d.news(b)
	case cmd.Op == state.OpNews:
		err = fmt.Errorf("%w: status %d where nothing was asked", kv.ErrProtocol, status)
	case status == statusCancelled:
		r.Op = state.OpCancelWait
	case status == statusOK && cmd.Op == state.OpCancelWait:
		err = fmt.Errorf("%w: cancel_wait was answered with 0", kv.ErrProtocol)
	case status == statusOK:
		err = d.body(&r, cmd)
	default:
		r.Err, err = d.told(status)
	}
	return r, unexpected(err)
}

func (d *Decoder) told(status byte) (told, err error) {
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
func (d *Decoder) body(r *state.Reply, cmd state.Command) (err error) {
	switch cmd.Op {
	case state.OpGet, state.OpCompareSet:
		r.Value, err = d.bytes(d.Limits.Value, "value")
	case state.OpAdd, state.OpArrive, state.OpNumKeys, state.OpDelete, state.OpLen:
		r.N, err = d.i64()
	case state.OpCheck:
		var b byte
		b, err = d.oneOf(cmd.Op, byteReady, byteNotReady)
		r.OK = b == byteReady
	case state.OpWait, state.OpBarrier, state.OpReady, state.OpReach:
		_, err = d.oneOf(cmd.Op, ByteStop)
	case state.OpMultiGet, state.OpFetch:
		for err == nil && len(r.Values) < len(cmd.Keys) {
			var v []byte
			v, err = d.bytes(d.Limits.Value, "value")
			r.Values = append(r.Values, v)
		}
	case state.OpPop:
		if r.N, err = d.i64(); err == nil && r.N > 0 {
			r.Value, err = d.bytes(d.Limits.Value, "value")
		}
	case state.OpList:
		r.Keys, err = d.list()
	case state.OpPing:
		var n uint32
		n, err = d.u32()
		r.N = int64(n)
	}
	return err
}

// list reads all keys of a store, however many.
func (d *Decoder) list() ([]string, error) {
	n, err := d.u64()
	var keys []string
	for total, most := 0, listMost*d.Limits.Value; err == nil && uint64(len(keys)) < n; {
		var key string
		if key, err = d.key(); err != nil {
			break
		}
		if total += len(key) + 16; total > most {
			return nil, fmt.Errorf("%w: a list of keys that needs more than %d bytes", kv.ErrTooLarge, most)
		}
		keys = append(keys, key)
	}
	return keys, err
}

// news reads the rest of what is told of a watched key.
func (d *Decoder) news(kind byte) (state.Reply, error) {
	r := state.Reply{Op: state.OpNews, Event: kv.ChangeKind(kind)}
	var err error
	if r.Key, err = d.key(); err == nil {
		if r.Old, err = d.bytes(d.Limits.Value, "value"); err == nil {
			r.Value, err = d.bytes(d.Limits.Value, "value")
		}
	}
	return r, unexpected(err)
}

// oneOf reads a byte that is one of few.
func (d *Decoder) oneOf(what state.Op, valid ...byte) (byte, error) {
	b, err := d.Reader.ReadByte()
	if err == nil && !slices.Contains(valid, b) {
		err = fmt.Errorf("%w: %v was answered with %d", kv.ErrProtocol, what, b)
	}
	return b, err
}
