package etcd

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-project/weft/store/internal/kv"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kept is what etcd has under a key: at rev, or since then if it is there.
type kept struct {
	there bool
	value []byte
	rev   int64 // 0: there is nothing
}

// filled is a value that is not nil.
func filled(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func keptIn(got *clientv3.GetResponse) kept {
	if len(got.Kvs) == 0 {
		return kept{}
	}
	return kept{true, filled(got.Kvs[0].Value), got.Kvs[0].ModRevision}
}

// opsMost is how many operations a transaction may have if etcd is not told otherwise.
const opsMost = 128

// look makes n reads at one revision, which it returns; if the history that it needs is compacted
// it begins again.
func (s *etcdStore) look(o *kv.Operation, n int, read func(i int, opts ...clientv3.OpOption) clientv3.Op) ([]*clientv3.GetResponse, int64, error) {
	for {
		out, rev, err := s.lookOnce(o, n, read)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return out, rev, err
		}
	}
}

func (s *etcdStore) lookOnce(o *kv.Operation, n int, read func(int, ...clientv3.OpOption) clientv3.Op) ([]*clientv3.GetResponse, int64, error) {
	var out []*clientv3.GetResponse
	var at int64
	for len(out) < n {
		var ops []clientv3.Op
		for i := len(out); i < min(n, len(out)+opsMost); i++ {
			if at == 0 {
				ops = append(ops, read(i))
			} else {
				ops = append(ops, read(i, clientv3.WithRev(at)))
			}
		}
		err := s.try(o, func(c context.Context) error {
			resp, err := s.client.Txn(c).Then(ops...).Commit()
			if err == nil {
				out = append(out, ranges(resp)...)
				if at == 0 {
					at = resp.Header.Revision
				}
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return out, at, nil
}

// one reads one key, or the first of a range.
func (s *etcdStore) one(o *kv.Operation, name string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	var got *clientv3.GetResponse
	err := s.try(o, func(c context.Context) (err error) {
		got, err = s.client.Get(c, name, opts...)
		return err
	})
	return got, err
}

// span is a key of etcd, or all keys that start with it.
type span struct {
	name   string
	prefix bool
}

func (p span) opts(more ...clientv3.OpOption) []clientv3.OpOption {
	if p.prefix {
		return append(more, clientv3.WithPrefix())
	}
	return more
}

// existence is where a key exists if anything is there: as a value or as a queue that is not empty.
func (l layout) existence(key string) []span {
	return []span{{name: l.value(key)}, {l.items(key), true}}
}

// presence is where only a value counts.
func (l layout) presence(key string) []span { return []span{{name: l.value(key)}} }

// there says for which of keys there is something in its spans, and at which revision.
func (s *etcdStore) there(o *kv.Operation, keys []string, spans func(string) []span) ([]bool, int64, error) {
	var all []span
	for _, k := range keys {
		all = append(all, spans(k)...)
	}
	got, rev, err := s.look(o, len(all), func(i int, opts ...clientv3.OpOption) clientv3.Op {
		return clientv3.OpGet(all[i].name, all[i].opts(append(opts, clientv3.WithCountOnly())...)...)
	})
	if err != nil {
		return nil, 0, err
	}
	out := make([]bool, len(keys))
	for i, g := range got {
		out[i*len(keys)/len(all)] = out[i*len(keys)/len(all)] || g.Count > 0
	}
	return out, rev, nil
}

// Check implements store.Store.
func (s *etcdStore) Check(c context.Context, keys ...string) (bool, error) {
	o, err := s.begin(c, "check", keys...)
	if err != nil {
		return false, err
	}
	defer o.End()
	there, _, err := s.there(o, keys, s.names.existence)
	return err == nil && !slices.Contains(there, false), o.Fail(err)
}

// NumKeys implements store.Store. It counts the values under this store's prefix.
func (s *etcdStore) NumKeys(c context.Context) (int64, error) {
	o, err := s.begin(c, "num_keys")
	if err != nil {
		return 0, err
	}
	defer o.End()
	got, err := s.one(o, s.names.values(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, o.Fail(err)
	}
	return got.Count, nil
}

// listMost is how many keys are asked for at once.
const listMost = 8192

// ListKeys implements store.Store.
func (s *etcdStore) ListKeys(c context.Context) ([]string, error) {
	o, err := s.begin(c, "list_keys")
	if err != nil {
		return nil, err
	}
	defer o.End()
	for {
		keys, err := s.list(o)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return keys, o.Fail(err)
		}
	}
}

// list reads all keys at one revision, some at a time. etcd gives them sorted.
func (s *etcdStore) list(o *kv.Operation) ([]string, error) {
	keys := []string{}
	from, rev := s.names.values(), int64(0)
	for {
		got, err := s.one(o, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.names.values())), clientv3.WithKeysOnly(),
			clientv3.WithLimit(listMost), clientv3.WithRev(rev))
		if err != nil {
			return nil, err
		}
		for _, kv := range got.Kvs {
			keys = append(keys, s.names.valueKey(kv.Key))
		}
		if !got.More {
			return keys, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
		if rev == 0 {
			rev = got.Header.Revision
		}
	}
}
