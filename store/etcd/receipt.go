package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

// leaseFor is how long receipts outlive their process. A lease takes new receipts for half of that
// and is then left to run out, so none does so under an operation, however long.
const leaseFor = 10 * time.Minute

// slot is the place in etcd for the receipts of one change at a time.
type slot struct {
	lease clientv3.LeaseID
	key   string
	rev   int64 // of the last receipt that is known; 0: there is none. If it is outdated the next change learns it
	n     int   // receipts written or tried
}

// receipts has the slots of a store.
type receipts struct {
	mu    sync.Mutex
	lease clientv3.LeaseID   // 0: there is none
	until time.Time          // when the next lease is due
	made  int                // slots of this lease
	free  []*slot            // of this lease, unused at present
	alive []clientv3.LeaseID // the last ones, those before lease being left to run out

	asking chan struct{} // capacity 1: full while a lease is asked for
}

// take gives a slot for a change, or nil if there has to be a new lease first.
func (r *receipts) take(now time.Time, l layout) *slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == 0 || now.After(r.until) {
		return nil
	}
	if n := len(r.free); n > 0 {
		sl := r.free[n-1]
		r.free = r.free[:n-1]
		return sl
	}
	r.made++
	return &slot{lease: r.lease, key: l.receipt(r.lease, r.made)}
}

// put takes a slot back.
func (r *receipts) put(sl *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sl.lease == r.lease {
		r.free = append(r.free, sl)
	}
}

// granted begins a new lease.
func (r *receipts) granted(lease clientv3.LeaseID, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease, r.until, r.made, r.free = lease, until, 0, nil
	r.alive = append(r.alive, lease)
	if len(r.alive) > 3 { // each serves for half of its time
		r.alive = r.alive[1:]
	}
}

// lapsed says that there is a lease no more.
func (r *receipts) lapsed(lease clientv3.LeaseID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == lease {
		r.lease, r.free = 0, nil
	}
}

// revoke ends the leases, and with them the receipts and all changes that are under way.
func (r *receipts) revoke(c context.Context, client *clientv3.Client) {
	r.mu.Lock()
	alive := r.alive
	r.lease, r.alive = 0, nil
	r.mu.Unlock()
	for _, lease := range alive {
		_, _ = client.Revoke(c, lease) // else it runs out
	}
}

// slot takes a slot, with a new lease where that is due.
func (s *etcdStore) slot(o *kv.Operation) (*slot, error) {
	r := &s.receipts
	if sl := r.take(time.Now(), s.names); sl != nil {
		return sl, nil
	}
	select {
	case r.asking <- struct{}{}:
	case <-o.Context.Done():
		return nil, s.over(o, nil)
	}
	defer func() { <-r.asking }()
	for {
		if sl := r.take(time.Now(), s.names); sl != nil {
			return sl, nil
		}
		asked := time.Now()
		err := s.try(o, func(c context.Context) error {
			g, err := s.client.Grant(c, int64(leaseFor/time.Second))
			if err == nil {
				r.granted(g.ID, asked.Add(leaseFor/2))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
}

// outcome is what is known of a change.
type outcome int

const (
	again outcome = iota // it was not done, and will not be, for a reason that is no condition's
	done                 // its conditions held
	unmet                // they did not
)

// changed is a change's answer.
type changed struct {
	outcome
	rev int64                   // of the store, when the change was done or read instead
	got []*clientv3.GetResponse // what was read instead, if the conditions did not hold
}

// change does ops in one transaction if all conditions hold, else it reads. It returns done or
// unmet, or an error; ErrUncertain then says that it is not known which.
func (s *etcdStore) change(o *kv.Operation, conds []clientv3.Cmp, ops, reads []clientv3.Op) (changed, error) {
	var last error
	for n := 0; ; n++ {
		sl, err := s.slot(o)
		if err != nil {
			return changed{}, err
		}
		lease, err := s.keep(o)
		if err != nil {
			s.receipts.put(sl)
			return changed{}, err
		}
		did, err := s.attempt(o, n, sl, conds, onLease(ops, lease), reads)
		s.receipts.put(sl)
		if errors.Is(err, errLapsed) {
			s.tenancy.lapsed(lease)
		}
		if err == nil && did.outcome != again {
			return did, nil
		}
		if err != nil && !errors.Is(err, errRepeat) {
			return changed{}, err
		}
		last = err
		if err := s.pause(o, n, last); err != nil {
			return changed{}, err
		}
	}
}

// errRepeat marks failures of changes that were not done.
var errRepeat = errors.New("not done")

// errLapsed is one of them: a lease was not there.
var errLapsed = fmt.Errorf("%w: a lease has lapsed", errRepeat)

func (s *etcdStore) attempt(o *kv.Operation, n int, sl *slot, conds []clientv3.Cmp, ops, reads []clientv3.Op) (changed, error) {
	size := 0
	for _, op := range ops {
		size += len(op.ValueBytes())
	}
	c, cancel := context.WithTimeout(o.Context, patience(n, size))
	defer cancel()
	sl.n++
	mark := strconv.Itoa(sl.n)
	resp, err := s.client.Txn(c).
		If(slices.Concat(conds, []clientv3.Cmp{sl.unmoved()})...).
		Then(slices.Concat(ops, []clientv3.Op{sl.write(mark)})...).
		Else(slices.Concat(reads, []clientv3.Op{clientv3.OpGet(sl.key)})...).
		Commit()
	switch {
	case err == nil && resp.Succeeded:
		sl.rev = resp.Header.Revision
		return changed{outcome: done, rev: sl.rev}, nil
	case err == nil:
		got := ranges(resp)
		what := sl.judge(mark, got[len(got)-1].Kvs)
		rev := resp.Header.Revision
		if what == done {
			rev = sl.rev
		}
		return changed{what, rev, got[:len(got)-1]}, nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.receipts.lapsed(sl.lease)
		return changed{}, errLapsed
	}
	switch fateOf(err) {
	case refused:
		return changed{}, explain(err)
	case unsent:
		if o.Context.Err() == nil {
			return changed{}, fmt.Errorf("%w: %w", errRepeat, err)
		}
		return changed{}, s.over(o, err)
	}
	return s.resolveReceipt(o, sl, mark)
}

// grace is how long an operation whose time is over may still take to learn what became of its
// change.
const grace = time.Second

// resolveReceipt finds out whether the change that should have left mark was done. If not, it
// writes another receipt, after which the change cannot be done, wherever it still may be.
func (s *etcdStore) resolveReceipt(o *kv.Operation, sl *slot, mark string) (changed, error) {
	var resp *clientv3.TxnResponse
	ask := func(c context.Context) (err error) {
		resp, err = s.client.Txn(c).If(sl.unmoved()).Then(sl.write(notDone)).Else(clientv3.OpGet(sl.key)).Commit()
		return err
	}
	last, err := persist(o.Context, ask)
	if err != nil && o.Context.Err() != nil {
		c, cancel := context.WithTimeout(s.life, grace)
		defer cancel()
		if _, err = persist(c, ask); err != nil && c.Err() != nil {
			err = s.over(o, last)
		}
	}
	if err == nil && !resp.Succeeded && len(ranges(resp)[0].Kvs) == 0 {
		err = errors.New("its receipt is gone")
	}
	switch {
	case err != nil:
		return changed{}, fmt.Errorf("%w: %w", store.ErrUncertain, err)
	case resp.Succeeded:
		sl.rev = resp.Header.Revision
		return changed{}, nil
	}
	what := sl.judge(mark, ranges(resp)[0].Kvs)
	return changed{outcome: what, rev: sl.rev}, nil
}

// notDone is the receipt that is no change's.
const notDone = "-"

// unmoved holds while the slot has its last known receipt.
func (sl *slot) unmoved() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(sl.key), "=", sl.rev)
}

func (sl *slot) write(mark string) clientv3.Op {
	return clientv3.OpPut(sl.key, mark, clientv3.WithLease(sl.lease))
}

// judge takes note of the receipt that is there, and says what that means for the change that would
// have left mark.
func (sl *slot) judge(mark string, kvs []*mvccpb.KeyValue) outcome {
	before := sl.rev
	sl.rev = 0
	if len(kvs) == 1 {
		sl.rev = kvs[0].ModRevision
		if string(kvs[0].Value) == mark {
			return done
		}
	}
	if sl.rev == before {
		return unmet
	}
	return again
}

// ranges are the reads among a transaction's answers.
func ranges(resp *clientv3.TxnResponse) []*clientv3.GetResponse {
	out := make([]*clientv3.GetResponse, 0, len(resp.Responses))
	for _, r := range resp.Responses {
		if got := r.GetResponseRange(); got != nil {
			out = append(out, (*clientv3.GetResponse)(got))
		}
	}
	return out
}
