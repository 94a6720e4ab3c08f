package passgraph

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func f32(shape ...int) Type {
	return Type{Dtype: device.Float32, Shape: shape}
}

// script writes graphs as passes do: nodes, then messages between them.
type script struct {
	workers []Worker
	last    uint64
}

// value is a result of a node.
type value struct {
	worker int
	in     Input
}

func newScript(n int) *script {
	s := &script{}
	for i := range n {
		s.workers = append(s.workers, Worker{Rank: i, Name: fmt.Sprintf("worker%d", i)})
	}
	return s
}

func (s *script) add(worker int, n Node, in ...value) []value {
	w := &s.workers[worker]
	for _, v := range in {
		if v.worker != worker {
			panic("a value of another worker")
		}
		n.Inputs = append(n.Inputs, v.in)
	}
	w.Nodes = append(w.Nodes, n)
	out := make([]value, len(n.Results))
	for i := range out {
		out[i] = value{worker, Input{Node: len(w.Nodes) - 1, Slot: i}}
	}
	return out
}

func (s *script) typeOf(v value) Type {
	return s.workers[v.worker].Nodes[v.in.Node].Results[v.in.Slot]
}

func (s *script) param(worker int, shape ...int) value {
	return s.add(worker, Node{Kind: Parameter, Name: "accumulate", Results: []Type{f32(shape...)}})[0]
}

func (s *script) call(worker int, name string, result Type, in ...value) value {
	return s.add(worker, Node{Kind: Function, Name: name, Results: []Type{result}}, in...)[0]
}

// timed says how long the call and its gradients took.
func (s *script) timed(v value, forward, backward time.Duration) value {
	n := &s.workers[v.worker].Nodes[v.in.Node]
	n.Forward, n.Backward = forward, backward
	return v
}

func (s *script) message(to int, what string, in ...value) []value {
	from := in[0].worker
	var types []Type
	for _, v := range in {
		types = append(types, s.typeOf(v))
	}
	s.last++
	id := uint64(from)<<48 | s.last
	s.add(from, Node{Kind: Send, Name: what, Results: types, Message: id, Peer: to}, in...)
	return s.add(to, Node{Kind: Recv, Results: types, Message: id, Peer: from})
}

func (s *script) root(v value) { s.workers[v.worker].Nodes[v.in.Node].Root = true }

func (s *script) graph(t testing.TB) *Graph {
	t.Helper()
	g, err := Merge(17, s.workers...)
	require.NoError(t, err)
	return g
}

// documented is the example of the design document.
func documented(t testing.TB) *Graph {
	s := newScript(2)
	t1, t2, t4 := s.param(0, 3, 3), s.param(0, 3, 3), s.param(0, 3, 3)
	there := s.message(1, "add", t1, t2)
	t3 := s.message(0, "the result of add", s.timed(s.call(1, "add", f32(3, 3), there...), 4*time.Microsecond, 6*time.Microsecond))[0]
	t5 := s.timed(s.call(0, "mul", f32(3, 3), t3, t4), 5*time.Microsecond, 11*time.Microsecond)
	s.root(s.timed(s.call(0, "sum", f32(), t5), 3*time.Microsecond, 8*time.Microsecond))
	return s.graph(t)
}

// random is a graph of so many functions over some workers, which call each other at random.
func random(r *rand.Rand, workers, functions int) *script {
	s := newScript(workers)
	names := []string{"linear", "gelu", "add", "layernorm", "matmul", "softmax", "embedding lookup of tokens"}
	shapes := []Type{f32(128, 64), f32(8, 128, 512), f32(), f32(1024, 1024), {Dtype: device.Float64, Shape: device.Shape{3}}}
	have := make([][]value, workers)
	for w := range have {
		have[w] = append(have[w], s.param(w, 64, 64))
	}
	at := 0
	pick := func(w int) value { // mostly what was made lately
		n := len(have[w])
		return have[w][max(0, n-1-int(r.ExpFloat64()*2))]
	}
	for range functions {
		if r.IntN(4) == 0 {
			to := r.IntN(workers)
			in := []value{pick(at)}
			for r.IntN(3) == 0 {
				in = append(in, pick(at))
			}
			have[to] = append(have[to], s.message(to, "f", in...)...)
			at = to
		}
		in := []value{pick(at)}
		for r.IntN(3) == 0 {
			in = append(in, pick(at))
		}
		for r.IntN(3) == 0 {
			in = append(in, s.param(at, 64))
		}
		v := s.call(at, names[r.IntN(len(names))], shapes[r.IntN(len(shapes))], in...)
		s.timed(v, time.Duration(r.IntN(5e6)), time.Duration(r.IntN(9e6)))
		have[at] = append(have[at], v)
	}
	last := have[at][len(have[at])-1]
	if s.workers[at].Nodes[last.in.Node].Kind == Function {
		s.root(last)
	}
	return s
}

// pipeline is a transformer over some stages, with micro-batches that share the parameters.
func pipeline(t testing.TB, stages, batches int) *Graph {
	s := newScript(stages)
	type block struct{ ln, qkv, out, up, down value }
	blocks := make([]block, stages)
	for i := range blocks {
		blocks[i] = block{s.param(i, 256), s.param(i, 256, 768), s.param(i, 256, 256), s.param(i, 256, 1024), s.param(i, 1024, 256)}
	}
	emb, head := s.param(0, 8000, 256), s.param(stages-1, 256, 8000)
	act := f32(16, 64, 256)
	for range batches {
		x := s.call(0, "embedding", act, emb)
		for i, b := range blocks {
			if i > 0 {
				x = s.message(i, "stage", x)[0]
			}
			h := s.timed(s.call(i, "layernorm", act, x, b.ln), 40*time.Microsecond, 90*time.Microsecond)
			a := s.timed(s.call(i, "attention", act, h, b.qkv, b.out), 1800*time.Microsecond, 3900*time.Microsecond)
			x = s.call(i, "add", act, x, a)
			m := s.timed(s.call(i, "mlp", act, x, b.up, b.down), 2600*time.Microsecond, 5*time.Millisecond)
			x = s.call(i, "add", act, x, m)
		}
		s.root(s.call(stages-1, "cross entropy", f32(), s.call(stages-1, "matmul", f32(16, 64, 8000), x, head)))
	}
	return s.graph(t)
}
