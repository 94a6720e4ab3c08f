package store

import (
	"bytes"
	"context"
	"slices"
	"strings"
)

// inLog is a user's command with the keys that the log has for the user's.
func inLog(cmd command) command {
	if cmd.key != "" {
		cmd.key = filePrefix + cmd.key
	}
	cmd.keys, cmd.pairs = slices.Clone(cmd.keys), slices.Clone(cmd.pairs)
	for i := range cmd.keys {
		cmd.keys[i] = filePrefix + cmd.keys[i]
	}
	for i, p := range cmd.pairs {
		cmd.pairs[i] = Pair{filePrefix + p.Key, copied(p.Value)}
	}
	return cmd
}

// needs is what a command needs of the file.
func needs(cmd command) access {
	switch cmd.op {
	case opFetch, opCheck, opWait, opNumKeys, opList, opLen, opWatch:
		return read
	}
	return create
}

func (f *File) begin(c context.Context, name string, cmd command) (*Operation, error) {
	o, err := f.base.Begin(c, name, cmd.names()...)
	if err != nil {
		return nil, err
	}
	if err := cmd.checkValues(f.base); err != nil {
		o.End()
		return nil, o.Fail(err)
	}
	return o, nil
}

// do runs a command and waits for its answer, whose slices are still the state's.
func (f *File) do(c context.Context, name string, cmd command) (reply, error) {
	o, err := f.begin(c, name, cmd)
	if err != nil {
		return reply{}, err
	}
	defer o.End()
	r, err := f.ask(o, inLog(cmd))
	return r, o.Fail(err)
}

// ask is do with the log's keys, in an operation that has begun.
func (f *File) ask(o *Operation, cmd command) (reply, error) {
	answers := make(chan reply, 1)
	id, err := f.visit(o, cmd, func(r reply) bool {
		answers <- r
		return true
	})
	if err != nil {
		return reply{}, err
	}
	return f.answer(o, id, answers)
}

func (f *File) answer(o *Operation, id clientID, answers <-chan reply) (reply, error) {
	select {
	case r := <-answers:
		return r, r.err
	case <-o.Context.Done():
	}
	f.drop(id)
	select {
	case r := <-answers: // it came in the last moment, and may say that something has happened
		return r, r.err
	default:
		return reply{}, o.Over()
	}
}

// visit runs a command. hear gets its answer and all that follows until it says that it needs no
// more.
func (f *File) visit(o *Operation, cmd command, hear func(reply) bool) (id clientID, err error) {
	err = f.locked(o, needs(cmd), func() error {
		id = f.newID()
		return f.stay(id, cmd, hear)
	})
	return id, err
}

// Set implements Store.
func (f *File) Set(c context.Context, key string, value []byte) error {
	_, err := f.do(c, "set", command{op: opSet, key: key, value: copied(value)})
	return err
}

// Get implements Store.
func (f *File) Get(c context.Context, key string) ([]byte, error) {
	r, err := f.do(c, "get", command{op: opFetch, keys: []string{key}})
	if err != nil {
		return nil, err
	}
	return copied(r.values[0]), nil
}

// Add implements Store.
func (f *File) Add(c context.Context, key string, delta int64) (int64, error) {
	r, err := f.do(c, "add", command{op: opAdd, key: key, delta: delta})
	return r.n, err
}

// CompareSet implements Store.
func (f *File) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := f.do(c, "compare_set", command{op: opCompareSet, key: key, expected: expected, value: copied(desired)})
	if err != nil {
		return nil, err
	}
	return copied(r.value), nil
}

// Delete implements Store.
func (f *File) Delete(c context.Context, key string) (bool, error) {
	r, err := f.do(c, "delete", command{op: opDelete, key: key})
	return r.n == 1, err
}

// Check implements Store.
func (f *File) Check(c context.Context, keys ...string) (bool, error) {
	r, err := f.do(c, "check", command{op: opCheck, keys: keys})
	return r.ok, err
}

// Wait implements Store.
func (f *File) Wait(c context.Context, keys ...string) error {
	_, err := f.do(c, "wait", command{op: opWait, keys: keys})
	return err
}

// NumKeys implements Store. PyTorch's counts of clients are keys.
func (f *File) NumKeys(c context.Context) (int64, error) {
	r, err := f.do(c, "num_keys", command{op: opNumKeys})
	return r.n, err
}

// ListKeys implements Store.
func (f *File) ListKeys(c context.Context) ([]string, error) {
	r, err := f.do(c, "list_keys", command{op: opList})
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(r.keys))
	for _, k := range r.keys {
		if user, ok := strings.CutPrefix(k, filePrefix); ok && user != "" { // PyTorch has an empty key, too
			keys = append(keys, user)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Append implements Store. The file gets the whole new value, as PyTorch's processes know nothing
// else.
func (f *File) Append(c context.Context, key string, value []byte) error {
	_, err := f.do(c, "append", command{op: opAppend, key: key, value: value})
	return err
}

// MultiGet implements Store.
func (f *File) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	r, err := f.do(c, "multi_get", command{op: opFetch, keys: keys})
	for i, v := range r.values {
		r.values[i] = copied(v)
	}
	return r.values, err
}

// MultiSet implements Store.
func (f *File) MultiSet(c context.Context, pairs ...Pair) error {
	_, err := f.do(c, "multi_set", command{op: opMultiSet, pairs: pairs})
	return err
}

// Push implements Store.
func (f *File) Push(c context.Context, key string, value []byte) error {
	_, err := f.do(c, "push", command{op: opPush, key: key, value: copied(value)})
	return err
}

// TryPop implements Store.
func (f *File) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	r, err := f.do(c, "pop", command{op: opPop, key: key})
	return r.value, r.n > 0, err
}

// Pop implements Store. Who waits looks at the file from time to time, and has no place in a line.
func (f *File) Pop(c context.Context, key string) ([]byte, error) {
	look, take := command{op: opLen, key: key}, command{op: opPop, key: key}
	o, err := f.begin(c, "pop", take)
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		r, err := f.ask(o, inLog(look))
		if err == nil && r.n > 0 {
			r, err = f.ask(o, inLog(take))
		}
		if err == nil && r.n > 0 {
			return r.value, nil
		}
		if err == nil {
			err = f.rest(o, f.cfg.Poll)
		}
		if err != nil {
			return nil, o.Fail(err)
		}
	}
}

// Len implements Store.
func (f *File) Len(c context.Context, key string) (int64, error) {
	r, err := f.do(c, "len", command{op: opLen, key: key})
	return r.n, err
}

// Barrier implements Store. It is an Add, and a watch for the number that completes it.
func (f *File) Barrier(c context.Context, key string, world int) error {
	add, watch := command{op: opAdd, key: key, delta: 1}, command{op: opWatch, key: key}
	o, err := f.begin(c, "barrier", add)
	if err != nil {
		return err
	}
	defer o.End()
	answers := make(chan reply, 1)
	var id clientID
	err = f.locked(o, create, func() error {
		id = f.newID()
		r, _, err := f.apply(id, inLog(add))
		if err != nil || r.n >= int64(world) {
			answers <- r
			return err
		}
		return f.stay(id, inLog(watch), func(r reply) bool {
			n, err := parseDecimal(r.value)
			complete := r.err != nil || r.op == opNews && err == nil && n >= int64(world)
			if complete {
				answers <- r
			}
			return complete
		})
	})
	if err == nil {
		_, err = f.answer(o, id, answers)
	}
	return o.Fail(err)
}

// Watch implements Store. Of a file that was replaced, the difference is told as one change, with
// Dropped -1.
func (f *File) Watch(c context.Context, key string) (w *Watch, err error) {
	cmd := command{op: opWatch, key: key}
	o, err := f.begin(c, "watch", cmd)
	if err != nil {
		return nil, err
	}
	defer o.End()
	err = f.locked(o, read, func() error {
		id := f.newID()
		watch, send, end := NewWatch(c, func() { f.drop(id) })
		w = watch
		err := f.stay(id, inLog(cmd), func(r reply) bool {
			if r.err != nil {
				end(o.Fail(r.err))
			} else if r.op == opNews {
				send(Change{Kind: r.event, Key: key, Old: bytes.Clone(r.old), New: bytes.Clone(r.value), Dropped: int(r.n)})
			}
			return r.err != nil
		})
		if err != nil {
			end(err)
		}
		return err
	})
	if err != nil {
		return nil, o.Fail(err)
	}
	return w, nil
}
