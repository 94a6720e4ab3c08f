package file

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// inLog is a user's command with the keys that the log has for the user's.
func inLog(cmd state.Command) state.Command {
	if cmd.Key != "" {
		cmd.Key = filePrefix + cmd.Key
	}
	cmd.Keys, cmd.Pairs = slices.Clone(cmd.Keys), slices.Clone(cmd.Pairs)
	for i := range cmd.Keys {
		cmd.Keys[i] = filePrefix + cmd.Keys[i]
	}
	for i, p := range cmd.Pairs {
		cmd.Pairs[i] = kv.Pair{Key: filePrefix + p.Key, Value: kv.Copied(p.Value)}
	}
	return cmd
}

// needs is what a command needs of the file.
func needs(cmd state.Command) access {
	switch cmd.Op {
	case state.OpFetch, state.OpCheck, state.OpWait, state.OpNumKeys, state.OpList, state.OpLen, state.OpWatch:
		return read
	}
	return create
}

func (f *File) begin(c context.Context, name string, cmd state.Command) (*kv.Operation, error) {
	o, err := f.base.Begin(c, name, cmd.Names()...)
	if err != nil {
		return nil, err
	}
	if err := cmd.CheckValues(f.base); err != nil {
		o.End()
		return nil, o.Fail(err)
	}
	return o, nil
}

// do runs a command and waits for its answer, whose slices are still the state's.
func (f *File) do(c context.Context, name string, cmd state.Command) (state.Reply, error) {
	o, err := f.begin(c, name, cmd)
	if err != nil {
		return state.Reply{}, err
	}
	defer o.End()
	r, err := f.ask(o, inLog(cmd))
	return r, o.Fail(err)
}

// ask is do with the log's keys, in an operation that has begun.
func (f *File) ask(o *kv.Operation, cmd state.Command) (state.Reply, error) {
	answers := make(chan state.Reply, 1)
	id, err := f.visit(o, cmd, func(r state.Reply) bool {
		answers <- r
		return true
	})
	if err != nil {
		return state.Reply{}, err
	}
	return f.answer(o, id, answers)
}

func (f *File) answer(o *kv.Operation, id state.ClientID, answers <-chan state.Reply) (state.Reply, error) {
	select {
	case r := <-answers:
		return r, r.Err
	case <-o.Context.Done():
	}
	f.drop(id)
	select {
	case r := <-answers: // it came in the last moment, and may say that something has happened
		return r, r.Err
	default:
		return state.Reply{}, o.Over()
	}
}

// visit runs a command. hear gets its answer and all that follows until it says that it needs no
// more.
func (f *File) visit(o *kv.Operation, cmd state.Command, hear func(state.Reply) bool) (id state.ClientID, err error) {
	err = f.locked(o, needs(cmd), func() error {
		id = f.newID()
		return f.stay(id, cmd, hear)
	})
	return id, err
}

// Set implements Store.
func (f *File) Set(c context.Context, key string, value []byte) error {
	_, err := f.do(c, "set", state.Command{Op: state.OpSet, Key: key, Value: kv.Copied(value)})
	return err
}

// Get implements Store.
func (f *File) Get(c context.Context, key string) ([]byte, error) {
	r, err := f.do(c, "get", state.Command{Op: state.OpFetch, Keys: []string{key}})
	if err != nil {
		return nil, err
	}
	return kv.Copied(r.Values[0]), nil
}

// Add implements Store.
func (f *File) Add(c context.Context, key string, delta int64) (int64, error) {
	r, err := f.do(c, "add", state.Command{Op: state.OpAdd, Key: key, Delta: delta})
	return r.N, err
}

// CompareSet implements Store.
func (f *File) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := f.do(c, "compare_set", state.Command{Op: state.OpCompareSet, Key: key, Expected: expected, Value: kv.Copied(desired)})
	if err != nil {
		return nil, err
	}
	return kv.Copied(r.Value), nil
}

// Delete implements Store.
func (f *File) Delete(c context.Context, key string) (bool, error) {
	r, err := f.do(c, "delete", state.Command{Op: state.OpDelete, Key: key})
	return r.N == 1, err
}

// Check implements Store.
func (f *File) Check(c context.Context, keys ...string) (bool, error) {
	r, err := f.do(c, "check", state.Command{Op: state.OpCheck, Keys: keys})
	return r.OK, err
}

// Wait implements Store.
func (f *File) Wait(c context.Context, keys ...string) error {
	_, err := f.do(c, "wait", state.Command{Op: state.OpWait, Keys: keys})
	return err
}

// NumKeys implements Store. PyTorch's counts of clients are keys.
func (f *File) NumKeys(c context.Context) (int64, error) {
	r, err := f.do(c, "num_keys", state.Command{Op: state.OpNumKeys})
	return r.N, err
}

// ListKeys implements Store.
func (f *File) ListKeys(c context.Context) ([]string, error) {
	r, err := f.do(c, "list_keys", state.Command{Op: state.OpList})
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(r.Keys))
	for _, k := range r.Keys {
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
	_, err := f.do(c, "append", state.Command{Op: state.OpAppend, Key: key, Value: value})
	return err
}

// MultiGet implements Store.
func (f *File) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	r, err := f.do(c, "multi_get", state.Command{Op: state.OpFetch, Keys: keys})
	for i, v := range r.Values {
		r.Values[i] = kv.Copied(v)
	}
	return r.Values, err
}

// MultiSet implements Store.
func (f *File) MultiSet(c context.Context, pairs ...kv.Pair) error {
	_, err := f.do(c, "multi_set", state.Command{Op: state.OpMultiSet, Pairs: pairs})
	return err
}

// Push implements Store.
func (f *File) Push(c context.Context, key string, value []byte) error {
	_, err := f.do(c, "push", state.Command{Op: state.OpPush, Key: key, Value: kv.Copied(value)})
	return err
}

// TryPop implements Store.
func (f *File) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	r, err := f.do(c, "pop", state.Command{Op: state.OpPop, Key: key})
	return r.Value, r.N > 0, err
}

// Pop implements Store. Who waits looks at the file from time to time, and has no place in a line.
func (f *File) Pop(c context.Context, key string) ([]byte, error) {
	look, take := state.Command{Op: state.OpLen, Key: key}, state.Command{Op: state.OpPop, Key: key}
	o, err := f.begin(c, "pop", take)
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		r, err := f.ask(o, inLog(look))
		if err == nil && r.N > 0 {
			r, err = f.ask(o, inLog(take))
		}
		if err == nil && r.N > 0 {
			return r.Value, nil
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
	r, err := f.do(c, "len", state.Command{Op: state.OpLen, Key: key})
	return r.N, err
}

// Barrier implements Store. It is an Add, and a watch for the number that completes it.
func (f *File) Barrier(c context.Context, key string, world int) error {
	add, watch := state.Command{Op: state.OpAdd, Key: key, Delta: 1}, state.Command{Op: state.OpWatch, Key: key}
	o, err := f.begin(c, "barrier", add)
	if err != nil {
		return err
	}
	defer o.End()
	answers := make(chan state.Reply, 1)
	var id state.ClientID
	err = f.locked(o, create, func() error {
		id = f.newID()
		r, _, err := f.apply(id, inLog(add))
		if err != nil || r.N >= int64(world) {
			answers <- r
			return err
		}
		return f.stay(id, inLog(watch), func(r state.Reply) bool {
			n, err := kv.ParseDecimal(r.Value)
			complete := r.Err != nil || r.Op == state.OpNews && err == nil && n >= int64(world)
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
func (f *File) Watch(c context.Context, key string) (w *kv.Watch, err error) {
	cmd := state.Command{Op: state.OpWatch, Key: key}
	o, err := f.begin(c, "watch", cmd)
	if err != nil {
		return nil, err
	}
	defer o.End()
	err = f.locked(o, read, func() error {
		id := f.newID()
		watch, send, end := kv.NewWatch(c, func() { f.drop(id) })
		w = watch
		err := f.stay(id, inLog(cmd), func(r state.Reply) bool {
			if r.Err != nil {
				end(o.Fail(r.Err))
			} else if r.Op == state.OpNews {
				send(kv.Change{Kind: r.Event, Key: key, Old: bytes.Clone(r.Old), New: bytes.Clone(r.Value), Dropped: int(r.N)})
			}
			return r.Err != nil
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
