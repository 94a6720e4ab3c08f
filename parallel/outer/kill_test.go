package outer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
)

// until makes inner steps until so many exchanges are made, and goes on without members that are
// lost. work is how many steps it has made, and gave how many of them exchanges that it has applied
// had.
func (w *world) until(c context.Context, r int, rounds uint64, pace time.Duration) (work, gave float64, err error) {
	l := w.loops[r]
	for l.Rounds() < rounds {
		time.Sleep(pace)
		work++
		before := l.Total().Exchanges
		if err := errors.Join(inner(w.params[r], r, int(work)), w.goOn(c, r, l.Step(c))); err != nil {
			return work, gave, err
		}
		if l.Total().Exchanges > before {
			gave += l.last.Weights[w.gs[r].Rank()]
		}
	}
	err = l.Finish(c)
	for errors.Is(err, collective.ErrLost) || errors.Is(err, ErrApart) {
		if err = w.goOn(c, r, err); err == nil {
			err = l.Finish(c)
		}
	}
	return work, gave, err
}

// goOn mends a group after an error.
func (w *world) goOn(c context.Context, r int, err error) error {
	for errors.Is(err, collective.ErrLost) || errors.Is(err, ErrApart) {
		next, e := w.gs[r].Without(c)
		if err = e; e == nil {
			w.gs[r] = next
			err = w.loops[r].Regroup(c, next)
		}
	}
	return err
}

// TestWhoeverIsKilledWheneverTheOthersGoOnTogether kills one of four workers, with different paces,
// at a random moment: before an exchange, in its first words, in the sum, or after it.
func TestWhoeverIsKilledWheneverTheOthersGoOnTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 6))
	for k := range soak.Cases(30) {
		cfg := drawConfig(r)
		cfg.Every += 3
		cfg.Wire = Wire(r.IntN(4))
		victim, at, slow := r.IntN(4), time.Duration(r.IntN(1200))*time.Millisecond, r.IntN(4)
		t.Run(fmt.Sprintf("%d, %+v, worker %d at %v", k, cfg, victim, at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { killed(t, cfg, victim, slow, at) })
		})
	}
}

func killed(t *testing.T, cfg Config, victim, slow int, at time.Duration) {
	const workers, rounds = 4, 12
	net := rpctest.SlowNet(20 * time.Millisecond)
	w := &world{t: t, ws: rpctest.World(t, net, workers), gs: make([]*collective.Group, workers), loops: make([]*Loop, workers)}
	for r := range workers {
		w.params = append(w.params, newParams(uint64(r)))
	}
	w.each(w.first(workers), func(r int) (err error) {
		if w.gs[r], err = collective.Open(t.Context(), w.ws[r], "outer"); err == nil {
			w.loops[r], err = New(t.Context(), w.gs[r], w.params[r], cfg)
		}
		return err
	})
	c, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	time.AfterFunc(at, func() { net.Kill(rpctest.Host(victim)) })
	errs := attempt(w.first(workers), func(r int) error {
		mine, stop := c, func() {}
		if r == victim { // a process that is killed says nothing more
			mine, stop = context.WithTimeout(c, at)
		}
		defer stop()
		pace := 30 * time.Millisecond
		if r == slow {
			pace *= 2
		}
		work, gave, err := w.until(mine, r, rounds, pace)
		if err == nil && len(w.loops[r].parts) == 1 {
			require.LessOrEqual(t, gave, work, "no step counts twice")
		}
		return err
	})
	var left []int
	for r, err := range errs {
		if r != victim {
			require.NoError(t, err, "rank %d", r)
			left = append(left, r)
		}
		require.NoError(t, w.loops[r].Close())
		_ = w.gs[r].Close() // it may have ended
	}
	w.requireSame(left...)
	for _, r := range left {
		require.Equal(t, valuesOf(t, w.params[left[0]]), valuesOf(t, w.params[r]))
		require.GreaterOrEqual(t, w.loops[r].Rounds(), uint64(rounds))
		require.Less(t, w.gs[r].Size(), workers, "it was killed while they trained")
	}
}
