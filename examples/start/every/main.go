// Every fits a line to points of which each worker has some. docs/groups.md tells about it.
//
//	weft run --nproc-per-node 3 bin/every
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/rpc"
)

// points are this worker's: no other has them.
func points(rank int) (xs, ys []float64) {
	src := rand.New(rand.NewPCG(7, uint64(rank)))
	for range 100 + 50*rank { // some have more than others
		x := src.Float64()
		xs, ys = append(xs, x), append(ys, 3*x-1+0.1*src.NormFloat64())
	}
	return xs, ys
}

// fit descends by the gradient over all points of all workers.
func fit(c context.Context, g *collective.Group) (slope, offset float64, err error) {
	xs, ys := points(g.Rank())
	for range 500 {
		sums := make([]float64, 3) // of both gradients, and how many points
		for i, x := range xs {
			e := slope*x + offset - ys[i]
			sums[0], sums[1], sums[2] = sums[0]+e*x, sums[1]+e, sums[2]+1
		}
		if err := collective.AllReduce(c, g, sums, collective.Sum); err != nil {
			return 0, 0, err
		}
		slope, offset = slope-sums[0]/sums[2], offset-sums[1]/sums[2]
	}
	return slope, offset, nil
}

func run(c context.Context, w *rpc.Worker) error {
	g, err := collective.Open(c, w, "every") // all workers are members
	if err != nil {
		return err
	}
	slope, offset, err := fit(c, g)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: y = %.12f·x %+.12f\n", g.Rank(), g.Size(), slope, offset)
	return g.Close()
}

func main() {
	c := context.Background()
	w, err := rpc.Join(c, rpc.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := run(c, w); err != nil {
		_ = w.Close() // the others hear of it at once
		log.Fatal(err)
	}
	if err := w.Leave(c); err != nil {
		log.Fatal(err)
	}
}
