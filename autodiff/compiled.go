package autodiff

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// compiled is a function for one set of input types and wanted gradients: a forward program, and a
// backward program per set of results that have a gradient. They agree on what is saved: the values
// that the backward of all results reads.
type compiled struct {
	name    string
	backend kernels.Backend
	home    home
	in, out []*gorgonia.Node
	given   []kernels.Type // of the inputs
	need    []bool         // inputs that require a gradient
	params  []bool         // inputs that are parameters; nil where the backend does not narrow
	fwd     *program.Program
	host    *program.Host  // fwd for the host's memory, nil where it is not
	own     int            // bytes of the first result where the program makes it, else −1
	sole    kernels.Kernel // of a function that is one instruction on its inputs
	reads   []int          // inputs that the backward reads
	kept    []*gorgonia.Node
	narrow  []bool // of kept: it lies as bfloat16; nil where the backend does not narrow
	factors []int  // inputs of which a rounded copy is saved: the last of kept
	tracked []bool // results through which gradients flow to a needed input
	grads   bool   // some result is
	sites   sites

	whole  atomic.Pointer[pulling]         // of the only result
	shared atomic.Pointer[program.Program] // fwd where rounded copies of factors are there

	mu    sync.Mutex
	graph *Graph
	back  map[uint64]*pulling // by the set of results that have a gradient
}

// pulling is a backward program and where its results go.
type pulling struct {
	prog *program.Program
	host *program.Host // prog for the host's memory, nil where it is not
	to   []int         // input of the function for each result of the program
}

// maxResults is how many results a function may have: one bit each in the key of backward programs.
const maxResults = 64

// prepare lists the forward. Where gradients are wanted it draws the backward of all results, which
// settles what is saved. The caller holds buildMu.
func (c *compiled) prepare() (*program.Unit, error) {
	if len(c.out) == 0 || len(c.out) > maxResults {
		return nil, fmt.Errorf("%w: it has %d results; 1 to %d are possible", ErrFunction, len(c.out), maxResults)
	}
	var wrt []*gorgonia.Node
	for i, n := range c.in {
		if c.need[i] {
			wrt = append(wrt, n)
		}
	}
	all, need := uint64(0), c.graph.dependents(c.graph.order, wrt)
	for i, o := range c.out {
		c.tracked = append(c.tracked, need[o])
		if need[o] {
			all |= 1 << i
		}
	}
	if c.grads = all != 0; c.grads {
		before := len(c.graph.order)
		defer c.graph.truncate(before)
		gin, gout, _, err := c.pull(all)
		if err != nil {
			return nil, err
		}
		c.settle(before, gin, gout)
	}
	return c.listForward(false)
}

// finish compiles the forward.
func (c *compiled) finish(u *program.Unit) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked("compiling "+c.name, r)
		}
	}()
	if len(u.Insts) == 1 && !slices.Contains(u.NarrowResults, true) && slices.Equal(u.Insts[0].In, u.Given) && slices.Equal(u.Insts[0].Out, u.Results) {
		if c.sole, err = c.backend.Prepare(u.Insts[0].Instr, c.given); err != nil {
			return err
		}
	}
	if c.fwd, err = program.Compile(u, c.backend); err != nil {
		return err
	}
	if c.home.kind == device.KindCPU {
		c.host = c.fwd.Host()
	}
	if c.own = -1; c.host != nil && c.host.Results[0] >= len(c.in) {
		c.own = c.host.Made[c.host.Results[0]-len(c.in)]
	}
	return nil
}

// pull adds the backward of the results in mask to the graph: nodes for the given gradients (one
// per result, nil outside mask), the resulting gradients, and the input that each belongs to.
func (c *compiled) pull(mask uint64) (gin, gout []*gorgonia.Node, to []int, err error) {
	gin = make([]*gorgonia.Node, len(c.out))
	for i, o := range c.out {
		if mask&(1<<i) != 0 {
			gin[i] = c.graph.input(c.graph.types[o])
		}
	}
	var wrt []*gorgonia.Node
	for i, n := range c.in {
		if c.need[i] {
			wrt = append(wrt, n)
			to = append(to, i)
		}
	}
	found, err := c.graph.reverse(c.out, gin, wrt)
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

// backward finds or compiles the program that pulls the results in mask back.
func (c *compiled) backward(mask uint64) (*pulling, error) {
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
	if c.back == nil || len(c.back) >= maxBackwards {
		c.back = map[uint64]*pulling{}
	}
	c.back[mask] = p
	if mask == 1 {
		c.whole.Store(p)
	}
	return p, nil
}

// maxBackwards bounds the backward programs that one function keeps for one set of types; beyond it
// they begin afresh.
const maxBackwards = 64

func (c *compiled) compileBackward(mask uint64) (p *pulling, err error) {
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
	p = &pulling{prog: prog, to: to}
	if c.home.kind == device.KindCPU {
		p.host = prog.Host()
	}
	return p, nil
}

// drawBackward lists the backward of the results in mask; its graph is forgotten again.
func (c *compiled) drawBackward(mask uint64) (*program.Unit, []int, error) {
	if err := lockBuild(); err != nil {
		return nil, nil, err
	}
	defer buildMu.Unlock()
	defer c.graph.truncate(len(c.graph.order))
	gin, gout, to, err := c.pull(mask)
	if err != nil {
		return nil, nil, err
	}
	var given []*gorgonia.Node
	for _, i := range c.reads {
		given = append(given, c.in[i])
	}
	given = append(given, c.kept...)
	for _, n := range gin {
		if n != nil {
			given = append(given, n)
		}
	}
	u, err := c.graph.lower(c.name+" backward", given, gout)
	if err == nil && c.narrow != nil {
		u.NarrowGiven = append(make([]bool, len(c.reads)), c.narrow...)
		for _, i := range to {
			u.WideResults = append(u.WideResults, c.params[i])
		}
	}
	return u, to, err
}
