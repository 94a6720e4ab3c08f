package etcd

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/etcdtest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/storetest"
	"github.com/weft-project/weft/store"
)

// outage kills members of a cluster, one at a time.
type outage struct {
	t    testing.TB
	cl   *etcdtest.Cluster
	ask  *etcdStore // about the members
	dead *etcdtest.Member
}

func threeMembers(t testing.TB) *outage {
	cl := etcdtest.New(t, 3)
	t.Cleanup(cl.Stop)
	return &outage{t: t, cl: cl, ask: dial(t, Config{Endpoints: cl.Endpoints(), Prefix: "/ask"})}
}

// config is for a store of its own on the cluster.
func (o *outage) config(prefix string) Config {
	return Config{Endpoints: o.cl.Endpoints(), Prefix: prefix}
}

// leads asks a member whether it is the leader; it fails while the member does not know of one.
func (o *outage) leads(m *etcdtest.Member) (bool, error) {
	c, cancel := context.WithTimeout(o.t.Context(), time.Second)
	defer cancel()
	st, err := o.ask.client.Status(c, m.Client)
	if err == nil && st.Leader == 0 {
		err = fmt.Errorf("%s has no leader", m.Name)
	}
	return err == nil && st.Leader == st.Header.MemberId, err
}

// kill ends the leader, or another, as a power failure would.
func (o *outage) kill(leader bool) {
	c, cancel := context.WithTimeout(o.t.Context(), etcdtest.Patience)
	defer cancel()
	for n := 0; ; n++ {
		for _, m := range o.cl.Members {
			if is, err := o.leads(m); err == nil && is == leader {
				m.End(syscall.SIGKILL)
				o.dead = m
				return
			}
		}
		require.True(o.t, sleep(c, backoff(n)), "no member to be killed")
	}
}

// mend starts the dead member, and returns when it takes part again.
func (o *outage) mend() {
	if o.dead == nil {
		return
	}
	c, cancel := context.WithTimeout(o.t.Context(), etcdtest.Patience)
	defer cancel()
	require.NoError(o.t, o.dead.Start())
	for n := 0; ; n++ {
		_, err := o.leads(o.dead)
		if err == nil {
			o.dead = nil
			return
		}
		require.True(o.t, sleep(c, backoff(n)), "the member does not come back: %v; its log ends with: %s", err, o.dead.Log())
	}
}

func TestTheSuitePassesWhileOneOfThreeMembersIsKilledAndRestarted(t *testing.T) {
	t.Parallel()
	out := threeMembers(t)
	opened := 0
	next := func(t *testing.T) func() store.Store {
		cfg := out.config(fmt.Sprint("/suite/", opened))
		if opened%10 == 0 {
			out.t = t
			out.mend()
			out.kill(opened%20 == 0)
		}
		opened++
		return func() store.Store { return dial(t, cfg) }
	}
	storetest.Run(t, func(t *testing.T) store.Store { return next(t)() })
	storetest.RunShared(t, next)
}

func TestNothingAcknowledgedIsLostOrDoneTwiceWhileMembersAreKilled(t *testing.T) {
	t.Parallel()
	leak.Check(t)
	out := threeMembers(t)
	c, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a, b := dial(t, out.config("/job")), dial(t, out.config("/job"))
	w, err := a.Watch(c, "n")
	require.NoError(t, err)

	over := make(chan struct{})
	progress := make(chan struct{}, 1)
	var wg, workers sync.WaitGroup
	work := func(f func(i int) error) {
		workers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	added, pushed := make([]int, 2), 0
	var set []string
	for k, s := range []*etcdStore{a, b} {
		work(func(i int) error {
			_, err := s.Add(c, "n", 1)
			added[k] = i + 1
			return err
		})
	}
	work(func(i int) error {
		set = append(set, "set "+strconv.Itoa(i))
		return b.Set(c, set[i], []byte(set[i]))
	})
	work(func(i int) error { pushed = i + 1; return a.Push(c, "q", []byte(strconv.Itoa(i))) })
	wg.Go(func() { // what was pushed comes once, in order
		for i := 0; ; i++ {
			v, err := b.Pop(c, "q")
			if err != nil || string(v) == "end" {
				if err != nil || i != pushed {
					t.Errorf("%d of %d values were popped: %v", i, pushed, err)
				}
				return
			}
			if string(v) != strconv.Itoa(i) {
				t.Errorf("value %d is %q", i, v)
			}
		}
	})
	for _, s := range []*etcdStore{a, b} {
		wg.Go(func() {
			if err := s.Wait(c, "end", "end too"); err != nil {
				t.Error(err)
			}
		})
	}

	for _, leader := range []bool{true, false, true} {
		out.kill(leader)
		for range 40 {
			<-progress
		}
		out.mend()
		for range 10 {
			<-progress
		}
	}
	close(over)
	workers.Wait()
	require.NoError(t, a.Push(c, "q", []byte("end")))
	require.NoError(t, b.MultiSet(c, store.Pair{Key: "end"}, store.Pair{Key: "end too"}))
	wg.Wait()

	total := added[0] + added[1]
	v, err := b.Get(c, "n")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(total), string(v))
	values, err := a.MultiGet(c, set...)
	require.NoError(t, err)
	for i, v := range values {
		require.Equal(t, set[i], string(v))
	}
	for n := 1; n <= total; n++ { // every change, or as many as a slow reader may miss
		ch := <-w.C
		n += ch.Dropped
		require.GreaterOrEqual(t, ch.Dropped, 0)
		require.Equal(t, strconv.Itoa(n), string(ch.New))
	}
	w.Stop()
	t.Logf("%d added, %d set, %d pushed", total, len(set), pushed)
}
