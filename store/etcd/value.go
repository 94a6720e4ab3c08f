package etcd

import (
	"context"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

// Set implements store.Store.
func (s *etcdStore) Set(c context.Context, key string, value []byte) error {
	return s.setAll(c, "set", []string{key}, [][]byte{value})
}

// MultiSet implements store.Store.
func (s *etcdStore) MultiSet(c context.Context, pairs ...store.Pair) error {
	keys, values := make([]string, len(pairs)), make([][]byte, len(pairs))
	for i, p := range pairs {
		keys[i], values[i] = p.Key, p.Value
	}
	return s.setAll(c, "multi_set", keys, values)
}

func (s *etcdStore) setAll(c context.Context, name string, keys []string, values [][]byte) error {
	o, err := s.begin(c, name, keys...)
	if err != nil {
		return err
	}
	defer o.End()
	if err := s.base.CheckValues(values...); err != nil {
		return o.Fail(err)
	}
	ops := s.names.puts(keys, values)
	if len(ops) == 0 {
		return nil
	}
	_, err = s.change(o, nil, ops, nil)
	return o.Fail(err)
}

// puts writes each key once, as etcd demands: of a repeated one the last value.
func (l layout) puts(keys []string, values [][]byte) []clientv3.Op {
	var ops []clientv3.Op
	last := map[string]int{}
	for i, k := range keys {
		last[k] = i
	}
	for i, k := range keys {
		if last[k] == i {
			ops = append(ops, clientv3.OpPut(l.value(k), string(values[i])))
		}
	}
	return nested(ops)
}

// nestedMost is how many operations a transaction has here before they are put into transactions
// within it.
const nestedMost = 42

// nested spreads ops over transactions within the transaction. etcd counts the operations of a
// transaction and of those that it lies in, at most 128; so it takes some 74,000 where flat it
// takes 128.
func nested(ops []clientv3.Op) []clientv3.Op {
	for len(ops) > nestedMost {
		var outer []clientv3.Op
		for some := range slices.Chunk(ops, nestedMost) {
			outer = append(outer, clientv3.OpTxn(nil, some, nil))
		}
		ops = outer
	}
	return ops
}

// Add implements store.Store.
func (s *etcdStore) Add(c context.Context, key string, delta int64) (int64, error) {
	o, err := s.begin(c, "add", key)
	if err != nil {
		return 0, err
	}
	defer o.End()
	n, _, err := s.increment(o, key, delta)
	return n, o.Fail(err)
}

func (s *etcdStore) increment(o *kv.Operation, key string, delta int64) (sum, rev int64, err error) {
	rev, err = s.update(o, key, func(at kept) (next []byte, writes bool, err error) {
		sum, err = kv.Sum(at.value, at.there, delta)
		return strconv.AppendInt(nil, sum, 10), err == nil, err
	})
	if err != nil {
		sum = 0
	}
	return sum, rev, err
}

// CompareSet implements store.Store.
func (s *etcdStore) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	o, err := s.begin(c, "compare_set", key)
	if err != nil {
		return nil, err
	}
	defer o.End()
	if err := s.base.CheckValues(expected); err != nil {
		return nil, o.Fail(err)
	}
	if err := s.base.CheckValues(desired); err != nil {
		return nil, o.Fail(err)
	}
	var answer []byte
	_, err = s.update(o, key, func(at kept) ([]byte, bool, error) {
		var stores bool
		answer, stores = kv.Compared(at.value, at.there, expected, desired)
		return answer, stores, nil
	})
	if err != nil {
		return nil, o.Fail(err)
	}
	return append([]byte{}, answer...), nil
}

// Append implements store.Store.
func (s *etcdStore) Append(c context.Context, key string, value []byte) error {
	o, err := s.begin(c, "append", key)
	if err != nil {
		return err
	}
	defer o.End()
	if err := s.base.CheckValues(value); err != nil {
		return o.Fail(err)
	}
	_, err = s.update(o, key, func(at kept) ([]byte, bool, error) {
		next := append(append([]byte{}, at.value...), value...)
		err := s.base.CheckValues(next)
		return next, err == nil, err
	})
	return o.Fail(err)
}

// Delete implements store.Store.
func (s *etcdStore) Delete(c context.Context, key string) (bool, error) {
	o, err := s.begin(c, "delete", key)
	if err != nil {
		return false, err
	}
	defer o.End()
	name := s.names.value(key)
	did, err := s.change(o, []clientv3.Cmp{clientv3.Compare(clientv3.Version(name), ">", 0)}, []clientv3.Op{clientv3.OpDelete(name)}, nil)
	return err == nil && did.outcome == done, o.Fail(err)
}

// update changes a value: decide says of what is there what shall be there next, if anything. It is
// asked first about a key that is not there, which is right for new keys, and again whenever what
// it was asked about has turned out to be outdated; its last answer counts. update returns the
// revision of the change, if there was one.
func (s *etcdStore) update(o *kv.Operation, key string, decide func(kept) (next []byte, writes bool, err error)) (int64, error) {
	name, at, read := s.names.value(key), kept{}, false
	for n := 0; ; n++ {
		next, writes, err := decide(at)
		switch {
		case !writes && read:
			return 0, err
		case !writes:
			got, err := s.one(o, name)
			if err != nil {
				return 0, err
			}
			at, read = keptIn(got), true
			continue
		}
		did, err := s.change(o, []clientv3.Cmp{at.still(name)}, []clientv3.Op{clientv3.OpPut(name, string(next))}, []clientv3.Op{clientv3.OpGet(name)})
		if err != nil || did.outcome == done {
			return did.rev, err
		}
		at, read = keptIn(did.got[0]), true
		if n > 0 { // the first was but a guess
			if err := s.pause(o, n-1, nil); err != nil {
				return 0, err
			}
		}
	}
}

// still holds while there is nothing else under name.
func (k kept) still(name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(name), "=", k.rev)
}
