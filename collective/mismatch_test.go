package collective

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
)

// differing are calls of which two members make one each.
var differing = map[string][2]func(c context.Context, g *Group, n int) error{
	"op": {
		func(c context.Context, g *Group, n int) error { return AllReduce(c, g, make([]float32, n), Sum) },
		func(c context.Context, g *Group, n int) error { return AllReduce(c, g, make([]float32, n), Max) },
	},
	"dtype": {
		func(c context.Context, g *Group, n int) error { return AllReduce(c, g, make([]float32, n), Sum) },
		func(c context.Context, g *Group, n int) error { return AllReduce(c, g, make([]int32, n), Sum) },
	},
	"count": {
		func(c context.Context, g *Group, n int) error {
			_, err := ReduceScatter(c, g, make([]int64, n), Sum)
			return err
		},
		func(c context.Context, g *Group, n int) error {
			_, err := ReduceScatter(c, g, make([]int64, n+1), Sum)
			return err
		},
	},
	"root": {
		func(c context.Context, g *Group, n int) error { return Broadcast(c, g, make([]float64, n), 0) },
		func(c context.Context, g *Group, n int) error { return Broadcast(c, g, make([]float64, n), 1) },
	},
	"root of what is gathered": {
		func(c context.Context, g *Group, n int) error {
			_, err := Gather(c, g, make([]float64, n), g.Size()-1)
			return err
		},
		func(c context.Context, g *Group, n int) error {
			_, err := Gather(c, g, make([]float64, n), 0)
			return err
		},
	},
	"dtype of what is gathered": {
		func(c context.Context, g *Group, n int) error {
			_, err := AllGather(c, g, make([]float64, n))
			return err
		},
		func(c context.Context, g *Group, n int) error {
			_, err := AllGather(c, g, make([]int64, n))
			return err
		},
	},
	"operation": {
		func(c context.Context, g *Group, n int) error {
			_, err := AllGather(c, g, make([]float64, n))
			return err
		},
		func(c context.Context, g *Group, n int) error { return Reduce(c, g, make([]float64, n), Sum, 0) },
	},
	"a call that one member does not make": {
		func(c context.Context, g *Group, n int) error { return AllReduce(c, g, make([]float32, n), Sum) },
		func(c context.Context, g *Group, _ int) error { return g.Barrier(c) }, // which the others make after it
	},
}

func TestAMismatchIsToldToAllWithBothLinesAndTheNextOperationWorks(t *testing.T) {
	for size := 2; size <= 5; size++ {
		t.Run(fmt.Sprint("p=", size), func(t *testing.T) { mismatches(t, size) })
	}
}

func mismatches(t *testing.T, size int) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), size), "g")
	for seed := range uint64(soak.Cases(10)) {
		r := rand.New(rand.NewPCG(seed, uint64(size)))
		for name, calls := range differing {
			one, n := r.IntN(size), []int{1, 100, 5000, 20000}[r.IntN(4)]
			errs := attempt(gs, func(r int) error {
				if r == one {
					return calls[1](t.Context(), gs[r], n)
				}
				return calls[0](t.Context(), gs[r], n)
			})
			for r, err := range errs {
				var m *MismatchError
				require.ErrorAs(t, err, &m, "%s, rank %d of %d, seed %d", name, r, size, seed)
				require.Contains(t, m.Ranks, one, name)
				for k := range m.Calls {
					require.Contains(t, m.Calls[k].Line, "mismatch_test.go:", name)
					require.ErrorContains(t, err, m.Calls[k].Line, name)
				}
				require.NotEqual(t, m.Calls[0].Line, m.Calls[1].Line, name)
			}
			each(t, gs, func(r int) error {
				x := []int64{int64(r)}
				err := AllReduce(t.Context(), gs[r], x, Sum)
				if err == nil && x[0] != int64(size*(size-1)/2) {
					err = fmt.Errorf("the sum is %v", x)
				}
				return err
			})
		}
	}
}

// The network takes so long for each message. Whoever calls last, all know after there and back.
func TestAMismatchIsKnownToAllOneRoundTripAfterTheLastCall(t *testing.T) {
	const delay = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		const size = 4
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(delay), size), "g")
		for seed := range uint64(soak.Cases(4)) {
			r := rand.New(rand.NewPCG(seed, 5))
			for name, calls := range differing {
				one, n := r.IntN(size), 1+r.IntN(500)
				var comes, ends [size]time.Time
				wait := r.Perm(size) // each comes alone
				for m, err := range attempt(gs, func(m int) error {
					time.Sleep(time.Duration(wait[m]) * 7 * time.Millisecond) // of the bubble's clock
					comes[m] = time.Now()
					defer func() { ends[m] = time.Now() }()
					if m == one {
						return calls[1](t.Context(), gs[m], n)
					}
					return calls[0](t.Context(), gs[m], n)
				}) {
					require.ErrorIs(t, err, ErrMismatch, "%s, rank %d", name, m)
				}
				last := comes[0]
				for _, at := range comes {
					if at.After(last) {
						last = at
					}
				}
				for m, at := range ends {
					require.LessOrEqual(t, at.Sub(last), 2*delay, "%s: rank %d of %d, where %d differs and they come as %v", name, m, size, one, wait)
				}
			}
		}
	})
}
