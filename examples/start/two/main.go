// Two fits a sine with a network whose second half lives on another worker. docs/start.md tells
// about it.
//
//	weft run --nproc-per-node 2 bin/two
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// Every worker makes both halves. Worker 1 uses its tail, and worker 0 its head.
var (
	src  = rand.New(rand.NewPCG(1, 2))
	head = nn.NewMLP(src, autodiff.Tanh, 1, 32, 32)
	tail = nn.NewMLP(src, autodiff.Tanh, 32, 1)
)

// Worker 1 serves these two functions.
var (
	forward = rpc.Define("forward", func(_ context.Context, h *autodiff.Tensor) (*autodiff.Tensor, error) {
		return tail.Forward(autodiff.Tanh(h)), nil
	})
	param = rpc.Define("param", func(_ context.Context, i int) (*autodiff.Tensor, error) {
		return tail.Params()[i], nil
	})
)

// batch draws points of a sine.
func batch() (x, y *autodiff.Tensor) {
	const rows = 64
	xs, ys := make([]float32, rows), make([]float32, rows)
	for i := range xs {
		xs[i] = float32(src.Float64()*6 - 3)
		ys[i] = float32(math.Sin(float64(xs[i])))
	}
	return autodiff.New(xs, rows, 1), autodiff.New(ys, rows, 1)
}

// train steps the parameters of both workers by what worker 0 sees of the loss.
func train(c context.Context, w *rpc.Worker) error {
	var params []optim.Param
	for _, p := range head.Params() {
		mine, err := rpc.NewRRef(c, p)
		if err != nil {
			return err
		}
		params = append(params, mine)
	}
	for i := range tail.Params() {
		params = append(params, param.Remote(c, "worker1", i)) // a reference; the tensor stays there
	}
	opt, err := optim.NewDistributed(c, optim.Adam{LR: 0.01}, params...)
	if err != nil {
		return err
	}
	for step := range 500 {
		err := w.Pass(c, func(c context.Context) error {
			x, y := batch()
			out, err := forward.Call(c, "worker1", head.Forward(x))
			if err != nil {
				return err
			}
			loss := nn.MSE(out, y)
			if err := ctx.Backward(c, loss); err != nil {
				return err
			}
			if step%100 == 99 {
				value, err := loss.Item()
				if err != nil {
					return err
				}
				fmt.Printf("step %d  loss %.5f\n", step+1, value)
			}
			return opt.Step(c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func main() {
	c := context.Background()
	w, err := rpc.Join(c, rpc.Config{Functions: append(optim.Functions(), forward, param)})
	if err != nil {
		log.Fatal(err)
	}
	if w.Rank() == 0 {
		err = train(w.Context(c), w)
	}
	if err != nil {
		_ = w.Close() // the others hear of it at once
		log.Fatal(err)
	}
	if err := w.Leave(c); err != nil { // serves the others until they leave, too
		log.Fatal(err)
	}
}
