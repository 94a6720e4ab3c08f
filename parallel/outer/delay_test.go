package outer

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
)

// TestInnerStepsGoOnWhileAnExchangeIsUnderWay has links of 100 ms and steps of 10 ms, on a clock
// that only these move.
func TestInnerStepsGoOnWhileAnExchangeIsUnderWay(t *testing.T) {
	for _, c := range []struct {
		delay  int
		hidden bool
	}{{0, false}, {10, false}, {49, true}} {
		t.Run(fmt.Sprint(c.delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const steps, pace = 199, 10 * time.Millisecond
				cfg := Config{Every: 50, Delay: c.delay}
				w := &world{t: t, ws: rpctest.World(t, rpctest.SlowNet(100*time.Millisecond), 3), gs: make([]*collective.Group, 3), loops: make([]*Loop, 3)}
				took := make([]time.Duration, 3)
				w.each(w.first(3), func(r int) (err error) {
					params := newParams(0)
					if w.gs[r], err = collective.Open(t.Context(), w.ws[r], "outer"); err == nil {
						w.loops[r], err = New(t.Context(), w.gs[r], params, cfg)
					}
					if err != nil {
						return err
					}
					if err := w.gs[r].Barrier(t.Context()); err != nil {
						return err
					}
					began := time.Now()
					for step := range steps {
						time.Sleep(pace)
						if err := errors.Join(inner(params, r, step), w.loops[r].Step(t.Context())); err != nil {
							return err
						}
					}
					took[r] = time.Since(began)
					return nil
				})
				w.requireSame(0, 1, 2)
				for r, l := range w.loops {
					total := l.Total()
					require.Equal(t, 3, total.Exchanges)
					require.Equal(t, steps*pace+total.Waited, took[r], "nothing else takes time here")
					if c.hidden {
						require.Zero(t, total.Waited)
					} else { // a word from each, pieces, and sums: three times 100 ms at least
						require.GreaterOrEqual(t, total.Waited, 3*(300*time.Millisecond-time.Duration(c.delay)*pace))
					}
					require.Less(t, l.Last().Took, 500*time.Millisecond)
				}
				w.each(w.first(3), func(r int) error { return errors.Join(w.loops[r].Close(), w.gs[r].Close()) })
			})
		})
	}
}
