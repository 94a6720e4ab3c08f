//go:build !race

package rdzv

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func TestWhoeverClosesClosesForAllAndAgainDoesNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 1, Max: 2, LastCall: time.Second}
		a, b, c := begin(t, st, cfg, 0), begin(t, st, cfg, 1), begin(t, st, cfg, 2)
		lives := []*life{a, b, c}
		placed := 0
		for _, l := range lives {
			l.take(t, func(x Action) bool { return x.Kind == Place || x.Kind == Spare })
			placed += l.placed
		}
		require.Equal(t, 2, placed)
		c.r.Close("enough")
		a.r.Close("enough")
		for _, l := range lives {
			l.take(t, func(x Action) bool { return x.Kind == Finished })
			if l.placed > 0 {
				require.ErrorIs(t, l.last.Err, ErrClosed)
			} else {
				require.NoError(t, l.last.Err, "for who was redundant it is no failure")
			}
		}
		d := begin(t, st, cfg, 3)
		d.take(t, func(x Action) bool { return x.Kind == Refuse })
		require.ErrorIs(t, d.last.Err, ErrClosed)
		leave(t, a, b, c, d)
	})
}

func TestTheThirdNodeOfTwoIsSpareForHoursAndStepsInWhereOneFallsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 2, JoinTimeout: time.Minute}
		a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		c := begin(t, st, cfg, 2)
		c.take(t, func(x Action) bool { return x.Kind == Spare })
		time.Sleep(3 * time.Hour)
		b.kill()
		a.take(t, isPlaced)
		c.take(t, isPlaced)
		require.Equal(t, 2, c.place.Nodes)
		require.Equal(t, b.place.Rank, c.place.Rank)
		require.Equal(t, 1, c.place.Round)
		<-b.r.done
		leave(t, a, c)
	})
}

func TestANodeThatWaitsInVainIsToldSoWhenItsTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		start := time.Now()
		a := begin(t, st, Config{Min: 2, JoinTimeout: time.Minute}, 0)
		a.take(t, func(x Action) bool { return x.Kind == Refuse })
		require.ErrorIs(t, a.last.Err, ErrTimeout)
		require.ErrorContains(t, a.last.Err, "there are 1 of the 2 nodes that are needed")
		require.InDelta(t, time.Minute, time.Since(start), float64(time.Second))
		leave(t, a)
	})
}

// slow is a store whose pushes take a while, and go on together.
type slow struct{ store.Store }

func (s slow) Push(c context.Context, k string, v []byte) error {
	time.Sleep(time.Second)
	return s.Store.Push(c, k, v)
}

func TestNodesAreToldSeveralAtATimeAndEachInItsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg, err := Config{Min: 1}.Populate()
		require.NoError(t, err)
		s := &shell{r: &Rendezvous{st: slow{st}}, peer: newPeer(Node{ID: "N0", Slots: 1}, cfg, time.Now())}
		var ops []op
		for i := range 64 {
			ops = append(ops, op{kind: opPush, key: keyTo(idOf(i % 16)), new: []byte{byte(i)}})
		}
		ops = append(ops, op{kind: opSet, key: "after", new: []byte("x")})
		start := time.Now()
		require.NoError(t, s.performAll(t.Context(), ops))
		require.Less(t, time.Since(start), 40*time.Second)
		for i := range 64 {
			b, there, err := st.TryPop(t.Context(), keyTo(idOf(i%16)))
			require.NoError(t, err)
			require.True(t, there)
			require.Equal(t, []byte{byte(i)}, b)
		}
		after, err := st.Get(t.Context(), "after")
		require.NoError(t, err)
		require.Equal(t, "x", string(after))
	})
}

func TestALeaveEndsWithItsTimeAndMayBeTwice(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		s := severed{st, new(atomic.Bool)}
		a := begin(t, s, Config{Min: 1}, 0)
		a.take(t, isPlaced)
		s.down.Store(true)
		start := time.Now()
		c, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, a.r.Leave(c, ""), context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Error(t, a.r.Leave(context.Background(), ""), "it says so again")

		b := begin(t, st, Config{Min: 1}, 1)
		require.NoError(t, b.r.Leave(context.Background(), ""))
		require.NoError(t, b.r.Leave(context.Background(), ""))
	})
}
