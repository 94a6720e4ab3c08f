package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// onHosts has the members be on hosts, by rank.
func onHosts(gs []*Group, hosts ...string) {
	for _, g := range gs {
		g.settleOn(hosts)
	}
}

func TestEveryOperationIsItsDefinitionBitForBitAcrossHosts(t *testing.T) {
	sizes := thresholds.Around(thresholds.Groups)
	for k, hosts := range [][]string{{"a", "a", "b"}, {"a", "b", "a", "b", "b"}, {"a", "b", "c", "a", "", ""}, {"a", "b", "c", "d", "e", "a", "b"}} {
		for part, lane := range []string{transport.LaneLocal, transport.LaneBulk} { // each has its part of the deck
			t.Run(fmt.Sprintf("%v on lane %s", hosts, lane), func(t *testing.T) {
				gs := groups(t, onLane(t, len(hosts), lane), "g")
				onHosts(gs, hosts...)
				require.Equal(t, plan.Hosts, gs[0].pick(t.Context(), plan.AllGather, 0))
				draw(t, gs, uint64(100+10*part+k), soak.Cases(30), sizes)
			})
		}
	}
}

func TestAnAlgorithmIsChosenBySizeAndHosts(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 4), "g")
	c := t.Context()
	for _, test := range []struct {
		hosts      []string
		few        int // bytes of a member
		small, big plan.Algorithm
	}{
		{[]string{"a", "a", "a", "a"}, smallNear / 4, plan.Tree, plan.Direct},
		{[]string{"", "", "", ""}, small / 4, plan.Tree, plan.Direct},
		{[]string{"a", "b", "c", "d"}, small / 4, plan.Tree, plan.Direct},
		{[]string{"a", "b", "a", "d"}, small / 4, plan.Tree, plan.Hosts},
		{[]string{"a", "b"}, smallPair / 2, plan.Direct, plan.Direct},
	} {
		onHosts(gs[:1], test.hosts...)
		g := gs[0]
		require.Equal(t, plan.Spread, g.pick(c, plan.AllReduce, test.few), "%v", test.hosts)
		require.Equal(t, test.big, g.pick(c, plan.AllReduce, test.few+1), "%v", test.hosts)
		require.Equal(t, test.small, g.pick(c, plan.Broadcast, test.few), "%v", test.hosts)
		require.Equal(t, test.big, g.pick(c, plan.Broadcast, test.few+1), "%v", test.hosts)
		require.Equal(t, test.big, g.pick(c, plan.AllGather, 0), "%v", test.hosts)
		require.Equal(t, plan.Direct, g.pick(c, plan.Reduce, 1), "%v", test.hosts)
		require.Equal(t, plan.Spread, g.pick(c, plan.Barrier, 0), "%v", test.hosts)
	}
	onHosts(gs[:1], "a", "a", "a", "a")
}

func TestATunedGroupChoosesAlikeOnAllMembersAndSumsRight(t *testing.T) {
	for _, hosts := range [][]string{{"a"}, {"a", "a"}, {"a", "b", "a"}} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			gs := groups(t, onLane(t, len(hosts), transport.LaneLocal), "g")
			onHosts(gs, hosts...)
			each(t, gs, func(r int) error { return gs[r].Tune(t.Context()) })
			for _, g := range gs {
				require.Equal(t, *gs[0].choices.Load(), *g.choices.Load())
			}
			for kind, all := range *gs[0].choices.Load() {
				for i, at := range all {
					require.True(t, at.by.Does(kind))
					require.True(t, i == 0 || at.upTo > all[i-1].upTo && at.by != all[i-1].by, "%v", all)
				}
			}
			draw(t, gs, 1, soak.Cases(40), thresholds.Around(thresholds.Groups))
		})
	}
}

func TestWhereTuningFailsTheGroupChoosesAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 2), "g")
		before := gs[0].choices.Load()
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, gs[0].Tune(c), rpc.ErrTimeout)
		require.ErrorIs(t, gs[1].Tune(c), rpc.ErrTimeout, "the same operation")
		require.Same(t, before, gs[0].choices.Load())
		each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
	})
}

func TestOverANetworkWithDelaysFewerMessagesAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(10*time.Millisecond), 3), "g")
		for _, g := range gs {
			g.choices.Store(&choices{})
		}
		each(t, gs, func(r int) error { return gs[r].tune(t.Context(), tuneFrom) })
		require.Equal(t, plan.Direct, gs[0].pick(t.Context(), plan.Broadcast, 1<<10), "2 delays; a tree of 3 has 3, a ring 4")
		require.NotEqual(t, plan.Ring, gs[0].pick(t.Context(), plan.AllReduce, 1<<10), "3 delays; 2 will do")
	})
}

func TestAMemberThatIsLostWhileTuneMeasuresIsNamedAndTheOthersGoOn(t *testing.T) {
	for seed := range uint64(soak.Cases(8)) {
		synctest.Test(t, func(t *testing.T) {
			r := rnd(seed)
			net := rpctest.SlowNet(time.Millisecond)
			gs := groups(t, rpctest.World(t, net, 4), "g")
			victim, before := r.IntN(4), gs[0].choices.Load()
			time.AfterFunc(time.Duration(r.IntN(100))*time.Millisecond, func() { net.Kill(rpctest.Host(victim)) }) // it measures for longer
			for rank, err := range attempt(gs, func(rank int) error { return gs[rank].Tune(t.Context()) }) {
				if rank == victim {
					continue
				}
				var lost *LostError
				require.ErrorAs(t, err, &lost, "rank %d", rank)
				require.Equal(t, gs[victim].w.Name(), lost.Worker)
				require.ErrorContains(t, err, "tune group")
			}
			require.True(t, victim == 0 || gs[0].choices.Load() == before, "it chooses as before")
			left := slices.Delete(slices.Clone(gs), victim, victim+1)
			next := make([]*Group, len(left))
			each(t, left, func(k int) (err error) {
				next[k], err = left[k].Without(t.Context())
				return err
			})
			each(t, next, func(k int) error { return errors.Join(next[k].tune(t.Context(), tuneFrom), next[k].Close()) })
		})
	}
}
