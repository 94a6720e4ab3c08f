package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

func TestOnEveryLaneRanksTogetherLoseWhatOneProcessDoes(t *testing.T) {
	rows := parallel.Rows{Seed: 2, N: rowsOfData, Batch: 31}
	want := alone(t, 24, func(step uint64) []int { return rows.Of(step, 0, 1) }).losses
	for _, lane := range transport.LaneNames() {
		if lane == transport.LaneCUDA {
			continue
		}
		for size, steps := range map[int]int{2: 24, 4: 8} {
			t.Run(fmt.Sprint(lane, ", ", size, " ranks"), func(t *testing.T) {
				w := onLane(t, size, lane)
				require.Equal(t, lane, w.gs[0].Members()[1].Lane)
				config := parallel.Config{Bucket: 1 << 10}
				w.requireTogether(config, want[:steps/noted], func(step uint64, rank int) []int {
					return rows.Of(step, rank, size)
				})
			})
		}
	}
}

// onLane is the members of a group on this host whose arrays travel on a lane.
func onLane(t *testing.T, size int, lane string) *world {
	t.Helper()
	return grouped(t, rpctest.WorldWith(t, rpctest.Net(), size, func(_ int, cfg *rpc.Config) {
		cfg.Network, cfg.Listen = nil, ""
		cfg.Lanes, cfg.Token = []string{lane}, secrettest.Token("job")
	}))
}

func TestOnOneHostLargeGradientsAreUnderWayTogether(t *testing.T) {
	w := onLane(t, 2, transport.LaneLocal)
	if w.gs[0].Members()[1].Lane != transport.LaneLocal {
		return // nothing is shared where there are no segments
	}
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	both := func() bool { // two large ones of rank 0 wait for rank 1
		n := 0
		for _, e := range w.gs[0].Trace() {
			if strings.HasPrefix(e.Call, "AllReduce") && e.State != "done" && e.Bytes >= 1<<20 {
				n++
			}
		}
		return n == 2
	}
	w.each(func(r int) error {
		ps := params(1<<18, 1<<18, 1<<18)
		replicas, err := parallel.Replicate(
			t.Context(), w.gs[r], ps, parallel.Config{Bucket: 1 << 10},
		)
		if err != nil {
			return err
		}
		for step := range 3 {
			if _, err := ps[2].OnAccumulated(func(_, _ *autodiff.Tensor) error { // it comes first
				for r == 1 && step == 2 && !both() {
					if c.Err() != nil {
						return errors.New("one at a time")
					}
					runtime.Gosched()
				}
				return nil
			}); err != nil {
				return err
			}
			if _, err := replicas.Backward(t.Context(), weighted(1, ps...), 1); err != nil {
				return err
			}
		}
		return nil
	})
}
