package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/simnet"
)

// cut is a link that is cut, or a host that dies, at some moment of an operation.
type cut struct {
	n    int // elements
	a, b int // hosts; one dies where they are the same
	at   time.Duration
}

// fate is what becomes of a member of a group that sums until a link is cut, and then goes on.
type fate struct {
	sums    int // before the first loss
	err     error
	members []string // with whom it goes on
}

// goOn sums until the group ends, and then makes generations until one can sum.
func goOn(c context.Context, g *Group, n int) (f fate) {
	whole := true
	for {
		x := make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		err := AllReduce(c, g, x, Sum)
		switch {
		case err == nil && (x[0] != float32(g.Size()) || x[n-1] != x[0]):
			return fate{err: fmt.Errorf("the sum among %d is %v", g.Size(), x[0])}
		case err == nil && whole:
			f.sums++
			continue
		case err == nil:
			for _, m := range g.Members() {
				f.members = append(f.members, m.Worker)
			}
			f.err = g.Close()
			return f
		case !errors.Is(err, ErrLost) && !errors.Is(err, ErrExcluded):
			f.err = fmt.Errorf("sum %d: %w", f.sums, err)
			return f
		}
		whole = false
		if g, err = g.Without(c); err != nil {
			f.err = err
			return f
		}
	}
}

func (x cut) apply(net *simnet.Net) {
	if x.a == x.b {
		net.Kill(rpctest.Host(x.a))
	} else {
		net.Cut(rpctest.Host(x.a), rpctest.Host(x.b))
	}
}

func TestALinkThatIsCutInAnyPhaseOfASumHasOneOutcomeOnAllMembers(t *testing.T) {
	var all []cut
	for _, n := range []int{10, 20000} { // both algorithms
		for phase := range 8 { // a message takes 1 ms
			for _, pair := range [][2]int{{0, 1}, {0, 3}, {1, 2}, {2, 3}, {0, 0}, {2, 2}} {
				all = append(all, cut{n, pair[0], pair[1], time.Duration(phase) * 500 * time.Microsecond})
			}
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, x := range all[:min(soak.Cases(24), len(all))] {
		t.Run(fmt.Sprintf("n=%d/%d-%d/%v", x.n, x.a, x.b, x.at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneOutcome(t, x) })
		})
	}
}

// oneOutcome says that all but one go on together, and that the one knows.
func oneOutcome(t *testing.T, x cut) {
	net := rpctest.SlowNet(time.Millisecond)
	gs := groups(t, rpctest.World(t, net, 4), "g")
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fates := make([]fate, len(gs))
	each(t, append(gs, nil), func(r int) error {
		if r < len(gs) {
			fates[r] = goOn(c, gs[r], x.n)
			return nil
		}
		time.Sleep(20*time.Millisecond + x.at) // of the bubble
		x.apply(net)
		return nil
	})
	var together []string
	out := 0
	for r, f := range fates {
		if x.a == x.b && r == x.a {
			out++ // it is dead
			continue
		}
		require.InDelta(t, fates[(x.a+1)%len(fates)].sums, f.sums, 1, "a member may have the result that the cut kept from another: %+v", fates)
		if errors.Is(f.err, ErrExcluded) {
			out++
			continue
		}
		require.NoError(t, f.err, "rank %d", r)
		if together == nil {
			together = f.members
		}
		require.Equal(t, together, f.members, "rank %d", r)
	}
	require.Equal(t, 1, out, "%+v", fates)
	require.Len(t, together, len(fates)-1)
}
