package shard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
)

// models have layers on both sides of what matters: smaller than the group, not a multiple of it,
// and than the sizes from which arrays travel another way.
var models = map[string][]int{
	"one layer":      {features, classes},
	"tiny layers":    {features, 1, 1, classes},
	"several layers": {features, 31, 17, 8, classes},
	"a large layer":  {features, 200, 201, classes},
}

// stagesOf are those to try a model with.
func stagesOf(name string) []shard.Stage {
	if name == "several layers" {
		return []shard.Stage{shard.Zero3, shard.Zero1}
	}
	return []shard.Stage{shard.Zero3}
}

func TestShardsTrainAsReplicasDoToTheLastBit(t *testing.T) {
	for name, widths := range models {
		for size := 1; size <= 4; size++ {
			for _, stage := range stagesOf(name) {
				t.Run(fmt.Sprint(name, ", ", size, " ranks, stage ", stage), func(t *testing.T) {
					rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 14}
					newWorld(t, size).requireAsReplicated(run{
						widths: widths, rule: optim.Adam{LR: 0.01}, steps: 30,
						rowsAt: func(step uint64, rank int) []int { return rows.Of(step, rank, size) },
						config: func(int) shard.Config { return shard.Config{Stage: stage} },
					})
				})
			}
		}
	}
}

func TestShardsTrainAsReplicasDoWhereRowsAreUnevenAndNone(t *testing.T) {
	for _, stage := range []shard.Stage{shard.Zero3, shard.Zero1} {
		t.Run(fmt.Sprint("stage ", stage), func(t *testing.T) {
			newWorld(t, 3).requireAsReplicated(run{
				widths: models["several layers"], rule: optim.SGD{LR: 0.1, Momentum: 0.9}, steps: 40, rowsAt: unevenRows,
				config: func(int) shard.Config { return shard.Config{Stage: stage} },
			})
		})
	}
}

// unevenRows are other numbers of rows at each step for 3 ranks, and none for some.
func unevenRows(step uint64, rank int) []int {
	src := rand.New(rand.NewPCG(step, uint64(rank)))
	rows := make([]int, src.IntN(12))
	if rank == int(step)%3 || rank == int(step/3)%3 {
		return nil
	}
	if len(rows) == 0 {
		rows = make([]int, 7)
	}
	for i := range rows {
		rows[i] = src.IntN(rowsOfData)
	}
	return rows
}
