package agent

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// remote is a store that cannot be reached while it is down.
type remote struct {
	store.Store
	down atomic.Bool
}

func (r *remote) Get(c context.Context, key string) ([]byte, error) {
	if r.down.Load() {
		return nil, store.ErrUnreachable
	}
	return r.Store.Get(c, key)
}

// seeking is a node with rank 1 that wants to know where the workers of round 4 meet.
func seeking(t *testing.T, silence time.Duration, see func(*testing.T, *meeting, *remote)) {
	synctest.Test(t, func(t *testing.T) {
		st := &remote{Store: store.NewMemory()}
		defer st.Close()
		spec := Spec{MinNodes: 2, Silence: silence}.populate()
		see(t, &meeting{spec: &spec, st: st, waits: waits{say: func(string) {}}}, st)
	})
}

var second = rdzv.Placement{Round: 4, Rank: 1, Nodes: 2, MasterAddr: "127.0.0.1"}

func TestTheWorkersStoreIsWaitedForAsLongAsTheNodeThatHostsItMayBeSilent(t *testing.T) {
	seeking(t, 200*time.Second, func(t *testing.T, m *meeting, st *remote) {
		time.AfterFunc(10*time.Minute, func() { _ = st.Set(t.Context(), "master/4", []byte("127.0.0.1:1")) })
		addr, err := m.master(t.Context(), second)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1:1", addr)
	})
	for silence, most := range map[time.Duration]time.Duration{time.Second: time.Minute, 200 * time.Second: 800 * time.Second} {
		seeking(t, silence, func(t *testing.T, m *meeting, _ *remote) {
			start := time.Now()
			_, err := m.master(t.Context(), second)
			require.ErrorContains(t, err, "which the node at 127.0.0.1 hosts")
			require.Equal(t, most, time.Since(start))
		})
	}
}

func TestALaterPlaceEndsTheWaitForTheWorkersStore(t *testing.T) {
	seeking(t, 0, func(t *testing.T, m *meeting, _ *remote) {
		start := time.Now()
		b := m.shut(second.Round)
		m.clear(second.Round)
		found, stop := m.look(t.Context(), news{Action: rdzv.Action{Placement: second}}, b)
		time.Sleep(time.Second)
		stop()
		require.ErrorIs(t, (<-found).err, context.Canceled)
		require.Equal(t, time.Second, time.Since(start))
		m.runs.Wait()
	})
}

func TestWhoWaitsForTheWorkersStoreWaitsOnWhileTheRendezvousStoreIsAway(t *testing.T) {
	seeking(t, 0, func(t *testing.T, m *meeting, st *remote) {
		require.NoError(t, st.Set(t.Context(), "master/4", []byte("127.0.0.1:1")))
		st.down.Store(true)
		time.AfterFunc(30*time.Second, func() { st.down.Store(false) })
		addr, err := m.master(t.Context(), second)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1:1", addr)
	})
	require.ErrorIs(t, persist(t.Context(), func() error { return io.EOF }), io.EOF, "waiting mends nothing else")
}
