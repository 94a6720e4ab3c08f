package store

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// ask is an operation of one command.
func (cl *Client) ask(k *call, cmd command) (reply, error) {
	var r reply
	err := cl.run(k, func(l *link) (err error) {
		r, err = l.ask(cmd)
		return err
	})
	return r, err
}

// do is a method of one command.
func (cl *Client) do(c context.Context, name string, cmd command) (reply, error) {
	k, cmd, err := cl.prepare(c, name, cmd)
	if err != nil {
		return reply{}, err
	}
	r, err := cl.ask(k, cmd)
	if err != nil {
		return reply{}, k.fail(err)
	}
	return r, nil
}

// prepare checks a command and puts the slash before its keys.
func (cl *Client) prepare(c context.Context, name string, cmd command) (*call, command, error) {
	k, err := cl.begin(c, name, cmd.names()...)
	if err != nil {
		return nil, cmd, err
	}
	if err := cmd.checkValues(cl.base); err != nil {
		return nil, cmd, k.fail(err)
	}
	if cmd.key != "" {
		cmd.key = "/" + cmd.key
	}
	if len(cmd.keys) > 0 {
		cmd.keys = make([]string, len(k.keys))
		for i, key := range k.keys {
			cmd.keys[i] = "/" + key
		}
	}
	if len(cmd.pairs) > 0 {
		cmd.pairs = slices.Clone(cmd.pairs)
		for i := range cmd.pairs {
			cmd.pairs[i].Key = "/" + cmd.pairs[i].Key
		}
	}
	return k, cmd, nil
}

// Set implements Store.
func (cl *Client) Set(c context.Context, key string, value []byte) error {
	_, err := cl.do(c, "set", command{op: opSet, key: key, value: value})
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
	k, cmd, err := cl.prepare(c, name, command{op: opFetch, keys: keys})
	if err != nil {
		return nil, err
	}
	for round := 0; err == nil && values == nil && len(keys) > 0; round++ {
		if round > 1 {
			err = cl.pause(k, pollEvery) // the wait ends at once where the key has a queue
		}
		if err == nil {
			err = cl.wait(k, func(l *link, turn int) (err error) {
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
	k, cmd, err := cl.prepare(c, "add", command{op: opAdd, key: key, delta: delta})
	if err != nil {
		return 0, err
	}
	r, _, err := cl.count(k, cmd.key, func(l *link) (reply, error) { return l.ask(cmd) })
	return r.n, k.fail(err)
}

// CompareSet implements Store.
func (cl *Client) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := cl.do(c, "compare_set", command{op: opCompareSet, key: key, expected: expected, value: desired})
	return r.value, err
}

// Delete implements Store.
func (cl *Client) Delete(c context.Context, key string) (bool, error) {
	r, err := cl.do(c, "delete", command{op: opDelete, key: key})
	return r.n == 1, err
}

// Append implements Store.
func (cl *Client) Append(c context.Context, key string, value []byte) error {
	k, cmd, err := cl.prepare(c, "append", command{op: opAppend, key: key, value: value})
	if err != nil {
		return err
	}
	if _, err = cl.ask(k, cmd); errors.Is(err, ErrUnsupported) {
		err = tooOld(opAppend, err)
	}
	return k.fail(err)
}

// MultiSet implements Store. See Client for what a server of PyTorch 1.13 lacks.
func (cl *Client) MultiSet(c context.Context, pairs ...Pair) error {
	k, cmd, err := cl.prepare(c, "multi_set", command{op: opMultiSet, pairs: pairs})
	if err != nil {
		return err
	}
	return k.fail(cl.run(k, func(l *link) error {
		if l.in.dialect == Dialect113 {
			return l.setEach(cmd.pairs)
		}
		_, err := l.ask(cmd)
		return err
	}))
}

// Check implements Store.
func (cl *Client) Check(c context.Context, keys ...string) (bool, error) {
	r, err := cl.do(c, "check", command{op: opCheck, keys: keys})
	return r.ok, err
}

// Wait implements Store.
func (cl *Client) Wait(c context.Context, keys ...string) error {
	k, cmd, err := cl.prepare(c, "wait", command{op: opWait, keys: keys})
	if err != nil {
		return err
	}
	return k.fail(cl.wait(k, func(l *link, turn int) error {
		err := l.await(cmd.keys, turn)
		if err != nil || l.in.own || l.in.dialect != Dialect22 {
			return err
		}
		r, err := l.ask(command{op: opCheck, keys: cmd.keys})
		if err == nil && !r.ok { // PyTorch's newer servers wake also when a COMPARE_SET fails
			l.settled, err = true, errNotYet
		}
		return err
	}))
}

// NumKeys implements Store. The key by which clients announce themselves counts.
func (cl *Client) NumKeys(c context.Context) (int64, error) {
	r, err := cl.do(c, "num_keys", command{op: opNumKeys})
	return r.n, err
}

// ListKeys implements Store.
func (cl *Client) ListKeys(c context.Context) ([]string, error) {
	r, err := cl.newer(c, "list_keys", command{op: opList}, command{op: opList})
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(r.keys))
	for _, key := range r.keys {
		if key, users := strings.CutPrefix(key, "/"); users {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Push implements Store.
func (cl *Client) Push(c context.Context, key string, value []byte) error {
	_, err := cl.newer(c, "push", command{op: opPush, key: key, value: value}, command{op: opLen, key: "/" + key})
	return err
}

// TryPop implements Store.
func (cl *Client) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	r, err := cl.newer(c, "pop", command{op: opPop, key: key}, command{op: opLen, key: "/" + key})
	return r.value, r.n > 0, err
}

// Len implements Store.
func (cl *Client) Len(c context.Context, key string) (int64, error) {
	r, err := cl.newer(c, "len", command{op: opLen, key: key}, command{op: opLen, key: "/" + key})
	return r.n, err
}

// Pop implements Store.
func (cl *Client) Pop(c context.Context, key string) ([]byte, error) {
	k, cmd, err := cl.prepare(c, "pop", command{op: opPop, key: key})
	if err != nil {
		return nil, err
	}
	var value []byte
	popped := false
	for round := 0; err == nil && !popped; round++ {
		if err = cl.supports(k, &command{op: opLen, key: cmd.key}); err == nil && round > 1 {
			err = cl.pause(k, pollEvery) // the wait ends at once where the key has a value
		}
		if err == nil {
			err = cl.run(k, func(l *link) (err error) {
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
	k, cmd, err := cl.prepare(c, "barrier", command{op: opArrive, key: key, delta: int64(world)})
	if err != nil {
		return err
	}
	return k.fail(cl.barrier(k, cmd))
}
