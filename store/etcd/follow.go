package etcd

import (
	"context"
	"errors"

	"github.com/weft-project/weft/store/internal/kv"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// follow gives f the events of one or two spans, each in order, from revision rev on, until f says
// that it has enough. It goes on over lost connections and members. An error is ErrCompacted, bare,
// if the history is gone: then the caller reads again.
func (s *etcdStore) follow(o *kv.Operation, rev int64, f func(*clientv3.Event) bool, spans ...span) error {
	err := s.events(o.Context, rev, f, spans...)
	if o.Context.Err() != nil && err != nil {
		return s.over(o, nil)
	}
	return err
}

// events is follow for what is no operation. Where c is over its error says nothing.
func (s *etcdStore) events(c context.Context, rev int64, f func(*clientv3.Event) bool, spans ...span) error {
	next := [2]int64{rev, rev}
	for n := 0; ; n++ {
		before := next
		err := s.stream(c, &next, f, spans)
		switch {
		case err == nil || c.Err() != nil || errors.Is(err, rpctypes.ErrCompacted):
			return err
		case fateOf(err) == refused:
			return explain(err)
		}
		if next != before {
			n = 0
		}
		if !sleep(c, backoff(n)) {
			return c.Err()
		}
	}
}

var errEnded = errors.New("the watch has ended")

// stream does it until anything happens to the stream, and leaves in next from where to go on.
func (s *etcdStore) stream(c context.Context, next *[2]int64, f func(*clientv3.Event) bool, spans []span) error {
	// A member that has no leader says so, instead of being silent.
	c, cancel := context.WithCancel(clientv3.WithRequireLeader(c))
	defer cancel()
	var from [2]clientv3.WatchChan
	for i, p := range spans {
		from[i] = s.client.Watch(c, p.name, p.opts(clientv3.WithRev(next[i]))...)
	}
	for {
		var i int
		var r clientv3.WatchResponse
		var ok bool
		select {
		case r, ok = <-from[0]:
		case r, ok = <-from[1]:
			i = 1
		}
		if !ok {
			return errEnded
		}
		if err := r.Err(); err != nil {
			return err
		}
		for _, ev := range r.Events {
			next[i] = ev.Kv.ModRevision + 1
			if f(ev) {
				return nil
			}
		}
	}
}
