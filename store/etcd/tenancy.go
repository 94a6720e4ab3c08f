package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

// tenancy is this store's part in keeping what lies under its prefix: all of it hangs on one lease,
// which each store that has a Config.Lease renews. Each also has a key on a lease of its own, by
// which the last to go knows that it is.
type tenancy struct {
	runs sync.WaitGroup
	asks chan struct{} // capacity 1: the shared lease has lapsed

	mu     sync.Mutex
	shared clientv3.LeaseID // 0 while it is not known
	own    clientv3.LeaseID
	known  chan struct{} // closed when shared is known
	// refused is why it is not known, if there is a reason other than that etcd cannot be reached.
	refused error
}

func (l layout) tenants() string { return string(l) + "/l" }
func (l layout) tenant(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%s/%x", l.tenants(), int64(lease))
}

// all is what there is under the prefix but for tenants; not what is of stores whose prefix
// continues it.
func (l layout) all() (out []clientv3.Op) {
	for _, part := range []string{"/v/", "/q/", "/t/", "/r/"} {
		out = append(out, clientv3.OpDelete(string(l)+part, clientv3.WithPrefix()))
	}
	return append(out, clientv3.OpDelete(l.tenants()))
}

// keep is the lease for what is written; 0 where it is to stay for ever.
func (s *etcdStore) keep(o *kv.Operation) (clientv3.LeaseID, error) {
	t := &s.tenancy
	for s.cfg.Lease > 0 {
		t.mu.Lock()
		shared, known := t.shared, t.known
		t.mu.Unlock()
		if shared != 0 {
			return shared, nil
		}
		select {
		case <-known:
		case <-o.Context.Done():
			t.mu.Lock()
			defer t.mu.Unlock()
			return 0, s.over(o, t.refused)
		}
	}
	return 0, nil
}

// lapsed says that a lease is gone, perhaps this one.
func (t *tenancy) lapsed(shared clientv3.LeaseID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if shared == 0 || t.shared != shared {
		return
	}
	t.shared, t.known = 0, make(chan struct{})
	select {
	case t.asks <- struct{}{}:
	default:
	}
}

// lodge makes the store a tenant until it is closed.
func (s *etcdStore) lodge(o *kv.Operation) error {
	s.tenancy.asks, s.tenancy.known = make(chan struct{}, 1), make(chan struct{})
	kept := clientv3.Compare(clientv3.Version(s.names.tenants()), ">", 0) // what hangs on no lease is not swept
	if err := s.try(o, func(c context.Context) error {
		_, err := s.sweep(c, kept)
		return err
	}); err != nil {
		return err
	}
	s.tenancy.runs.Go(s.stay)
	_, err := s.keep(o)
	return err
}

// sweep removes all that there is if there are no tenants: their own leases have lapsed, and the
// shared one would have, but for those who came in vain and renewed it meanwhile.
func (s *etcdStore) sweep(c context.Context, also ...clientv3.Cmp) (bool, error) {
	none := clientv3.Compare(clientv3.CreateRevision(s.names.tenants()+"/"), "=", 0).WithPrefix()
	got, err := s.client.Txn(c).If(append(also, none)...).Then(s.names.all()...).Commit()
	return err == nil && got.Succeeded, err
}

func (s *etcdStore) stay() {
	t := &s.tenancy
	for s.life.Err() == nil {
		var own, shared clientv3.LeaseID
		if _, err := persist(s.life, func(c context.Context) (err error) {
			own, shared, err = s.enter(c, own)
			return err
		}); err != nil {
			t.mu.Lock()
			t.refused = err
			t.mu.Unlock()
			sleep(s.life, time.Second)
			continue
		}
		t.mu.Lock()
		t.own, t.shared = own, shared
		close(t.known)
		t.mu.Unlock()
		s.renew(own, shared)
		t.lapsed(shared)
		select {
		case <-t.asks:
		default:
		}
	}
}

// renew returns when a lease is gone, or one has not been renewed for as long as it lasts.
func (s *etcdStore) renew(leases ...clientv3.LeaseID) {
	c, cancel := context.WithCancel(s.life)
	defer cancel()
	gone := make(chan struct{}, len(leases))
	for _, lease := range leases {
		alive, err := s.client.KeepAlive(c, lease)
		if err != nil {
			return
		}
		s.tenancy.runs.Go(func() {
			for range alive {
			}
			gone <- struct{}{}
		})
	}
	select {
	case <-gone:
	case <-s.tenancy.asks:
	}
}

// enter finds the lease on which all hangs, or makes it, and puts down this store as a tenant.
func (s *etcdStore) enter(c context.Context, own clientv3.LeaseID) (clientv3.LeaseID, clientv3.LeaseID, error) {
	lasts := max(int64(s.cfg.Lease/time.Second), 1)
	if own == 0 {
		g, err := s.client.Grant(c, lasts)
		if err != nil {
			return 0, 0, err
		}
		own = g.ID
	}
	tenants := s.names.tenants()
	here := clientv3.OpPut(s.names.tenant(own), "", clientv3.WithLease(own))
	there := clientv3.Compare(clientv3.Version(tenants), ">", 0)
	got, err := s.client.Txn(c).If(there).Then(here, clientv3.OpGet(tenants)).Commit()
	if err != nil {
		return 0, 0, err
	}
	if got.Succeeded {
		shared, err := strconv.ParseInt(string(ranges(got)[0].Kvs[0].Value), 16, 64)
		if err != nil {
			return own, 0, fmt.Errorf("%w: the lease under %s: %w", store.ErrCorrupt, tenants, err)
		}
		return own, clientv3.LeaseID(shared), nil
	}
	g, err := s.client.Grant(c, lasts)
	if err != nil {
		return own, 0, err
	}
	begin := clientv3.OpPut(tenants, strconv.FormatInt(int64(g.ID), 16), clientv3.WithLease(g.ID))
	got, err = s.client.Txn(c).If(clientv3.Compare(clientv3.Version(tenants), "=", 0)).Then(begin, here).Commit()
	if err == nil && !got.Succeeded {
		_, _ = s.client.Revoke(c, g.ID)
		err = errors.New("others have come in meanwhile")
	}
	return own, g.ID, err
}

// leave ends the tenancy; the last one removes all that there is.
func (s *etcdStore) leave(c context.Context) {
	t := &s.tenancy
	t.runs.Wait()
	if t.own == 0 {
		return
	}
	if _, err := s.client.Revoke(c, t.own); err != nil { // with its key
		return // else it runs out
	}
	if swept, _ := s.sweep(c); swept && t.shared != 0 {
		_, _ = s.client.Revoke(c, t.shared)
	}
}

// onLease has puts hang on a lease.
func onLease(ops []clientv3.Op, lease clientv3.LeaseID) []clientv3.Op {
	if lease == 0 {
		return ops
	}
	out := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		switch {
		case op.IsTxn():
			conds, then, not := op.Txn()
			op = clientv3.OpTxn(conds, onLease(then, lease), not)
		case op.IsPut():
			clientv3.WithLease(lease)(&op)
		}
		out[i] = op
	}
	return out
}
