package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
)

// inParts is what docs/data-parallel.md says of larger batches.
func inParts(c context.Context, r *parallel.Replicas, loss func(rows []int) *autodiff.Tensor, rows []int, part int) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	for len(rows) > part {
		if err := r.Accumulate(loss(rows[:part]), part); err != nil {
			return nil, err
		}
		rows = rows[part:]
	}
	return r.Backward(c, loss(rows), len(rows))
}

func TestABatchInPartsIsAsOneInWhole(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	errs := make([]error, len(ws))
	var all sync.WaitGroup
	for r, w := range ws {
		all.Go(func() { errs[r] = partsAsWhole(t.Context(), w) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func partsAsWhole(c context.Context, w *rpc.Worker) (err error) {
	g, err := collective.Open(c, w, "parts")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Barrier(c), g.Close()) }()
	x := autodiff.New([]float64{1, 2}).RequireGrad()
	r, err := parallel.Replicate(c, g, []*autodiff.Tensor{x}, parallel.Config{})
	if err != nil {
		return err
	}
	loss := func(rows []int) *autodiff.Tensor { // the mean of their numbers, times the sum of x
		mean := 0.0
		for _, row := range rows {
			mean += float64(row) / float64(len(rows))
		}
		return autodiff.Sum(autodiff.Scale(x, mean))
	}
	rows := [][]int{{1, 2, 3, 4, 5, 6, 7}, {8, 9, 10}}[g.Rank()]
	for _, part := range []int{1, 2, 3, 10} {
		grads, err := inParts(c, r, loss, rows, part)
		if err != nil {
			return err
		}
		if got, err := autodiff.Max(grads[x]).Item(); err != nil || got < 5.499999 || got > 5.500001 {
			return fmt.Errorf("in parts of %d rows the gradient is %v; expected 5.5: %w", part, got, err)
		}
	}
	return nil
}
