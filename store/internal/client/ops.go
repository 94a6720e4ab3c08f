package client

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// ask is an operation of one command.
func (cl *Client) ask(k *call, cmd state.Command) (state.Reply, error) {
	var r state.Reply
	err := cl.withRetry(k, func(l *link) (err error) {
		r, err = l.ask(cmd)
		return err
	})
	return r, err
}

// do is a method of one command.
func (cl *Client) do(c context.Context, name string, cmd state.Command) (state.Reply, error) {
	k, cmd, err := cl.prepare(c, name, cmd)
	if err != nil {
		return state.Reply{}, err
	}
	r, err := cl.ask(k, cmd)
	if err != nil {
		return state.Reply{}, k.fail(err)
	}
	return r, nil
}

// prepare checks a command and puts the slash before its keys.
func (cl *Client) prepare(c context.Context, name string, cmd state.Command) (*call, state.Command, error) {
	k, err := cl.begin(c, name, cmd.Names()...)
	if err != nil {
		return nil, cmd, err
	}
	if err := cmd.CheckValues(cl.base); err != nil {
		return nil, cmd, k.fail(err)
	}
	if cmd.Key != "" {
		cmd.Key = "/" + cmd.Key
	}
	if len(cmd.Keys) > 0 {
		cmd.Keys = make([]string, len(k.keys))
		for i, key := range k.keys {
			cmd.Keys[i] = "/" + key
		}
	}
	if len(cmd.Pairs) > 0 {
		cmd.Pairs = slices.Clone(cmd.Pairs)
		for i := range cmd.Pairs {
			cmd.Pairs[i].Key = "/" + cmd.Pairs[i].Key
		}
	}
	return k, cmd, nil
}

// Set implements Store.
func (cl *Client) Set(c context.Context, key string, value []byte) error {
	_, err := cl.do(c, "set", state.Command{Op: state.OpSet, Key: key, Value: value})
	return err
}

// Get implements Store.
func (cl *Client) Get(c context.Context, key string) ([]byte, error) {
	values, err := cl.fetch(c, "get", key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// MultiGet implements Store. See Client for what a server of PyTorch 1.13 lacks.
func (cl *Client) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	return cl.fetch(c, "multi_get", keys...)
}

func (cl *Client) fetch(c context.Context, name string, keys ...string) (values [][]byte, err error) {
	k, cmd, err := cl.prepare(c, name, state.Command{Op: state.OpFetch, Keys: keys})
	if err != nil {
		return nil, err
	}
	for round := 0; err == nil && values == nil && len(keys) > 0; round++ {
		if round > 1 {
			err = cl.pause(k, kv.PollEvery) // the wait ends at once where the key has a queue
		}
		if err == nil {
			err = cl.waitAnswer(k, func(l *link, turn int) (err error) {
				values, err = l.fetch(cmd, turn)
				return err
			})
		}
	}
	if err != nil {
		return nil, k.fail(err)
	}
	return values, nil
}

// Add implements Store.
func (cl *Client) Add(c context.Context, key string, delta int64) (int64, error) {
	k, cmd, err := cl.prepare(c, "add", state.Command{Op: state.OpAdd, Key: key, Delta: delta})
	if err != nil {
		return 0, err
	}
	r, _, err := cl.count(k, cmd.Key, func(l *link) (state.Reply, error) { return l.ask(cmd) })
	return r.N, k.fail(err)
}

// CompareSet implements Store.
func (cl *Client) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := cl.do(c, "compare_set", state.Command{Op: state.OpCompareSet, Key: key, Expected: expected, Value: desired})
	return r.Value, err
}

// Delete implements Store.
func (cl *Client) Delete(c context.Context, key string) (bool, error) {
	r, err := cl.do(c, "delete", state.Command{Op: state.OpDelete, Key: key})
	return r.N == 1, err
}

// Append implements Store.
func (cl *Client) Append(c context.Context, key string, value []byte) error {
	k, cmd, err := cl.prepare(c, "append", state.Command{Op: state.OpAppend, Key: key, Value: value})
	if err != nil {
		return err
	}
	if _, err = cl.ask(k, cmd); errors.Is(err, kv.ErrUnsupported) {
		err = tooOld(state.OpAppend, err)
	}
	return k.fail(err)
}

// MultiSet implements Store. See Client for what a server of PyTorch 1.13 lacks.
func (cl *Client) MultiSet(c context.Context, pairs ...kv.Pair) error {
	k, cmd, err := cl.prepare(c, "multi_set", state.Command{Op: state.OpMultiSet, Pairs: pairs})
	if err != nil {
		return err
	}
	return k.fail(cl.withRetry(k, func(l *link) error {
		if l.in.Dialect == wire.Dialect113 {
			return l.setEach(cmd.Pairs)
		}
		_, err := l.ask(cmd)
		return err
	}))
}

// Check implements Store.
func (cl *Client) Check(c context.Context, keys ...string) (bool, error) {
	r, err := cl.do(c, "check", state.Command{Op: state.OpCheck, Keys: keys})
	return r.OK, err
}

// Wait implements Store.
func (cl *Client) Wait(c context.Context, keys ...string) error {
	k, cmd, err := cl.prepare(c, "wait", state.Command{Op: state.OpWait, Keys: keys})
	if err != nil {
		return err
	}
	return k.fail(cl.waitAnswer(k, func(l *link, turn int) error {
		err := l.await(cmd.Keys, turn)
		if err != nil || l.in.Own || l.in.Dialect != wire.Dialect22 {
			return err
		}
		r, err := l.ask(state.Command{Op: state.OpCheck, Keys: cmd.Keys})
		if err == nil && !r.OK { // PyTorch's newer servers wake also when a COMPARE_SET fails
			l.settled, err = true, errNotYet
		}
		return err
	}))
}

// NumKeys implements Store. The key by which clients announce themselves counts.
func (cl *Client) NumKeys(c context.Context) (int64, error) {
	r, err := cl.do(c, "num_keys", state.Command{Op: state.OpNumKeys})
	return r.N, err
}

// ListKeys implements Store.
func (cl *Client) ListKeys(c context.Context) ([]string, error) {
	r, err := cl.newer(c, "list_keys", state.Command{Op: state.OpList}, state.Command{Op: state.OpList})
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(r.Keys))
	for _, key := range r.Keys {
		if key, users := strings.CutPrefix(key, "/"); users {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Push implements Store.
func (cl *Client) Push(c context.Context, key string, value []byte) error {
	_, err := cl.newer(c, "push", state.Command{Op: state.OpPush, Key: key, Value: value}, state.Command{Op: state.OpLen, Key: "/" + key})
	return err
}

// TryPop implements Store.
func (cl *Client) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	r, err := cl.newer(c, "pop", state.Command{Op: state.OpPop, Key: key}, state.Command{Op: state.OpLen, Key: "/" + key})
	return r.Value, r.N > 0, err
}

// Len implements Store.
func (cl *Client) Len(c context.Context, key string) (int64, error) {
	r, err := cl.newer(c, "len", state.Command{Op: state.OpLen, Key: key}, state.Command{Op: state.OpLen, Key: "/" + key})
	return r.N, err
}

// Pop implements Store.
func (cl *Client) Pop(c context.Context, key string) ([]byte, error) {
	k, cmd, err := cl.prepare(c, "pop", state.Command{Op: state.OpPop, Key: key})
	if err != nil {
		return nil, err
	}
	var value []byte
	popped := false
	for round := 0; err == nil && !popped; round++ {
		if err = cl.supports(k, &state.Command{Op: state.OpLen, Key: cmd.Key}); err == nil && round > 1 {
			err = cl.pause(k, kv.PollEvery) // the wait ends at once where the key has a value
		}
		if err == nil {
			err = cl.withRetry(k, func(l *link) (err error) {
				value, popped, err = l.pop(cmd, round)
				return err
			})
		}
	}
	if err != nil {
		return nil, k.fail(err)
	}
	return value, nil
}

// Barrier implements Store.
func (cl *Client) Barrier(c context.Context, key string, world int) error {
	k, cmd, err := cl.prepare(c, "barrier", state.Command{Op: state.OpArrive, Key: key, Delta: int64(world)})
	if err != nil {
		return err
	}
	return k.fail(cl.barrier(k, cmd))
}
