package collective

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
)

// TestWhoDialsAMemberHearsAtOnceThatTheGroupHasEnded has a member send to one with which it has no
// link, and which does not answer.
func TestWhoDialsAMemberHearsAtOnceThatTheGroupHasEnded(t *testing.T) {
	for name, send := range map[string]func(c context.Context, g *Group, to int) error{
		"operation": func(c context.Context, g *Group, _ int) error { return Broadcast(c, g, []int64{1}, g.Rank()) },
		"message":   func(c context.Context, g *Group, to int) error { return Send(c, g, to, 0, []int64{1}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const from, to, delay = 1, 4, time.Millisecond // three places apart, so that no link is made in advance
				net := rpctest.SlowNet(delay)
				all := rpctest.World(t, net, 12)
				gs := groups(t, append(all[:2:2], all[to]), "g")
				net.Cut(rpctest.Host(from), rpctest.Host(to))
				time.AfterFunc(10*delay, func() { gs[0].Abort(nil) })
				began := time.Now()
				require.ErrorIs(t, send(t.Context(), gs[from], 2), ErrAborted)
				require.Less(t, time.Since(began), 15*delay)
			})
		})
	}
}

// TestALossDuringWithoutIsOverOnceOneHasSeenIt kills a member at some moment of Without. One that
// is to go on has no link with it yet, and would find the loss out by a dial of its own.
func TestALossDuringWithoutIsOverOnceOneHasSeenIt(t *testing.T) {
	const lost, delay, silence = 4, time.Millisecond, 2400 * time.Millisecond // after which links are lost
	for half := range 12 {
		synctest.Test(t, func(t *testing.T) {
			net := rpctest.SlowNet(delay)
			all := rpctest.World(t, net, 12)
			gs := groups(t, append(all[:2:2], all[lost]), "g")
			var killed time.Time
			time.AfterFunc(time.Duration(half)*delay/2, func() {
				killed = time.Now()
				net.Kill(rpctest.Host(lost))
			})
			gs[0].Abort(nil)
			var end sync.WaitGroup
			defer end.Wait()
			end.Go(func() {
				if g, err := gs[2].Without(t.Context()); err == nil {
					closed(t, []*Group{g})
				}
			})
			each(t, gs[:2], func(i int) (err error) {
				g := gs[i]
				for err == nil && len(g.Members()) > 2 {
					<-g.Done()
					g, err = g.Without(t.Context())
				}
				if err == nil {
					closed(t, []*Group{g})
				}
				return err
			})
			require.Less(t, time.Since(killed), silence+10*delay, "killed after %d half delays", half)
		})
	}
}
