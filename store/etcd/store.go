package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

// etcdStore is a store in an etcd cluster. It is safe for concurrent use.
type etcdStore struct {
	base   kv.Settings
	cfg    Config // with defaults
	names  layout
	client *clientv3.Client

	life     context.Context // until Close; its cause is then ErrClosed
	end      context.CancelCauseFunc
	close    sync.Once
	receipts receipts
	tenancy  tenancy
	watches  atomic.Int64 // how many there are
}

// Dial connects to a cluster, trying again until the deadline of c while no member answers.
func Dial(c context.Context, cfg Config) (store.Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, &store.Error{Op: "dial", Addr: strings.Join(cfg.Endpoints, ","), Err: err}
	}
	cfg = cfg.withDefaults()
	s := &etcdStore{
		base:  kv.NewSettings("etcd "+strings.Join(cfg.Endpoints, ","), cfg.Timeout, cfg.Limits),
		cfg:   cfg,
		names: layout(cfg.Prefix),
	}
	s.receipts.asking = make(chan struct{}, 1)
	s.life, s.end = context.WithCancelCause(context.Background())
	o, err := s.begin(c, "dial")
	if err == nil {
		defer o.End()
		if err = s.connect(o); err == nil && cfg.Lease > 0 {
			err = s.lodge(o)
		}
		err = o.Fail(err)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// connect returns when the cluster has answered.
func (s *etcdStore) connect(o *kv.Operation) error {
	cfg := s.cfg.client()
	cfg.Context = s.life
	cfg.Logger = clientv3.NewCtxClient(s.life).GetLogger() // the silent one; the default writes to stderr
	stop := context.AfterFunc(o.Context, func() { s.end(context.Cause(o.Context)) })
	err := s.try(o, func(c context.Context) (err error) {
		if s.client == nil {
			if s.client, err = clientv3.New(cfg); err != nil {
				s.client = nil
				return err
			}
		}
		_, err = s.client.Get(c, s.names.values(), clientv3.WithCountOnly())
		return err
	})
	if !stop() && err == nil {
		err = s.over(o, nil)
	}
	return err
}

// begin starts an operation whose context is also over when the store is closed.
func (s *etcdStore) begin(c context.Context, name string, keys ...string) (*kv.Operation, error) {
	o, err := s.base.Begin(c, name, keys...)
	if err != nil {
		return nil, err
	}
	if s.life.Err() != nil {
		o.End()
		return nil, o.Fail(store.ErrClosed)
	}
	bounded, cancel := context.WithCancelCause(o.Context)
	stop, end := context.AfterFunc(s.life, func() { cancel(store.ErrClosed) }), o.End
	o.Context, o.End = bounded, func() {
		stop()
		cancel(nil)
		end()
	}
	return o, nil
}

// over says why the operation's context is done; last is what went wrong before, if anything did.
func (s *etcdStore) over(o *kv.Operation, last error) error {
	err := o.Over()
	switch {
	case errors.Is(context.Cause(o.Context), store.ErrClosed):
		err = store.ErrClosed
	case last != nil:
		err = fmt.Errorf("%w: %w: %w", err, store.ErrUnreachable, last)
	}
	return err
}

// closing bounds what Close does for tidiness alone.
const closing = time.Second

// Close implements store.Store. If the cluster answers within a second it removes the receipts, and
// what Config.Lease says.
func (s *etcdStore) Close() error {
	s.close.Do(func() {
		s.end(store.ErrClosed)
		if s.client == nil {
			return
		}
		c, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		s.leave(c)
		s.receipts.revoke(c, s.client)
		_ = s.client.Close() // it says how its context ended
	})
	return nil
}
