package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-project/weft/store"
)

func TestNoKeyOfTheStoreCanBeTakenForAPartOfAnothersName(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	word := func() string {
		parts := []string{"a", "/", "0", "1", "/v/", "q/1/", "0000000000000001", "/q/", "\x00", "\xff"}
		var b strings.Builder
		for range 1 + r.IntN(4) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		return b.String()
	}
	l := layout("/p")
	for range 20000 {
		a, b := word(), word()
		names := map[string]string{l.value(a): "value " + a}
		for what, name := range map[string]string{
			"value " + b: l.value(b), "item " + a: l.item(a, 1), "item " + b: l.item(b, 1), "tail " + a: l.tail(a), "tail " + b: l.tail(b),
		} {
			was, there := names[name]
			require.True(t, !there || was == what, "%q is both %s and %s", name, was, what)
			names[name] = what
		}
		require.Equal(t, a == b, strings.HasPrefix(l.item(b, uint64(r.IntN(100))), l.items(a)), "%q %q", a, b)
		require.Equal(t, a, l.valueKey([]byte(l.value(a))))
	}
	require.Less(t, l.item("q", 9), l.item("q", 10))
	require.Less(t, l.item("q", 0xff), l.item("q", 0x100))
}

// cost is how etcd counts operations, of a transaction within others that have so many.
func cost(ops []clientv3.Op, outer int) int {
	most := outer + len(ops)
	for _, op := range ops {
		if op.IsTxn() {
			_, then, _ := op.Txn()
			most = max(most, cost(then, outer+len(ops)))
		}
	}
	return most
}

// leaves are the keys that ops put, in order.
func leaves(ops []clientv3.Op) []string {
	var out []string
	for _, op := range ops {
		if op.IsTxn() {
			_, then, _ := op.Txn()
			out = append(out, leaves(then)...)
		} else {
			out = append(out, string(op.KeyBytes()))
		}
	}
	return out
}

func TestATransactionOfManyKeysIsNestedAsEtcdAllows(t *testing.T) {
	for _, n := range []int{0, 1, 41, 42, 43, 127, 128, 1764, 1765, 2000, 74088} {
		var keys, want []string
		for i := range n {
			keys = append(keys, fmt.Sprint(i))
			want = append(want, "/p/v/"+keys[i])
		}
		ops := layout("/p").puts(keys, make([][]byte, n))
		require.Equal(t, want, leaves(ops))
		require.Less(t, cost(ops, 0), opsMost, "of %d keys: one must be left for the receipt", n)
	}
}

func TestOfARepeatedKeyTheLastValueIsPutOnce(t *testing.T) {
	ops := layout("").puts([]string{"a", "b", "a", "a"}, [][]byte{{1}, {2}, {3}, {4}})
	require.Equal(t, []string{"/v/b", "/v/a"}, leaves(ops))
	require.Equal(t, []byte{4}, ops[1].ValueBytes())
}

func TestAReceiptSaysWhatBecameOfAChange(t *testing.T) {
	there := func(rev int64, mark string) []*mvccpb.KeyValue {
		return []*mvccpb.KeyValue{{ModRevision: rev, Value: []byte(mark)}}
	}
	for name, tc := range map[string]struct {
		before int64
		kvs    []*mvccpb.KeyValue
		want   outcome
		rev    int64
	}{
		"the change's own":        {5, there(9, "3"), done, 9},
		"the first of all":        {0, there(9, "3"), done, 9},
		"the last, nothing new":   {5, there(5, "2"), unmet, 5},
		"none, as before":         {0, nil, unmet, 0},
		"one that was not known":  {5, there(7, "2"), again, 7},
		"one that denies another": {5, there(7, notDone), again, 7},
		"gone":                    {5, nil, again, 0},
	} {
		sl := &slot{rev: tc.before}
		require.Equal(t, tc.want, sl.judge("3", tc.kvs), name)
		require.Equal(t, tc.rev, sl.rev, name)
	}
}

func TestSlotsAreUsedAgainWithinTheirLeaseAndNoLonger(t *testing.T) {
	now, l := time.Unix(1000, 0), layout("/p")
	var r receipts
	require.Nil(t, r.take(now, l), "there is no lease yet")
	r.granted(10, now.Add(time.Minute))
	a, b := r.take(now, l), r.take(now, l)
	require.Equal(t, "/p/r/a/1", a.key)
	require.Equal(t, "/p/r/a/2", b.key)
	r.put(a)
	require.Same(t, a, r.take(now.Add(time.Minute), l))
	r.put(a)
	require.Nil(t, r.take(now.Add(time.Minute+1), l), "the next lease is due")
	r.granted(11, now.Add(time.Hour))
	r.put(b) // of the lease before
	c := r.take(now, l)
	require.Equal(t, "/p/r/b/1", c.key)
	r.put(c)
	r.lapsed(10)
	require.Same(t, c, r.take(now, l))
	r.lapsed(11)
	require.Nil(t, r.take(now, l))
	r.put(c)
	r.granted(12, now.Add(time.Hour))
	require.NotSame(t, c, r.take(now, l))
}

func TestWhatBecameOfARequestThatFailed(t *testing.T) {
	for err, want := range map[error]fate{
		rpctypes.ErrNoLeader: lost, rpctypes.ErrTimeout: lost, rpctypes.ErrTimeoutDueToLeaderFail: lost, rpctypes.ErrLeaderChanged: lost,
		rpctypes.ErrStopped: lost, rpctypes.ErrTooManyRequests: unsent, rpctypes.ErrNoSpace: refused, rpctypes.ErrTooManyOps: refused,
		rpctypes.ErrRequestTooLarge: refused, rpctypes.ErrPermissionDenied: refused, rpctypes.ErrAuthFailed: refused,
		rpctypes.ErrInvalidAuthToken: refused, rpctypes.ErrCorrupt: refused,
		status.Error(codes.Unavailable, "error reading from server: EOF"):                            lost,
		status.Error(codes.Unavailable, `connection error: desc = "error reading from server: EOF"`): lost,
		status.Error(codes.Unknown, "raft proposal dropped"):                                         lost,
		context.DeadlineExceeded:                             lost,
		status.Error(codes.Unimplemented, "unknown service"): refused,
		status.Error(codes.ResourceExhausted, "grpc: received message larger than max (20 vs. 10)"):                                   refused,
		status.Error(codes.Unavailable, `last connection error: connection error: desc = "transport: Error while dialing: dial tcp"`): unsent,
		status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: x"`):              unsent,
	} {
		require.Equal(t, want, fateOf(err), err)
	}
	for err, want := range map[error]error{
		rpctypes.ErrTooManyOps: store.ErrTooLarge, rpctypes.ErrRequestTooLarge: store.ErrTooLarge, rpctypes.ErrNoSpace: store.ErrFull,
		rpctypes.ErrPermissionDenied: rpctypes.ErrPermissionDenied,
	} {
		require.ErrorIs(t, explain(err), want)
		require.ErrorIs(t, explain(err), err)
	}
}

func TestBackoffGrowsToHalfASecondAndNoFurther(t *testing.T) {
	longest := time.Duration(0)
	for n := range 2000 {
		d := backoff(n)
		require.Positive(t, d)
		require.LessOrEqual(t, d, 2*time.Millisecond<<min(n, 8))
		longest = max(longest, d)
	}
	require.Greater(t, longest, 400*time.Millisecond)
}

// TestAWatchsHistoryIsAChain follows random events and gaps beside a plain variable.
func TestAWatchsHistoryIsAChain(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		var now []byte
		h := &history{key: "k"}
		for rev := int64(1); rev < 40; rev++ {
			var next []byte
			if now == nil || r.IntN(3) > 0 {
				next = bytes.Repeat([]byte{'x'}, r.IntN(3))
			}
			at := kept{next != nil, next, rev}
			if next == nil {
				at.rev = 0
			}
			var ch store.Change
			if r.IntN(4) == 0 {
				var missed bool
				ch, missed = h.skipped(at)
				require.Equal(t, now != nil || next != nil, missed)
				if !missed {
					continue
				}
				require.Equal(t, -1, ch.Dropped)
				_, missed = h.skipped(at)
				require.False(t, missed, "nothing has happened since")
			} else {
				ev := &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{ModRevision: rev}}
				if next != nil {
					ev.Type, ev.Kv.Value = clientv3.EventTypePut, bytes.Clone(next)
					if len(next) == 0 {
						ev.Kv.Value = nil // as etcd's client has it
					}
				}
				ch = h.happened(ev)
				require.Zero(t, ch.Dropped)
			}
			kind := store.Updated
			switch {
			case next == nil:
				kind = store.Deleted
			case now == nil:
				kind = store.Created
			}
			require.Equal(t, store.Change{Kind: kind, Key: "k", Old: now, New: next, Dropped: ch.Dropped}, ch)
			now = bytes.Clone(next)
			for i := range ch.New {
				ch.New[i] = '!' // the reader's own
			}
		}
	}
}

func TestABarrierIsFullFromItsNumberOn(t *testing.T) {
	for count, want := range map[string]bool{"": false, "x": false, "2": false, "3": true, " 4 ": true, "-3": false} {
		require.Equal(t, want, reaches([]byte(count), 3), count)
	}
}

func TestANumberOfAQueueThatIsNoneIsCorrupt(t *testing.T) {
	n, err := number(kept{})
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = number(kept{there: true, value: []byte("17")})
	require.NoError(t, err)
	require.Equal(t, uint64(17), n)
	for _, text := range []string{"", "-1", "x", "9223372036854775808"} {
		_, err = number(kept{there: true, value: []byte(text)})
		require.ErrorIs(t, err, store.ErrCorrupt, text)
	}
}

func TestAllThatIsWrongWithAConfigurationIsSaidAtOnce(t *testing.T) {
	_, err := Dial(t.Context(), Config{
		Endpoints: []string{"", "h:0", "h:65536", "h:x", "a:b:c", "http://h:2379", "ok", "ok:1", "[::1]", "[::1]:9"},
		Username:  "me", Timeout: -1, Limits: store.Limits{Key: -1},
	})
	require.Error(t, err)
	for _, part := range []string{`endpoint ""`, `"h:0"`, `"h:65536"`, `"h:x"`, `"a:b:c"`, `"http://h:2379"`, "password", "timeout", "limits", `"ok" in plain`} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), `endpoint "[::1]`)
	good := Config{Endpoints: []string{"h", "h:1", "[::1]", "[::1]:9", "::1"}, TLS: &tls.Config{}, Username: "me", Password: "it"}
	require.ErrorContains(t, good.validate(), `"::1"`)
	good.Endpoints = good.Endpoints[:4]
	require.NoError(t, good.validate())
	require.Equal(t, []string{"https://h:2379", "https://h:1", "https://[::1]:2379", "https://[::1]:9"}, good.withDefaults().client().Endpoints)
	require.Equal(t, "h", good.Endpoints[0], "the caller's is left alone")
	require.Equal(t, []string{"http://127.0.0.1:2379"}, Config{}.withDefaults().client().Endpoints)
	require.Equal(t, "/weft", Config{}.withDefaults().Prefix)
	require.Equal(t, "/a/b", Config{Prefix: "/a/b//"}.withDefaults().Prefix)
}
