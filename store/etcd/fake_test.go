package etcd

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weft-project/weft/store/internal/kv"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// bad is an etcd that lives in this process, knows what etcdStore asks of it, and treats requests
// badly: some never arrive, of some the answer is lost, and some arrive later, after others that
// were sent after them.
type bad struct {
	clientv3.KV
	clientv3.Lease

	mu         sync.Mutex
	r          *rand.Rand
	loss       float64 // of each kind
	rev        int64
	log        []*clientv3.Event // the whole history
	names      []string          // of all keys that there ever were, sorted
	now        map[string]*mvccpb.KeyValue
	compacted  int64            // what is not newer cannot be asked for
	lease      clientv3.LeaseID // the last
	ended      map[clientv3.LeaseID]bool
	late       []func()
	leaderless bool          // watches end at once
	changed    chan struct{} // closed when the next change is there
}

func newBad(seed uint64, loss float64) *bad {
	return &bad{r: rand.New(rand.NewPCG(seed, 7)), loss: loss, rev: 1, now: map[string]*mvccpb.KeyValue{},
		ended: map[clientv3.LeaseID]bool{}, changed: make(chan struct{})}
}

// join makes a store on it.
func (b *bad) join(prefix string) *etcdStore {
	cfg := Config{Prefix: prefix}.withDefaults()
	s := &etcdStore{base: kv.NewSettings("a bad etcd", 0, cfg.Limits), cfg: cfg, names: layout(cfg.Prefix)}
	s.receipts.asking = make(chan struct{}, 1)
	s.life, s.end = context.WithCancelCause(context.Background())
	s.client = clientv3.NewCtxClient(context.Background())
	s.client.KV, s.client.Lease, s.client.Watcher = b, b, b
	return s
}

// send has a request done, or not, and answered, or not.
func send[T any](c context.Context, b *bad, do func() (T, error)) (T, error) {
	var none T
	if c.Err() != nil {
		return none, c.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.late) > 0 && b.r.IntN(2) == 0 {
		i := b.r.IntN(len(b.late))
		b.late[i]()
		b.late = slices.Delete(b.late, i, i+1)
	}
	switch luck := b.r.Float64(); {
	case luck < b.loss:
		return none, rpctypes.ErrTimeout
	case luck < 2*b.loss:
		_, _ = do()
		return none, rpctypes.ErrTimeout
	case luck < 3*b.loss:
		b.late = append(b.late, func() { _, _ = do() })
		return none, rpctypes.ErrTimeout
	}
	return do()
}

// state is what there is at a revision.
func (b *bad) state(rev int64) map[string]*mvccpb.KeyValue {
	if rev == 0 || rev >= b.rev {
		return b.now
	}
	at := map[string]*mvccpb.KeyValue{}
	for _, ev := range b.log {
		if ev.Kv.ModRevision > rev {
			break
		}
		happen(at, ev)
	}
	return at
}

func happen(at map[string]*mvccpb.KeyValue, ev *clientv3.Event) {
	if ev.Type == clientv3.EventTypePut {
		at[string(ev.Kv.Key)] = ev.Kv
	} else {
		delete(at, string(ev.Kv.Key))
	}
}

func within(op clientv3.Op, key string) bool {
	from, to := string(op.KeyBytes()), string(op.RangeBytes())
	return key == from || to != "" && key >= from && key < to
}

func (b *bad) read(op clientv3.Op) (*pb.RangeResponse, error) {
	if op.Rev() > 0 && op.Rev() < b.compacted {
		return nil, rpctypes.ErrCompacted
	}
	at := b.state(op.Rev())
	keys := []string{string(op.KeyBytes())}
	if to := string(op.RangeBytes()); to != "" { // what was deleted is in names, too
		i, _ := slices.BinarySearch(b.names, keys[0])
		j, _ := slices.BinarySearch(b.names, to)
		keys = b.names[i:j]
	}
	out := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: b.rev}}
	for _, key := range keys {
		if at[key] == nil {
			continue
		}
		out.Count++
		switch {
		case op.IsCountOnly():
		case op.Limit() > 0 && int64(len(out.Kvs)) == op.Limit():
			out.More = true
		default:
			kv := &mvccpb.KeyValue{Key: at[key].Key, ModRevision: at[key].ModRevision}
			if !op.IsKeysOnly() {
				kv.Value = slices.Clone(at[key].Value)
			}
			out.Kvs = append(out.Kvs, kv)
		}
	}
	return out, nil
}

func (b *bad) holds(cmp clientv3.Cmp) bool {
	c := cmp.GetCompare()
	kv := b.now[string(c.Key)]
	if c.Target == pb.Compare_VERSION { // is it there?
		return kv != nil
	}
	return kv.GetModRevision() == c.GetModRevision()
}

// leased is the lease of a receipt, by its name.
func leased(key []byte) clientv3.LeaseID {
	_, receipt, found := strings.Cut(string(key), "/r/")
	if !found {
		return 0
	}
	hex, _, _ := strings.Cut(receipt, "/")
	id, _ := strconv.ParseInt(hex, 16, 64)
	return clientv3.LeaseID(id)
}

func (b *bad) commit(conds []clientv3.Cmp, then, otherwise []clientv3.Op) (*pb.TxnResponse, error) {
	out := &pb.TxnResponse{Succeeded: !slices.ContainsFunc(conds, func(c clientv3.Cmp) bool { return !b.holds(c) })}
	ops := then
	if !out.Succeeded {
		ops = otherwise
	}
	for _, op := range ops {
		if op.IsPut() && b.ended[leased(op.KeyBytes())] {
			return nil, rpctypes.ErrLeaseNotFound
		}
	}
	before := b.rev
	for _, op := range ops {
		answer, err := b.one(op)
		if err != nil {
			return nil, err
		}
		out.Responses = append(out.Responses, answer)
	}
	if len(b.log) > 0 && b.log[len(b.log)-1].Kv.ModRevision > before {
		b.rev = before + 1
		close(b.changed)
		b.changed = make(chan struct{})
	}
	out.Header = &pb.ResponseHeader{Revision: b.rev}
	return out, nil
}

// one does an operation of a transaction, whose changes have the next revision.
func (b *bad) one(op clientv3.Op) (*pb.ResponseOp, error) {
	switch {
	case op.IsGet():
		got, err := b.read(op)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: got}}, err
	case op.IsTxn():
		_, then, _ := op.Txn()
		for _, op := range then {
			if _, err := b.one(op); err != nil {
				return nil, err
			}
		}
	case op.IsPut():
		b.happened(&clientv3.Event{Type: clientv3.EventTypePut,
			Kv: &mvccpb.KeyValue{Key: op.KeyBytes(), Value: slices.Clone(op.ValueBytes()), ModRevision: b.rev + 1}})
	case op.IsDelete():
		if _, there := b.now[string(op.KeyBytes())]; there {
			b.happened(&clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: op.KeyBytes(), ModRevision: b.rev + 1}})
		}
	}
	return &pb.ResponseOp{}, nil
}

func (b *bad) happened(ev *clientv3.Event) {
	b.log = append(b.log, ev)
	if i, found := slices.BinarySearch(b.names, string(ev.Kv.Key)); !found {
		b.names = slices.Insert(b.names, i, string(ev.Kv.Key))
	}
	happen(b.now, ev)
}

func (b *bad) Get(c context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return send(c, b, func() (*clientv3.GetResponse, error) {
		got, err := b.read(clientv3.OpGet(key, opts...))
		return (*clientv3.GetResponse)(got), err
	})
}

func (b *bad) Grant(c context.Context, _ int64) (*clientv3.LeaseGrantResponse, error) {
	return send(c, b, func() (*clientv3.LeaseGrantResponse, error) {
		b.lease++
		return &clientv3.LeaseGrantResponse{ID: b.lease}, nil
	})
}

func (b *bad) Revoke(c context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return send(c, b, func() (*clientv3.LeaseRevokeResponse, error) { b.expire(id); return nil, nil })
}

// expire ends a lease, and its receipts.
func (b *bad) expire(id clientv3.LeaseID) {
	b.ended[id] = true
	var gone []clientv3.Op
	for key := range b.now {
		if leased([]byte(key)) == id {
			gone = append(gone, clientv3.OpDelete(key))
		}
	}
	_, _ = b.commit(nil, gone, nil)
}

type badTxn struct {
	b         *bad
	c         context.Context
	conds     []clientv3.Cmp
	then, not []clientv3.Op
}

func (b *bad) Txn(c context.Context) clientv3.Txn       { return &badTxn{b: b, c: c} }
func (t *badTxn) If(conds ...clientv3.Cmp) clientv3.Txn { t.conds = conds; return t }
func (t *badTxn) Then(ops ...clientv3.Op) clientv3.Txn  { t.then = ops; return t }
func (t *badTxn) Else(ops ...clientv3.Op) clientv3.Txn  { t.not = ops; return t }
func (b *bad) RequestProgress(context.Context) error    { return nil }
func (b *bad) Close() error                             { return nil }
func (t *badTxn) Commit() (*clientv3.TxnResponse, error) {
	return send(t.c, t.b, func() (*clientv3.TxnResponse, error) {
		got, err := t.b.commit(t.conds, t.then, t.not)
		return (*clientv3.TxnResponse)(got), err
	})
}

// Watch ends often, sometimes for lack of a leader.
func (b *bad) Watch(c context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	out, op := make(chan clientv3.WatchResponse), clientv3.OpGet(key, opts...)
	go func() {
		defer close(out)
		for next := op.Rev(); ; {
			b.mu.Lock()
			r, changed := b.since(op, next), b.changed
			if b.leaderless || b.r.Float64() < b.loss {
				r = clientv3.WatchResponse{Canceled: true, CancelReason: rpctypes.ErrNoLeader.Error()}
			}
			next = b.rev + 1
			b.mu.Unlock()
			if len(r.Events) == 0 && !r.Canceled {
				select {
				case <-changed:
				case <-c.Done():
					return
				}
				continue
			}
			select {
			case out <- r:
			case <-c.Done():
				return
			}
			if r.Canceled {
				return
			}
		}
	}()
	return out
}

func (b *bad) since(op clientv3.Op, rev int64) clientv3.WatchResponse {
	if rev < b.compacted {
		return clientv3.WatchResponse{Canceled: true, CompactRevision: b.compacted}
	}
	var r clientv3.WatchResponse
	for _, ev := range b.log {
		if ev.Kv.ModRevision >= rev && within(op, string(ev.Kv.Key)) {
			kv := &mvccpb.KeyValue{Key: ev.Kv.Key, Value: slices.Clone(ev.Kv.Value), ModRevision: ev.Kv.ModRevision}
			r.Events = append(r.Events, &clientv3.Event{Type: ev.Type, Kv: kv})
		}
	}
	return r
}

// set does f to it between requests.
func (b *bad) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}
