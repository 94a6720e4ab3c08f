package etcd

import (
	"context"
	"errors"

	"github.com/weft-project/weft/store/internal/kv"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Get implements store.Store.
func (s *etcdStore) Get(c context.Context, key string) ([]byte, error) {
	o, err := s.begin(c, "get", key)
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		got, err := s.one(o, s.names.value(key))
		if err != nil {
			return nil, o.Fail(err)
		}
		if at := keptIn(got); at.there {
			return at.value, nil
		}
		var value []byte
		err = s.follow(o, got.Header.Revision+1, func(ev *clientv3.Event) bool {
			value = filled(ev.Kv.Value)
			return ev.Type == clientv3.EventTypePut
		}, span{name: s.names.value(key)})
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return value, o.Fail(err)
		}
	}
}

// Wait implements store.Store.
func (s *etcdStore) Wait(c context.Context, keys ...string) error {
	o, err := s.begin(c, "wait", keys...)
	if err != nil {
		return err
	}
	defer o.End()
	return o.Fail(s.await(o, keys, s.names.existence))
}

// MultiGet implements store.Store.
func (s *etcdStore) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	o, err := s.begin(c, "multi_get", keys...)
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		got, _, err := s.look(o, len(keys), func(i int, opts ...clientv3.OpOption) clientv3.Op {
			return clientv3.OpGet(s.names.value(keys[i]), opts...)
		})
		if err != nil {
			return nil, o.Fail(err)
		}
		values, missing := make([][]byte, len(keys)), []string(nil)
		for i, g := range got {
			at := keptIn(g)
			if !at.there {
				missing = append(missing, keys[i])
			}
			values[i] = at.value
		}
		if len(missing) == 0 {
			return values, nil
		}
		if err := s.await(o, missing, s.names.presence); err != nil {
			return nil, o.Fail(err)
		}
	}
}

// awaitMost is how many keys are looked at together.
const awaitMost = opsMost / 2

// await returns when each key has been seen to exist. It looks at some keys at a time and watches
// the first that is missing, from the revision of the first look: so one that comes and goes
// meanwhile is seen too, and a wait for any number of keys costs etcd one key's watch.
func (s *etcdStore) await(o *kv.Operation, keys []string, spans func(string) []span) error {
	var first int64
	for len(keys) > 0 {
		some := keys[:min(awaitMost, len(keys))]
		keys = keys[len(some):]
		for len(some) > 0 {
			there, rev, err := s.there(o, some, spans)
			if err != nil {
				return err
			}
			if first == 0 {
				first = rev
			}
			if some = absent(some, there); len(some) == 0 {
				break
			}
			err = s.follow(o, first+1, isPut, spans(some[0])...)
			switch {
			case err == nil:
				some = some[1:]
			case errors.Is(err, rpctypes.ErrCompacted):
				first = 0
			default:
				return err
			}
		}
	}
	return nil
}

func absent(keys []string, there []bool) []string {
	var out []string
	for i, k := range keys {
		if !there[i] {
			out = append(out, k)
		}
	}
	return out
}

func isPut(ev *clientv3.Event) bool { return ev.Type == clientv3.EventTypePut }

// Barrier implements store.Store.
func (s *etcdStore) Barrier(c context.Context, key string, world int) error {
	o, err := s.begin(c, "barrier", key)
	if err != nil {
		return err
	}
	defer o.End()
	n, rev, err := s.increment(o, key, 1)
	if err != nil {
		return o.Fail(err)
	}
	for full := n >= int64(world); !full; {
		err := s.follow(o, rev+1, func(ev *clientv3.Event) bool {
			return isPut(ev) && reaches(ev.Kv.Value, world)
		}, s.names.presence(key)...)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return o.Fail(err)
		}
		got, err := s.one(o, s.names.value(key))
		if err != nil {
			return o.Fail(err)
		}
		full, rev = reaches(keptIn(got).value, world), got.Header.Revision
	}
	return nil
}

// reaches says whether a barrier's count is full.
func reaches(count []byte, world int) bool {
	n, err := kv.Sum(count, true, 0)
	return err == nil && n >= int64(world)
}
