package disttest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
)

// program is what one worker does with its inputs, as data. Values are numbered: the inputs, then
// every step's results.
type program struct {
	Steps []step
	Out   []int
}

type stepKind int

const (
	useParam stepKind = iota
	useConstant
	compute
	callOut
)

type step struct {
	Kind  stepKind
	Op    int // of compute; which parameter or constant otherwise
	Args  []int
	To    int
	Via   via
	Body  *program
	Names string // for reading a failed program
}

// via is how a call is made.
type via int

const (
	direct via = iota
	async
	remote  // the result stays there, and is fetched through a reference
	noGrad  // not recorded
	viaEnds // how many there are
)

// All values are 3×3.
var ops = []struct {
	name string
	f    func(a, b *autodiff.Tensor) *autodiff.Tensor
}{
	{"add", autodiff.Add},
	{"sub", autodiff.Sub},
	{"mul", autodiff.Mul},
	{"matmul", func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Tanh(autodiff.MatMul(a, b)) }},
	{"sigmoid", func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Add(autodiff.Sigmoid(a), b) }},
	{"div", func(a, b *autodiff.Tensor) *autodiff.Tensor {
		return autodiff.Div(a, autodiff.Shift(autodiff.Mul(b, b), 1))
	}},
	{"transpose", func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Sub(autodiff.Transpose(a), b) }},
	{"mean", func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Add(autodiff.Mean(a, 0), b) }},
	{"slices", func(a, b *autodiff.Tensor) *autodiff.Tensor {
		return autodiff.Concat(0, autodiff.Slice(a, 0, 1, 3), autodiff.Slice(b, 0, 0, 1))
	}},
	{"softmax", func(a, b *autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(autodiff.Softmax(a, 1), b) }},
}

const sideElems = 9

// writer writes random programs that FAST mode can run backward: of every message some tensor that
// requires a gradient is used.
type writer struct {
	r       *rand.Rand
	workers int
	budget  int  // steps
	waste   bool // results may stay unused
}

const perWorker = 3 // parameters, and constants

// known is what the writer knows of a value.
type known struct {
	requires, used bool
	message        int // that it came in; 0: none
}

type draft struct {
	program
	vals     []known
	messages int
}

func (d *draft) add(s step, results ...known) int {
	d.Steps = append(d.Steps, s)
	d.vals = append(d.vals, results...)
	return len(d.vals) - 1
}

func (d *draft) use(vs ...int) {
	for _, v := range vs {
		d.vals[v].used = true
	}
}

// body writes what a worker does with inputs; requires says which of them do. It returns the same
// for the results.
func (w *writer) body(requires []bool, depth int) (*program, []bool) {
	d := &draft{messages: 1}
	for _, r := range requires {
		d.vals = append(d.vals, known{requires: r, message: 1})
	}
	d.add(step{Kind: useParam, Op: w.r.IntN(perWorker)}, known{requires: true})
	for n := 1 + w.r.IntN(6); n > 0 && w.budget > 0; n-- {
		w.budget--
		switch k := w.r.IntN(8); {
		case k == 0:
			d.add(step{Kind: useParam, Op: w.r.IntN(perWorker)}, known{requires: true})
		case k == 1:
			d.add(step{Kind: useConstant, Op: w.r.IntN(perWorker)}, known{})
		case k < 5 && depth > 0:
			w.call(d, depth)
		default:
			w.compute(d, w.r.IntN(len(ops)), w.pick(d), w.pick(d))
		}
	}
	return w.finish(d)
}

func (w *writer) pick(d *draft) int { return w.r.IntN(len(d.vals)) }

func (w *writer) compute(d *draft, op, a, b int) int {
	d.use(a, b)
	return d.add(step{Kind: compute, Op: op, Args: []int{a, b}, Names: ops[op].name},
		known{requires: d.vals[a].requires || d.vals[b].requires})
}

func (w *writer) call(d *draft, depth int) {
	s := step{Kind: callOut, To: w.r.IntN(w.workers), Via: via(w.r.IntN(int(viaEnds)))}
	var requires []bool
	for range w.r.IntN(4) {
		v := w.pick(d)
		s.Args = append(s.Args, v)
		requires = append(requires, d.vals[v].requires && s.Via != noGrad)
	}
	if s.Via != noGrad { // what is not recorded uses nothing
		d.use(s.Args...)
	}
	var outs []bool
	s.Body, outs = w.body(requires, depth-1)
	d.messages++
	var results []known
	for _, r := range outs {
		results = append(results, known{requires: r && s.Via != noGrad, message: d.messages})
	}
	d.add(s, results...)
}

// finish makes one result of all that nobody used, and returns some others too. What came in a
// message of which something is used may be forgotten, and anything where waste is allowed.
func (w *writer) finish(d *draft) (*program, []bool) {
	for range w.r.IntN(3) {
		v := w.pick(d)
		d.use(v)
		d.Out = append(d.Out, v)
	}
	a := slices.IndexFunc(d.vals, func(k known) bool { return k.requires }) // body begins with a parameter
	sum := w.compute(d, 0, a, w.pick(d))
	for v := range sum {
		if !d.vals[v].used && !((w.waste || d.spare(v)) && w.r.IntN(2) == 0) {
			sum = w.compute(d, 0, sum, v)
		}
	}
	d.use(sum)
	d.Out = append(d.Out, sum)
	var outs []bool
	for _, v := range d.Out {
		outs = append(outs, d.vals[v].requires)
	}
	return &d.program, outs
}

// spare says that the loss may do without a value.
func (d *draft) spare(v int) bool {
	if !d.vals[v].requires {
		return true
	}
	for o, k := range d.vals {
		if o != v && k.message > 0 && k.message == d.vals[v].message && k.used && k.requires {
			return true
		}
	}
	return false
}

// machine runs programs: over real workers, or all by itself.
type machine struct {
	params, constants [][]*autodiff.Tensor // by worker
	eval              *rpc.Func[task, []*autodiff.Tensor]
	entered           func(rank int, p *ctx.Pass) // hears of every call
	call              func(c context.Context, s *step, args []*autodiff.Tensor) func() ([]*autodiff.Tensor, error)
}

type task struct {
	Program *program
	In      []*autodiff.Tensor
}

func newMachine(seed uint64, workers int) *machine {
	r := rand.New(rand.NewPCG(seed, 1))
	m := &machine{}
	for range workers {
		var ps, cs []*autodiff.Tensor
		for range perWorker {
			ps, cs = append(ps, square(r).RequireGrad()), append(cs, square(r))
		}
		m.params, m.constants = append(m.params, ps), append(m.constants, cs)
	}
	return m
}

func square(r *rand.Rand) *autodiff.Tensor {
	v := make([]float64, sideElems)
	for i := range v {
		v[i] = r.NormFloat64() / 2
	}
	return autodiff.New(v, 3, 3)
}

// local is the oracle: calls are Go calls.
func local(seed uint64, workers int) *machine {
	m := newMachine(seed, workers)
	m.call = func(c context.Context, s *step, args []*autodiff.Tensor) func() ([]*autodiff.Tensor, error) {
		outs, err := m.run(c, s.To, s.Body, args)
		for i := range outs {
			if s.Via == noGrad {
				outs[i] = outs[i].Detach()
			}
		}
		return func() ([]*autodiff.Tensor, error) { return outs, err }
	}
	return m
}

// distributed calls through rpc.
func distributed(seed uint64, workers int) *machine {
	m := newMachine(seed, workers)
	m.eval = rpc.Define("eval", func(c context.Context, in task) ([]*autodiff.Tensor, error) {
		w, _ := rpc.FromContext(c)
		if m.entered != nil {
			m.entered(w.Rank(), current(c))
		}
		return m.run(c, w.Rank(), in.Program, in.In)
	})
	m.call = func(c context.Context, s *step, args []*autodiff.Tensor) func() ([]*autodiff.Tensor, error) {
		in := task{s.Body, args}
		switch s.Via {
		case async:
			f := m.eval.Async(c, name(s.To), in)
			return func() ([]*autodiff.Tensor, error) { return f.Wait(c) }
		case remote:
			ref := m.eval.Remote(c, name(s.To), in)
			defer ref.Release()
			outs, err := ref.ToHere(c)
			return func() ([]*autodiff.Tensor, error) { return outs, err }
		case noGrad:
			c = ctx.NoGrad(c)
		}
		outs, err := m.eval.Call(c, name(s.To), in)
		return func() ([]*autodiff.Tensor, error) { return outs, err }
	}
	return m
}

// run runs a program as worker at.
func (m *machine) run(c context.Context, at int, p *program, in []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
	var vals []func() (*autodiff.Tensor, error)
	put := func(t *autodiff.Tensor) {
		vals = append(vals, func() (*autodiff.Tensor, error) { return t, t.Err() })
	}
	get := func(of []int) ([]*autodiff.Tensor, error) {
		var ts []*autodiff.Tensor
		for _, v := range of {
			t, err := vals[v]()
			if err != nil {
				return nil, err
			}
			ts = append(ts, t)
		}
		return ts, nil
	}
	for _, t := range in {
		put(t)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		args, err := get(s.Args)
		if err != nil {
			return nil, fmt.Errorf("step %d on worker %d: %w", i, at, err)
		}
		switch s.Kind {
		case useParam:
			put(m.params[at][s.Op])
		case useConstant:
			put(m.constants[at][s.Op])
		case compute:
			put(ops[s.Op].f(args[0], args[1]))
		case callOut:
			outs := m.call(c, s, args)
			for j := range s.Body.Out {
				vals = append(vals, func() (*autodiff.Tensor, error) {
					ts, err := outs()
					if err != nil {
						return nil, err
					}
					return ts[j], nil
				})
			}
		}
	}
	return get(p.Out)
}

// requireSame compares the gradients of all parameters with the oracle's.
func (m *machine) requireSame(t *testing.T, oracle *machine, want *autodiff.Gradients, part func(worker int) *ctx.Pass) {
	t.Helper()
	for at := range m.params {
		have, err := part(at).Gradients()
		require.NoError(t, err)
		n := 0
		for i, leaf := range m.params[at] {
			w, h := want.Of(oracle.params[at][i]), have[leaf]
			require.Equal(t, w == nil, h == nil, "parameter %d of worker %d: %v, want %v", i, at, h, w)
			if h == nil {
				continue
			}
			n++
			for j, x := range values(t, w) {
				require.InDelta(t, x, values(t, h)[j], 1e-9*max(1, math.Abs(x)), "parameter %d of worker %d", i, at)
			}
		}
		require.Len(t, have, n, "only parameters have gradients")
	}
}
