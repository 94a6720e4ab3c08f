package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
)

const inputs, hidden, classes = 784, 1024, 10

func main() {
	folder := flag.String("folder", ".", "where to write the file steps")
	members := flag.Int("n", 4, "how many members there are mostly")
	rows := flag.Int("rows", 64, "rows of each member, of as many members")
	flag.Parse()
	if err := work(context.Background(), *folder, *members**rows); err != nil {
		log.Fatal(err)
	}
}

func work(c context.Context, folder string, batch int) error {
	src := rand.New(rand.NewPCG(1, 2))
	model := nn.NewMLP(src, autodiff.ReLU, inputs, hidden, hidden, classes)
	opt, err := optim.NewGroups(optim.Named(optim.SGD{LR: 0.01}, nn.Parameters(model)))
	if err != nil {
		return err
	}
	x, y := make([]float32, batch*inputs), make([]int64, batch)
	for i := range x {
		x[i] = float32(src.NormFloat64())
	}
	for i := range y {
		y[i] = src.Int64N(classes)
	}
	loss := func(_ context.Context, rows []int) (*autodiff.Tensor, error) {
		var in []float32
		var want []int64
		for _, row := range rows {
			in, want = append(in, x[row*inputs:(row+1)*inputs]...), append(want, y[row])
		}
		t := autodiff.New(in, len(rows), inputs)
		if err := autodiff.NewArena("step").Adopt(t); err != nil {
			return nil, err
		}
		return autodiff.CrossEntropy(model.Forward(t), autodiff.New(want)), nil
	}
	steps, err := os.OpenFile(filepath.Join(folder, "steps"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer steps.Close()
	m, err := elastic.Join(c)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // the agent knows when this process ends
	cfg := resilient.Config{Params: nn.Parameters(model), Optimizer: opt, Logger: slog.New(slog.DiscardHandler)}
	return resilient.Each(c, m, cfg, func(c context.Context, e *elastic.Epoch, team *resilient.Team) error {
		for {
			step := team.Next()
			if _, err := team.Step(c, step, parallel.Rows{Seed: 1, N: batch, Batch: batch}, loss); err != nil {
				return err
			}
			_, err := fmt.Fprintf(steps, "%.6f %d %d %d\n", float64(time.Now().UnixMicro())/1e6, step, e.Rank, os.Getpid())
			if err != nil {
				return elastic.Final(err)
			}
		}
	})
}
