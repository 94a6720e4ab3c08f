package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/store"
)

// Watch implements store.Store. It goes on for as long as the cluster can be reached at times.
// Where etcd has compacted the history of changes that were not delivered, there comes one Change
// to what is there now, with Dropped -1.
func (s *etcdStore) Watch(c context.Context, key string) (*store.Watch, error) {
	o, err := s.begin(c, "watch", key)
	if err != nil {
		return nil, err
	}
	defer o.End()
	if n := s.watches.Add(1); n > int64(s.cfg.Limits.Keys) {
		s.watches.Add(-1)
		return nil, o.Fail(fmt.Errorf("%w: %d watches, at most %d allowed", store.ErrTooLarge, n, s.cfg.Limits.Keys))
	}
	got, err := s.one(o, s.names.value(key))
	if err != nil {
		s.watches.Add(-1)
		return nil, o.Fail(err)
	}
	life, over := context.WithCancel(s.life)
	gone := make(chan struct{})
	w, send, end := store.NewWatch(c, func() {
		over()
		<-gone
		s.watches.Add(-1)
	})
	go func() {
		defer close(gone)
		end(s.report(life, &history{key: key, last: keptIn(got)}, got.Header.Revision, send))
	}()
	return w, nil
}

// report sends what happens after rev, and returns why there is no more to come.
func (s *etcdStore) report(c context.Context, h *history, rev int64, send func(store.Change)) error {
	name := s.names.value(h.key)
	for {
		err := s.events(c, rev+1, func(ev *clientv3.Event) bool {
			send(h.happened(ev))
			return false
		}, span{name: name})
		if c.Err() != nil {
			return context.Cause(c)
		}
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
		var got *clientv3.GetResponse
		_, err = persist(c, func(c context.Context) (err error) {
			got, err = s.client.Get(c, name)
			return err
		})
		if err != nil && c.Err() == nil {
			return err
		} else if err != nil {
			return context.Cause(c)
		}
		if ch, missed := h.skipped(keptIn(got)); missed {
			send(ch)
		}
		rev = got.Header.Revision
	}
}

// history knows the last state of a watched key, and so what a change has changed.
type history struct {
	key  string
	last kept
}

// happened is the change that an event of etcd tells of.
func (h *history) happened(ev *clientv3.Event) store.Change {
	if ev.Type == clientv3.EventTypePut {
		return h.become(kept{true, filled(ev.Kv.Value), ev.Kv.ModRevision})
	}
	return h.become(kept{})
}

// skipped is the change to what is there now, whose own history is lost; there is none if nothing
// can be seen to have changed.
func (h *history) skipped(now kept) (ch store.Change, missed bool) {
	if now.rev == h.last.rev {
		return store.Change{}, false
	}
	ch = h.become(now)
	ch.Dropped = -1
	return ch, true
}

// become owns now's value, and gives it away: what it keeps is a copy.
func (h *history) become(now kept) store.Change {
	ch := store.Change{Key: h.key, Old: h.last.value, New: now.value}
	switch {
	case !now.there:
		ch.Kind = store.Deleted
	case h.last.there:
		ch.Kind = store.Updated
	default:
		ch.Kind = store.Created
	}
	h.last = kept{now.there, bytes.Clone(now.value), now.rev}
	return ch
}
