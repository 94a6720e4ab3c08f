// Simple trains two parameters that lie on another process, for one step. Each of two workers makes
// two 3×3 parameters on the other, adds them there, fetches the sum, runs the backward across both
// processes, lets the other step its parameters, and checks that each has moved by exactly −0.05 ×
// its gradient.
//
//	go run ./examples/simple [--json] [--graph pass.svg]    # starts its two workers itself
//	weft run --nproc-per-node 2 bin/simple [--json]         # the same under weft run
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/rpc/trace"
)

const lr = 0.05

// What a worker serves to the other.
var (
	newParam = rpc.Define("param", func(context.Context, struct{}) (*autodiff.Tensor, error) {
		return autodiff.Rand(3, 3).RequireGrad(), nil
	})
	add = rpc.Define("add", func(c context.Context, refs []optim.Param) (*autodiff.Tensor, error) {
		t, err := locals(c, refs)
		return autodiff.Add(t[0], t[1]), err
	})
	inspect = rpc.Define("inspect", func(c context.Context, refs []optim.Param) (states []state, _ error) {
		params, err := locals(c, refs)
		grads, errG := ctx.Gradients(c) // they lie in the pass, on the worker that owns the parameters
		for _, p := range params {
			v, errV := autodiff.Values[float32](p)
			g, errG := autodiff.Values[float32](grads[p])
			states, err = append(states, state{v, g}), errors.Join(err, errV, errG)
		}
		return states, errors.Join(err, errG)
	})
)

type state struct{ Value, Gradient []float32 }

// locals are the tensors that references name, here on their owner. References that arrive are the
// callee's to release.
func locals(c context.Context, refs []optim.Param) (ts []*autodiff.Tensor, err error) {
	for _, r := range refs {
		t, errT := r.LocalValue(c)
		ts, err = append(ts, t), errors.Join(err, errT)
		r.Release()
	}
	return ts, err
}

// move is what one step did to a parameter.
type move struct {
	Worker, Owner, Param    string
	Before, Gradient, After []float32
}

// verify says where the parameter did not move by exactly −lr × its gradient, in float32
// arithmetic.
func (m move) verify() error {
	for i, g := range m.Gradient {
		if want := m.Before[i] - float32(lr*g); m.After[i] != want {
			return fmt.Errorf("%s on %s: element %d went from %v to %v with gradient %v; expected %v", m.Param, m.Owner, i, m.Before[i], m.After[i], g, want)
		}
	}
	return nil
}

// train makes two parameters on the other worker and steps them once. With a file for it rank 0
// writes the graph of the pass there.
func train(c context.Context, w *rpc.Worker, graph string) (moves []move, err error) {
	other := w.Workers()[1-w.Rank()].Name
	params := []optim.Param{newParam.Remote(c, other, struct{}{}), newParam.Remote(c, other, struct{}{})}
	opt, err := optim.NewDistributed(c, optim.SGD{LR: lr}, params...)
	if err != nil {
		return nil, err
	}
	err = w.Pass(c, func(c context.Context) error {
		sum, err := add.Remote(c, other, params).ToHere(c) // the sum stays there until it is fetched
		if err != nil {
			return err
		}
		if err := ctx.Backward(c, autodiff.Sum(autodiff.Mul(sum, sum))); err != nil {
			return err
		}
		if graph != "" && w.Rank() == 0 {
			g, err := ctx.Graph(c)
			if err == nil {
				err = g.WriteFile(graph)
			}
			if err != nil {
				return err
			}
		}
		before, err := inspect.Call(c, other, params)
		if err != nil {
			return err
		}
		if err := opt.Step(c); err != nil {
			return err
		}
		after, err := inspect.Call(c, other, params)
		for i := range after {
			moves = append(moves, move{w.Name(), other, "AB"[i : i+1], before[i].Value, before[i].Gradient, after[i].Value})
		}
		return err
	})
	return moves, err
}

// work joins the job that the environment describes, trains, and prints and checks the outcome.
func work(c context.Context, asJSON bool, graph string) error {
	cfg := rpc.Config{Functions: append(optim.Functions(), newParam, add, inspect)}
	if graph != "" {
		cfg.Trace = trace.Discard{} // takes the times that the graph shows
	}
	w, err := rpc.Join(c, cfg)
	if err != nil {
		return err
	}
	if w.WorldSize() != 2 {
		return errors.Join(fmt.Errorf("expected two workers, not %d: weft run --nproc-per-node 2 bin/simple", w.WorldSize()), w.Close())
	}
	moves, err := train(w.Context(c), w, graph)
	if err != nil {
		return errors.Join(err, w.Close()) // the other hears of it at once
	}
	for _, m := range moves {
		err = errors.Join(err, m.verify())
		if asJSON {
			err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(m))
		} else if err == nil {
			fmt.Printf("%s: %s on %s moved by exactly -%v × its gradient\n  before   %.4f\n  gradient %.4f\n  after    %.4f\n",
				m.Worker, m.Param, m.Owner, lr, m.Before, m.Gradient, m.After)
		}
	}
	return errors.Join(err, w.Leave(c)) // serves the other until it comes to leave too
}

func main() { program.Main(run) }

func run(c context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("simple", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "print one line of JSON per parameter")
	graph := f.String("graph", "", "write the graph of rank 0's pass to this file, .svg or .dot")
	err := program.Parse(f, args, stdout)
	if ext := filepath.Ext(*graph); err == nil && *graph != "" && ext != ".svg" && ext != ".dot" {
		err = fmt.Errorf("--graph %s: the name must end in .svg or .dot", *graph)
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q; options begin with --", f.Arg(0))
	}
	if err != nil {
		return program.End(c, "simple", program.Wrong(err), stderr)
	}
	self, err := os.Executable()
	if _, worker := os.LookupEnv("RANK"); worker {
		err = work(c, *asJSON, *graph)
	} else if err == nil {
		_, err = agent.Run(c, agent.Spec{Program: self, Args: args, NprocPerNode: 2, NoPrefix: *asJSON, Stdout: stdout, Stderr: stderr})
	}
	return program.End(c, "simple", err, stderr)
}
