package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
)

func TestAnOperationMadeOfOthersLeavesNothing(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	cause := errors.New("no more")
	for i := range 20 {
		fails := i % 4 // the member that gives up after its first part; 3: none
		for r, err := range attempt(gs, func(r int) error {
			c := t.Context()
			b, err := gs[r].Compound(c, "something")
			if err != nil {
				return err
			}
			for part := range 3 {
				x := []int32{int32(r), int32(part)}
				if r == fails && part > 0 {
					return errors.Join(cause, b.End(cause))
				}
				if err := AllReduce(b.Turn(c, (part+i)%3, "", ""), gs[r], x, Sum); err != nil {
					return errors.Join(err, b.End(err))
				}
				if x[0] != 3 || x[1] != int32(3*part) {
					return fmt.Errorf("the sum is %v", x)
				}
			}
			return b.End(nil)
		}) {
			switch {
			case fails == 3:
				require.NoError(t, err, "rank %d", r)
			case fails == r:
				require.ErrorIs(t, err, cause)
			default:
				require.ErrorIs(t, err, ErrAborted, "rank %d", r)
				require.ErrorContains(t, err, gs[0].Members()[fails].Worker)
			}
		}
		each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
	}
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
	for _, g := range gs {
		g.mu.Lock()
		for k := range g.waits {
			require.Zero(t, k.Part, "%v", k)
		}
		g.mu.Unlock()
	}
}

func TestABackwardIsShownWithoutTheZeroByteOfItsScope(t *testing.T) {
	g := groups(t, rpctest.World(t, rpctest.Net(), 2)[:1], "g")[0]
	b, err := g.Backward(t.Context(), "it")
	require.NoError(t, err)
	require.NoError(t, b.End(nil))
	require.Equal(t, "back #0", g.Trace()[0].Key)
	require.Equal(t, scopeOfTalks+"#0", b.Key(), "no user's scope has that")
}
