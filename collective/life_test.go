package collective

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

func TestAGroupThatLostAMemberIsClosedWithAllThatItHolds(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	gs := groups(t, ws, "g")
	require.NoError(t, ws[1].Close())
	<-gs[0].Done()
	require.NoError(t, gs[0].Close())
	stop, err := rpc.OnPost(ws[0], gs[0].service, gs[0].receive)
	require.NoError(t, err, "nobody takes its notes any more")
	stop()
	require.ErrorIs(t, gs[0].Err(), ErrLost, "it ended with that")
}

func TestAGroupIsClosedWhileNotesArrive(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	for range soak.Cases(40) {
		gs := groups(t, ws, "g")
		going, began := true, make(chan struct{})
		var mu sync.Mutex
		var all sync.WaitGroup
		all.Go(func() { // questions, each of which is answered
			for n := 0; ; n++ {
				mu.Lock()
				on := going
				mu.Unlock()
				if !on {
					return
				}
				_ = gs[0].post(t.Context(), 1, &note{Ask: true})
				if n == 3 {
					close(began)
				}
			}
		})
		c, cancel := context.WithCancel(t.Context())
		all.Go(func() { _ = gs[1].Barrier(c) }) // it is answered that this was called
		<-began
		require.NoError(t, gs[1].Close())
		mu.Lock()
		going = false
		mu.Unlock()
		cancel()
		all.Wait()
		require.NoError(t, gs[0].Close())
	}
}

func TestAClosedCrewRunsNothing(t *testing.T) {
	var r crew
	r.Close()
	r.Go(func() { panic("it runs") })
	r.all.Wait()
}

func TestAMemberThatWasLostBeforeTheFirstEventEndsTheGroup(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	gs := make([]*Group, 3)
	each(t, gs, func(r int) (err error) { gs[r], err = Open(t.Context(), ws[r], "g"); return err })
	closed(t, gs)
	g, err := found(ws[0], "h", "collective/h", "lineage", gs[0].roll) // as if all had come
	require.NoError(t, err)
	closed(t, []*Group{g})
	require.NoError(t, ws[2].Close())
	<-gs[0].Done() // it is known
	g.meet(make([]string, 3))
	<-g.Done()
	var lost *LostError
	require.ErrorAs(t, g.Err(), &lost)
	require.Equal(t, "worker2", lost.Worker)
}

func TestAMemberThatHasJoinedAnewIsNotTheOneThatTheGroupHad(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	gs := groups(t, ws, "g")
	m := gs[0].members[1]
	m.Incarnation--
	gs[0].lookFor(m)
	require.ErrorIs(t, gs[0].Err(), ErrLost)
	require.ErrorIs(t, gs[0].Err(), errAnew)
}

// deaf is a store that may stop answering those who compare and set.
type deaf struct {
	store.Store
	mu   sync.Mutex
	mute bool
}

func (d *deaf) set(mute bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mute = mute
}

func (d *deaf) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mute {
		return nil, store.ErrClosed
	}
	return d.Store.CompareSet(c, key, expected, desired)
}

func TestWhoTheStoreDoesNotAnswerDoesNotGoOnUntilItDoes(t *testing.T) {
	stores := make([]*deaf, 3)
	ws := rpctest.WorldWith(t, rpctest.Net(), 3, func(i int, cfg *rpc.Config) {
		stores[i] = &deaf{Store: cfg.Store}
		cfg.Store = stores[i]
	})
	gs := groups(t, ws, "g")
	for _, s := range stores {
		s.set(true)
	}
	require.NoError(t, ws[2].Close())
	for _, err := range attempt(gs[:2], func(r int) error { _, err := gs[r].Without(t.Context()); return err }) {
		require.ErrorIs(t, err, ErrUnconfirmed)
		require.ErrorIs(t, err, store.ErrClosed)
	}
	stores[1].set(false) // one is enough: it tells the other
	next := make([]*Group, 2)
	each(t, gs[:2], func(r int) (err error) {
		for next[r] == nil && err == nil {
			next[r], err = gs[r].Without(t.Context())
			if r == 0 && err != nil {
				require.ErrorIs(t, err, ErrUnconfirmed)
				err = nil
			}
		}
		return err
	})
	sums(t, closed(t, next), 0, 1)
}

func TestAWorkerThatIsClosedEndsItsGroupsHere(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	gs := groups(t, ws, "g")
	waits := make(chan error)
	go func() { waits <- gs[0].Barrier(t.Context()) }() // the other one does not come
	require.NoError(t, ws[0].Close())
	err := <-waits
	require.ErrorIs(t, err, rpc.ErrLeft) // with ErrClosed, where it had told the other member
	<-gs[0].Done()
	require.ErrorIs(t, gs[0].Barrier(t.Context()), ErrClosed)
}
