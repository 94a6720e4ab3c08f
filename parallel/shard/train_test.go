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

// From the third step on all steps are alike.
func TestShardsTrainAsReplicasDoToTheLastBit(t *testing.T) {
	rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 14}
	for size := 1; size <= 4; size++ {
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			w := newWorld(t, size)
			for name, widths := range models {
				k := run{
					widths: widths, rule: optim.Adam{LR: 0.01}, steps: 4,
					rowsAt: func(step uint64, rank int) []int { return rows.Of(step, rank, size) },
				}
				want := w.replicated(k)
				for _, stage := range stagesOf(name) {
					k.config = func(int) shard.Config { return shard.Config{Stage: stage} }
					w.requireAsReplicated(fmt.Sprint(name, ", stage ", stage), k, want)
				}
			}
		})
	}
}

func TestShardsTrainAsReplicasDoWhereRowsAreUnevenAndNone(t *testing.T) {
	k := run{
		widths: models["several layers"], rule: optim.SGD{LR: 0.1, Momentum: 0.9},
		steps: 2 * 9, rowsAt: unevenRows, // 9 in which other ranks have none
	}
	w := newWorld(t, 3)
	want := w.replicated(k)
	for _, stage := range []shard.Stage{shard.Zero3, shard.Zero1} {
		k.config = func(int) shard.Config { return shard.Config{Stage: stage} }
		w.requireAsReplicated(fmt.Sprint("stage ", stage), k, want)
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
