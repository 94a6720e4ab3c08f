package parallel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

func TestOnEveryLaneRanksTogetherLoseWhatOneProcessDoes(t *testing.T) {
	for _, lane := range transport.LaneNames() {
		if lane == transport.LaneCUDA {
			continue
		}
		for size := 2; size <= 4; size++ {
			t.Run(fmt.Sprint(lane, ", ", size, " ranks"), func(t *testing.T) {
				w := grouped(t, rpctest.WorldWith(t, rpctest.Net(), size, func(_ int, cfg *rpc.Config) {
					cfg.Network, cfg.Listen, cfg.Lanes, cfg.Token = nil, "", []string{lane}, secrettest.Token("job")
				}))
				require.Equal(t, lane, w.gs[0].Members()[1].Lane)
				rows := parallel.Rows{Seed: 2, N: rowsOfData, Batch: 31}
				w.requireTogether(parallel.Config{Bucket: 1 << 10}, 100, func(step uint64, rank int) []int {
					return rows.Of(step, rank, size)
				})
			})
		}
	}
}
