package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

// Push implements store.Store. What is pushed gets the queue's next number, by which it lies in
// order.
func (s *etcdStore) Push(c context.Context, key string, value []byte) error {
	o, err := s.begin(c, "push", key)
	if err != nil {
		return err
	}
	defer o.End()
	if err := s.base.CheckValues(value); err != nil {
		return o.Fail(err)
	}
	tail, at := s.names.tail(key), kept{}
	for n := 0; ; n++ {
		last, err := number(at)
		if err != nil {
			return o.Fail(err)
		}
		did, err := s.change(o, []clientv3.Cmp{at.still(tail)}, []clientv3.Op{
			clientv3.OpPut(tail, strconv.FormatUint(last+1, 10)),
			clientv3.OpPut(s.names.item(key, last+1), string(value)),
		}, []clientv3.Op{clientv3.OpGet(tail)})
		if err != nil || did.outcome == done {
			return o.Fail(err)
		}
		at = keptIn(did.got[0])
		if n > 0 {
			if err := s.pause(o, n-1, nil); err != nil {
				return o.Fail(err)
			}
		}
	}
}

// number is the last number of a queue.
func number(at kept) (uint64, error) {
	if !at.there {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(at.value), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: the last number of the queue: %w", store.ErrCorrupt, err)
	}
	return n, nil
}

// Pop implements store.Store.
func (s *etcdStore) Pop(c context.Context, key string) ([]byte, error) {
	o, err := s.begin(c, "pop", key)
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		value, ok, rev, err := s.pop(o, key)
		if err != nil || ok {
			return value, o.Fail(err)
		}
		err = s.follow(o, rev+1, isPut, span{s.names.items(key), true})
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return nil, o.Fail(err)
		}
	}
}

// TryPop implements store.Store.
func (s *etcdStore) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	o, err := s.begin(c, "pop", key)
	if err != nil {
		return nil, false, err
	}
	defer o.End()
	value, ok, _, err = s.pop(o, key)
	return value, ok, o.Fail(err)
}

// pop takes the first, or says at which revision there was none.
func (s *etcdStore) pop(o *kv.Operation, key string) (value []byte, ok bool, rev int64, err error) {
	items := s.names.items(key)
	got, err := s.one(o, items, clientv3.WithFirstKey()...)
	if err != nil {
		return nil, false, 0, err
	}
	rev = got.Header.Revision
	for n := 0; ; n++ {
		if len(got.Kvs) == 0 {
			return nil, false, rev, nil
		}
		name, at := string(got.Kvs[0].Key), keptIn(got)
		did, err := s.change(o, []clientv3.Cmp{at.still(name)}, []clientv3.Op{clientv3.OpDelete(name)},
			[]clientv3.Op{clientv3.OpGet(items, clientv3.WithFirstKey()...)})
		switch {
		case err != nil:
			return nil, false, 0, err
		case did.outcome == done:
			return at.value, true, 0, nil
		}
		if err := s.pause(o, n, nil); err != nil { // others take too
			return nil, false, 0, err
		}
		got, rev = did.got[0], did.rev
	}
}

// Len implements store.Store.
func (s *etcdStore) Len(c context.Context, key string) (int64, error) {
	o, err := s.begin(c, "len", key)
	if err != nil {
		return 0, err
	}
	defer o.End()
	got, err := s.one(o, s.names.items(key), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, o.Fail(err)
	}
	return got.Count, nil
}
