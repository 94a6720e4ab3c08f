package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

func main() {
	largest := flag.Int("max", 20_000, "ops of the largest graph")
	rounds := flag.Int("rounds", 3, "rounds; the least time of them counts")
	out := flag.String("o", "docs/compile-time.svg", "where to draw")
	flag.Parse()
	if err := run(os.Stdout, *largest, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}

// kind is a family of graphs: step adds some ops to a graph that has x, and the weight w, and gives
// what the next step goes on with.
type kind struct {
	name string
	ops  int // per step
	step func(b *builder, x *gorgonia.Node) *gorgonia.Node
}

// builder is what steps see.
type builder struct {
	*autodiff.Graph
	w, b    *gorgonia.Node
	earlier []*gorgonia.Node // results of all steps so far
}

var kinds = []kind{
	{"elementwise chain", 2, func(b *builder, x *gorgonia.Node) *gorgonia.Node { return b.Add(b.Tanh(x), b.b) }},
	{"layers with residuals", 4, func(b *builder, x *gorgonia.Node) *gorgonia.Node { return b.Add(x, b.GELU(b.Linear(x, b.w, b.b))) }},
	{"far connections", 5, func(b *builder, x *gorgonia.Node) *gorgonia.Node {
		far := b.earlier[len(b.earlier)*7/11] // of the whole graph so far
		y := b.Mul(b.Softmax(x, 1), b.Sigmoid(far))
		return b.Sub(b.Transpose(y), far)
	}},
}

// body is a graph of as many steps as fit into so many ops.
func (k kind) body(ops int) func(g *autodiff.Graph, x, w, b *gorgonia.Node) *gorgonia.Node {
	return func(g *autodiff.Graph, x, w, bias *gorgonia.Node) *gorgonia.Node {
		b := &builder{Graph: g, w: w, b: bias, earlier: []*gorgonia.Node{x}}
		for range ops / k.ops {
			x = k.step(b, x)
			b.earlier = append(b.earlier, x)
		}
		return g.Mean(x)
	}
}

// times are what a function takes at first and later.
type times struct{ forward, backward time.Duration }

// measure compiles a new function.
func measure(k kind, ops int) (compile times, err error) {
	f := autodiff.Define(k.name, k.body(ops))
	var in []*autodiff.Tensor
	for _, shape := range [][]int{{4, 4}, {4, 4}, {4}} {
		in = append(in, autodiff.Full(device.Float32, 0.1, shape...).RequireGrad())
	}
	var took [2]times
	for k := range took {
		began := processorTime()
		y := f.Call(in...)
		if _, err := y.Item(); err != nil {
			return compile, err
		}
		middle := processorTime()
		if _, err := autodiff.Backward(y); err != nil {
			return compile, err
		}
		took[k] = times{middle - began, processorTime() - middle}
	}
	return times{took[0].forward - took[1].forward, took[0].backward - took[1].backward}, nil
}

// processorTime is what this process has had of the processors, so that other work on the machine
// does not count.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // there is no such error for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// point is a measured graph.
type point struct {
	ops int
	times
}

func run(w io.Writer, largest, rounds int, out string) error {
	var sizes []int
	for n := largest; n >= max(largest/16, 1); n /= 2 {
		sizes = append([]int{n}, sizes...)
	}
	lines := make([][]point, len(kinds))
	for i, k := range kinds {
		for _, n := range sizes {
			lines[i] = append(lines[i], point{ops: n / k.ops * k.ops})
		}
	}
	for round := range rounds {
		for i, k := range kinds {
			for j := range lines[i] {
				p := &lines[i][j]
				t, err := measure(k, p.ops)
				if err != nil {
					return fmt.Errorf("%s of %d ops: %w", k.name, p.ops, err)
				}
				if round == 0 || t.forward+t.backward < p.forward+p.backward {
					p.times = t
				}
			}
		}
	}
	fmt.Fprint(w, "| graph | ops | forward | backward | both | µs per op |\n| --- | --- | --- | --- | --- | --- |\n")
	for i, k := range kinds {
		for _, p := range lines[i] {
			both := p.forward + p.backward
			fmt.Fprintf(w, "| %s | %d | %.0f ms | %.0f ms | %.0f ms | %.1f |\n", k.name, p.ops,
				1e3*p.forward.Seconds(), 1e3*p.backward.Seconds(), 1e3*both.Seconds(), 1e6*both.Seconds()/float64(p.ops))
		}
	}
	return draw(lines, out)
}
