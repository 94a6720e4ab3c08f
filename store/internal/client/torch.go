package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// What a server of PyTorch's lacks, put together of what it has.

// unlikely is compared with a value to read it: COMPARE_SET of a missing key answers what was
// expected, and of another value that value. Nobody stores this one.
const unlikely = "weft: no such key. \x9d\x1f\xc3\x0a\xe2\x84\x5b\x76\xb1\x08\xdd\x93\x4e\xf0\x2c\x67"

// peek asks for what may not be there, in one round trip. It is for the servers that do not wake
// who waits for a key when a COMPARE_SET fails: that of 1.13 and its like.
func (l *link) peek(keys ...string) (values [][]byte, err error) {
	const most = 16 << 10 // asked at once: a server that is written to while it answers must not block us
	for chunk := range chunked(keys, most) {
		cmds := make([]*state.Command, len(chunk))
		for i, key := range chunk {
			cmds[i] = &state.Command{Op: state.OpCompareSet, Key: key, Expected: []byte(unlikely), Value: []byte(unlikely)}
		}
		before := l.sent
		err := l.send(cmds...)
		l.sent = before // it changes nothing
		for _, cmd := range cmds {
			var r state.Reply
			if err == nil {
				r, err = l.read(cmd)
			}
			if err != nil {
				return nil, err
			}
			if bytes.Equal(r.Value, []byte(unlikely)) {
				r.Value = nil
			}
			values = append(values, r.Value)
		}
	}
	return values, nil
}

// chunked cuts keys into pieces of about as many bytes.
func chunked(keys []string, most int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(keys) > 0 {
			n, size := 0, 0
			for n < len(keys) && (n == 0 || size < most) {
				size += len(keys[n]) + 128
				n++
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

func (l *link) peeks() bool { return l.in.Dialect == wire.Dialect113 || l.in.Dialect == wire.Dialect20 }

func missing(values [][]byte) bool {
	return slices.ContainsFunc(values, func(v []byte) bool { return v == nil })
}

// fetch waits for all keys and reads their values, in one command with Weft's server. Without an
// error and values the keys were there, but not when they were read. turn is await's.
func (l *link) fetch(cmd state.Command, turn int) ([][]byte, error) {
	switch {
	case l.in.Own:
		r, err := l.ask(cmd)
		return r.Values, err
	case l.in.Dialect == wire.Dialect113 || l.peeks() && len(cmd.Keys) == 1: // several at one moment only MULTI_GET reads
		values, err := l.peek(cmd.Keys...)
		if err == nil && missing(values) {
			err = l.await(cmd.Keys, turn)
			values = nil
		}
		return values, err
	}
	if err := l.await(cmd.Keys, turn); err != nil {
		return nil, err
	}
	values, err := l.getAll(cmd.Keys)
	if err != nil || missing(values) {
		values = nil
	}
	return values, err
}

// errNotYet is a wait that is to be begun anew, on another connection: this one's server cannot
// take it back.
var errNotYet = errors.New("not there yet")

// await is WAIT. Most of PyTorch's servers do not wake all who should be (of what a COMPARE_SET
// made, nobody), so with them the wait is begun anew from time to time, first soon; turn counts how
// often it ended with errNotYet.
func (l *link) await(keys []string, turn int) error {
	cmd := &state.Command{Op: state.OpWait, Keys: keys}
	if l.in.Own {
		_, err := l.ask(*cmd)
		return err
	}
	for ; ; turn++ {
		if err := l.send(cmd); err != nil {
			return err
		}
		there, over, err := l.listen(5 * kv.PollEvery << min(turn, 5))
		switch {
		case err != nil:
			return err
		case there:
			_, err := l.read(cmd)
			return err
		case over:
			_, err := l.giveUp(cmd)
			return err
		case !l.cancels():
			return errNotYet
		}
		if _, err := l.cancel(cmd); !errors.Is(err, errGivenUp) {
			return err
		}
		l.settled = false
	}
}

// listen waits for a word of the server for so long, or until the operation is over.
func (l *link) listen(d time.Duration) (there, over bool, err error) {
	whole, until := l.bound, time.Now().Add(d)
	last := !until.Before(l.end)
	if last {
		until = l.end
	}
	l.until(until)
	_, err = l.in.Reader.Peek(1)
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		l.until(whole)
		return err == nil, false, err
	}
	if last || l.over.Load() {
		return false, true, nil
	}
	l.until(whole)
	return false, false, nil
}

// getAll reads values of which a missing one is nil. The servers that do not hang up answer an
// empty value for a missing key. If the key exists otherwise, nobody waits for it, and it can be
// peeked at.
func (l *link) getAll(keys []string) ([][]byte, error) {
	r, err := l.ask(state.Command{Op: state.OpMultiGet, Keys: keys})
	if err != nil || !slices.ContainsFunc(r.Values, func(v []byte) bool { return len(v) == 0 }) {
		return r.Values, err
	}
	if there, err := l.ask(state.Command{Op: state.OpCheck, Keys: keys}); err != nil || !there.OK {
		return make([][]byte, len(keys)), err
	}
	return l.peek(keys...)
}

// look reads a value that may be missing, then nil.
func (l *link) look(key string) ([]byte, error) {
	if l.peeks() {
		values, err := l.peek(key)
		if err != nil {
			return nil, err
		}
		return values[0], nil
	}
	there, err := l.ask(state.Command{Op: state.OpCheck, Keys: []string{key}})
	if err != nil || !there.OK {
		return nil, err
	}
	values, err := l.getAll([]string{key})
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// setEach is MULTI_SET where there is none.
func (l *link) setEach(pairs []kv.Pair) error {
	const most = 64
	for chunk := range slices.Chunk(pairs, most) {
		cmds := make([]*state.Command, len(chunk))
		for i, p := range chunk {
			cmds[i] = &state.Command{Op: state.OpSet, Key: p.Key, Value: p.Value}
		}
		if err := l.askAll(cmds...); err != nil {
			return err
		}
	}
	return nil
}

// askAll sends commands at once and waits until all are done.
func (l *link) askAll(cmds ...*state.Command) error {
	err := l.send(cmds...)
	for i := 0; err == nil && i < len(cmds); i++ {
		_, err = l.read(cmds[i])
	}
	return err
}

// count runs ask, which adds to the number at key. PyTorch's servers hang up where the value is no
// number. own says whether a Weft server answered.
func (cl *Client) count(k *call, key string, ask func(*link) (state.Reply, error)) (r state.Reply, own bool, err error) {
	err = cl.withRetry(k, func(l *link) (err error) {
		own = l.in.Own
		r, err = ask(l)
		return err
	})
	if own || !errors.Is(err, errHungUp) {
		return r, own, err
	}
	var value []byte
	if why := cl.try(k, time.Now(), func(l *link) (err error) {
		value, err = l.look(key)
		return err
	}); why.err == nil && value != nil {
		if _, wrong := kv.ParseDecimal(value); wrong != nil {
			err = wrong
		}
	}
	return state.Reply{}, own, err
}

// barrier is Barrier. It has two steps: it arrives, and it waits. To wait changes nothing, so that
// goes on over a new connection. A PyTorch server that has BARRIER is asked for it, because an ADD
// to the key would let go whoever waits there. The others get an ADD. Where nobody says that all
// have come, the number is looked at.
func (cl *Client) barrier(k *call, cmd state.Command) error {
	const probe = "weft/barrier" // without a slash in front it is nobody's
	lacks := cl.supports(k, &state.Command{Op: state.OpBarrier, Key: probe, Delta: 1}, &state.Command{Op: state.OpDelete, Key: probe})
	if lacks != nil && !errors.Is(lacks, kv.ErrUnsupported) {
		return lacks
	}
	var arrived bool
	r, own, err := cl.count(k, cmd.Key, func(l *link) (state.Reply, error) {
		switch {
		case l.in.Own:
			return l.ask(cmd)
		case arrived: // on a connection that was lost
			return state.Reply{}, nil
		case lacks == nil:
			return l.barrier(cmd, &arrived)
		}
		return l.ask(state.Command{Op: state.OpAdd, Key: cmd.Key, Delta: 1})
	})
	if own && err == nil && r.N < cmd.Delta {
		_, err = cl.ask(k, state.Command{Op: state.OpReach, Key: cmd.Key, Delta: cmd.Delta})
		return err
	}
	for n := r.N; err == nil && !own && n < cmd.Delta; {
		if err = cl.pause(k, kv.PollEvery); err != nil {
			break
		}
		err = cl.withRetry(k, func(l *link) error {
			value, err := l.look(cmd.Key)
			if err == nil && value != nil {
				n, err = kv.ParseDecimal(value)
			}
			return err
		})
	}
	return err
}

// barrier is BARRIER at a PyTorch server. The PING behind it is answered at once. From then on it
// is certain that we have arrived, and only the waiting is left.
func (l *link) barrier(cmd state.Command, arrived *bool) (state.Reply, error) {
	cmd.Op = state.OpBarrier
	passed := state.Reply{Op: state.OpBarrier, N: cmd.Delta}
	ping := state.Command{Op: state.OpPing, Delta: 0xff} // begins with no answer to a BARRIER
	if err := l.send(&cmd, &ping); err != nil {
		return state.Reply{}, err
	}
	first, err := l.in.Reader.Peek(1)
	if err != nil {
		return state.Reply{}, err
	}
	*arrived = true
	atOnce := first[0] == wire.ByteStop
	if atOnce {
		if _, err := l.read(&cmd); err != nil {
			return state.Reply{}, err
		}
	}
	if r, err := l.read(&ping); err != nil || r.N != ping.Delta {
		return state.Reply{}, cmp.Or(err, fmt.Errorf("%w: barrier was answered with %d", kv.ErrProtocol, first[0]))
	}
	if !atOnce {
		_, err = l.answer(&cmd)
	}
	return passed, err
}

// pop is Pop: a look, a wait and again a look, which may find nothing any more. Only a look changes
// anything, so who loses the connection while it waits has lost nothing, and may do it again on
// another. The wait of PyTorch's servers ends at once where the key has a value, and does not end
// where they told of a push somebody who had given up. turn is await's.
func (l *link) pop(cmd state.Command, turn int) (value []byte, ok bool, err error) {
	for {
		r, err := l.ask(cmd)
		if err != nil || r.N > 0 {
			return r.Value, r.N > 0, err
		}
		if l.late {
			l.settled = true
			return nil, false, errGivenUp
		}
		if !l.in.Own {
			return nil, false, l.await([]string{cmd.Key}, turn)
		}
		if _, err := l.ask(state.Command{Op: state.OpReady, Key: cmd.Key}); err != nil {
			return nil, false, err
		}
	}
}

// newer is a method of a command that only PyTorch's newer servers know. For harmless see supports.
func (cl *Client) newer(c context.Context, name string, cmd, harmless state.Command) (state.Reply, error) {
	k, cmd, err := cl.prepare(c, name, cmd)
	if err != nil {
		return state.Reply{}, err
	}
	var r state.Reply
	if err = cl.supports(k, &harmless); err == nil {
		r, err = cl.ask(k, cmd)
	}
	if err != nil {
		return state.Reply{}, k.fail(err)
	}
	return r, nil
}

// errRefused is a server that hung up because of what it was asked.
var errRefused = errors.New("the server hangs up when it is asked")

// supports finds out whether the server knows a command: a PyTorch server that does not hangs up.
// It may have hung up for another reason, so it is asked twice, and in between what it certainly
// knows. The first of harmless is the command, or one that came with it. The rest takes back what
// it does.
func (cl *Client) supports(k *call, harmless ...*state.Command) error {
	what := harmless[0].Op
	cl.mu.Lock()
	knows, asked := cl.knows[what]
	cl.mu.Unlock()
	if asked && knows {
		return nil
	}
	for tries := 0; !asked; tries++ {
		err := cl.withRetry(k, func(l *link) error {
			if l.in.Own {
				return nil
			}
			err := l.askAll(harmless...)
			l.sent = reads // as far as anybody else can see
			if err != nil && hungUp(err) {
				err = fmt.Errorf("%w: %w", errRefused, err)
			}
			return err
		})
		switch {
		case errors.Is(err, kv.ErrUnsupported):
			return tooOld(what, err)
		case err != nil && (!errors.Is(err, errRefused) || errors.Is(err, kv.ErrTimeout)):
			return err
		}
		knows, asked = err == nil, err == nil || tries > 0
		if !asked {
			if k.isOver() {
				return k.over()
			}
			if _, err := cl.ask(k, state.Command{Op: state.OpNumKeys}); err != nil {
				return err
			}
		}
	}
	cl.mu.Lock()
	cl.knows[what] = knows
	cl.mu.Unlock()
	if !knows {
		return tooOld(what, fmt.Errorf("%w: %w", kv.ErrUnsupported, errRefused))
	}
	return nil
}

func tooOld(o state.Op, err error) error {
	what := "queues need a Weft server, or PyTorch 2.8 or later with libuv"
	switch o {
	case state.OpList:
		what = "a list of keys needs a Weft server, or PyTorch 2.15 or one before it that has LIST_KEYS"
	case state.OpAppend:
		what = "it needs a Weft server, or PyTorch 2.0 or later"
	}
	return fmt.Errorf("%w; %s", err, what)
}
