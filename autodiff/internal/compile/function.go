package compile

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// Function is a function for one set of input types and wanted gradients: a forward program, and a
// backward program per set of results that have a gradient. They agree on what is saved: the values
// that the backward of all results reads.
type Function struct {
	Name    string
	Home    Home
	Given   []kernels.Type // of the inputs
	Need    []bool         // inputs that require a gradient
	Params  []bool         // inputs that are parameters; nil where the backend does not narrow
	Forward *program.Program
	Host    *program.Host  // Forward for the host's memory, nil where it is not
	Own     int            // bytes of the first result where the program makes it, else −1
	Sole    kernels.Kernel // of a function that is one instruction on its inputs
	Reads   []int          // inputs that the backward reads
	Factors []int          // inputs of which a rounded copy is saved: the last of what is kept
	Tracked []bool         // results through which gradients flow to a needed input
	Grads   bool           // some result is
	Sites   callsite.Table // from where it is called

	spec    Spec
	backend kernels.Backend
	in, out []*gorgonia.Node
	kept    []*gorgonia.Node
	narrow  []bool // of kept: it lies as bfloat16; nil where the backend does not narrow

	whole  atomic.Pointer[Pulling]         // of the only result
	Shared atomic.Pointer[program.Program] // Forward where rounded copies of factors are there; nil until somebody asks for it

	sought sought // which batches would have fitted

	mu    sync.Mutex
	graph *expr.Graph
	back  map[uint64]*Pulling // by the set of results that have a gradient
}

// Pulling is a backward program and where its results go.
type Pulling struct {
	Program *program.Program
	Host    *program.Host // Program for the host's memory, nil where it is not
	To      []int         // input of the function for each result of the program
}

// MaxResults is how many results a function may have: one bit each in the key of backward programs.
const MaxResults = 64

// prepare lists the forward. Where gradients are wanted it draws the backward of all results, which
// settles what is saved. The caller holds the lock on building.
func (c *Function) prepare() (*program.Unit, error) {
	if len(c.out) == 0 || len(c.out) > MaxResults {
		return nil, fmt.Errorf("%w: it has %d results; 1 to %d are possible", expr.ErrFunction, len(c.out), MaxResults)
	}
	var wrt []*gorgonia.Node
	for i, n := range c.in {
		if c.Need[i] {
			wrt = append(wrt, n)
		}
	}
	all, need := uint64(0), c.graph.Dependents(c.graph.Nodes(), wrt)
	for i, o := range c.out {
		c.Tracked = append(c.Tracked, need[o])
		if need[o] {
			all |= 1 << i
		}
	}
	if c.Grads = all != 0; c.Grads {
		before := len(c.graph.Nodes())
		defer c.graph.Truncate(before)
		gin, gout, _, err := c.pull(all)
		if err != nil {
			return nil, err
		}
		c.chooseSaved(before, gin, gout)
	}
	return c.listForward(false)
}

// compileForward compiles the forward.
func (c *Function) compileForward(u *program.Unit) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked("compiling "+c.Name, r)
		}
	}()
	if len(u.Insts) == 1 && !slices.Contains(u.NarrowResults, true) && slices.Equal(u.Insts[0].In, u.Given) && slices.Equal(u.Insts[0].Out, u.Results) {
		if c.Sole, err = c.backend.Prepare(u.Insts[0].Instr, c.Given); err != nil {
			return err
		}
	}
	if c.Forward, err = program.Compile(u, c.backend); err != nil {
		return err
	}
	if c.Home.Kind == device.KindCPU {
		c.Host = c.Forward.Host()
	}
	if c.Own = -1; c.Host != nil && c.Host.Results[0] >= len(c.in) {
		c.Own = c.Host.Made[c.Host.Results[0]-len(c.in)]
	}
	return nil
}

// pull adds the backward of the results in mask to the graph: nodes for the given gradients (one
// per result, nil outside mask), the resulting gradients, and the input that each belongs to.
func (c *Function) pull(mask uint64) (gin, gout []*gorgonia.Node, to []int, err error) {
	gin = make([]*gorgonia.Node, len(c.out))
	for i, o := range c.out {
		if mask&(1<<i) != 0 {
			gin[i] = c.graph.Input(c.graph.Type(o))
		}
	}
	var wrt []*gorgonia.Node
	for i, n := range c.in {
		if c.Need[i] {
			wrt = append(wrt, n)
			to = append(to, i)
		}
	}
	found, err := c.graph.Reverse(c.out, gin, wrt)
	if err != nil {
		return nil, nil, nil, err
	}
	have := to[:0]
	for i, d := range found {
		if d != nil {
			gout = append(gout, d)
			have = append(have, to[i])
		}
	}
	return gin, gout, have, nil
}

// Backward finds or compiles the program that pulls the results in mask back.
func (c *Function) Backward(mask uint64) (*Pulling, error) {
	if p := c.whole.Load(); p != nil && mask == 1 {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.back[mask]; p != nil {
		return p, nil
	}
	p, err := c.compileBackward(mask)
	if err != nil {
		return nil, err
	}
	if c.back == nil || len(c.back) >= MaxBackwards {
		c.back = map[uint64]*Pulling{}
	}
	c.back[mask] = p
	if mask == 1 {
		c.whole.Store(p)
	}
	return p, nil
}

// MaxBackwards bounds the backward programs that one function keeps for one set of types; beyond it
// they begin afresh.
const MaxBackwards = 64

func (c *Function) compileBackward(mask uint64) (p *Pulling, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked("compiling the gradient", r)
		}
	}()
	u, to, err := c.drawBackward(mask)
	if err != nil {
		return nil, err
	}
	prog, err := program.Compile(u, c.backend)
	if err != nil {
		return nil, err
	}
	p = &Pulling{Program: prog, To: to}
	if c.Home.Kind == device.KindCPU {
		p.Host = prog.Host()
	}
	return p, nil
}

// drawBackward lists the backward of the results in mask; its graph is forgotten again.
func (c *Function) drawBackward(mask uint64) (*program.Unit, []int, error) {
	if err := expr.Lock(); err != nil {
		return nil, nil, err
	}
	defer expr.Unlock()
	defer c.graph.Truncate(len(c.graph.Nodes()))
	gin, gout, to, err := c.pull(mask)
	if err != nil {
		return nil, nil, err
	}
	var given []*gorgonia.Node
	for _, i := range c.Reads {
		given = append(given, c.in[i])
	}
	given = append(given, c.kept...)
	for _, n := range gin {
		if n != nil {
			given = append(given, n)
		}
	}
	u, err := c.graph.Lower(c.Name+" backward", given, gout)
	if err == nil && c.narrow != nil {
		u.NarrowGiven = append(make([]bool, len(c.Reads)), c.narrow...)
		for _, i := range to {
			u.WideResults = append(u.WideResults, c.Params[i])
		}
	}
	return u, to, err
}

// NumResults is how many results the function has.
func (c *Function) NumResults() int { return len(c.out) }

// Results are the types of the function's results.
func (c *Function) Results() []kernels.Type { return c.Forward.Types()[:len(c.out)] }
