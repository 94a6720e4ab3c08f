package autodiff

import (
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// compiled is a function for one set of input types and wanted gradients: a forward program, and a backward program per set
// of results that have a gradient. They agree on what is saved: the values that the backward of all results reads.
type compiled struct {
	name    string
	backend kernels.Backend
	kind    device.Kind
	in, out []*gorgonia.Node
	given   []kernels.Type // of the inputs
	need    []bool         // inputs that require a gradient
	fwd     *program.Program
	sole    kernels.Kernel // of a function that is one instruction on its inputs
	reads   []int          // inputs that the backward reads
	kept    []*gorgonia.Node
	tracked []bool // results through which gradients flow to a needed input
	grads   bool   // some result is
	sites   sites

	mu    sync.Mutex
	graph *Graph              // grows when a backward program is made
	back  map[uint64]*pulling // by the set of results that have a gradient
}

// pulling is a backward program and where its results go.
type pulling struct {
	prog *program.Program
	to   []int // input of the function for each result of the program
}

// maxResults is how many results a function may have: one bit each in the key of backward programs.
const maxResults = 64

// prepare compiles the forward, and where gradients are wanted the backward of all results, which settles what is saved.
// The caller holds buildMu.
func (c *compiled) prepare() error {
	if len(c.out) == 0 || len(c.out) > maxResults {
		return fmt.Errorf("%w: it has %d results; 1 to %d are possible", ErrFunction, len(c.out), maxResults)
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
		gin, gout, _, err := c.pull(all)
		if err != nil {
			return err
		}
		c.settle(before, gin, gout)
	}
	u, err := c.graph.lower(c.name, c.in, append(slices.Clone(c.out), c.kept...))
	if err != nil {
		return err
	}
	if len(u.Insts) == 1 && slices.Equal(u.Insts[0].In, u.Given) && slices.Equal(u.Insts[0].Out, u.Results) {
		if c.sole, err = c.backend.Prepare(u.Insts[0].Instr, c.given); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	c.fwd, err = program.Compile(u, c.backend)
	return err
}

// pull adds the backward of the results in mask to the graph: nodes for the given gradients (one per result, nil outside
// mask), the resulting gradients, and the input that each belongs to.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.back[mask]; p != nil {
		return p, nil
	}
	p, err := c.compileBackward(mask)
	if err != nil {
		return nil, err
	}
	if c.back == nil {
		c.back = map[uint64]*pulling{}
	}
	c.back[mask] = p
	return p, nil
}

func (c *compiled) compileBackward(mask uint64) (p *pulling, err error) {
	buildMu.Lock()
	defer buildMu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic while building the gradient: %v", ErrFunction, r)
		}
	}()
	gin, gout, to, err := c.pull(mask)
	if err != nil {
		return nil, err
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
	prog, err := c.graph.compile(c.name+" backward", c.backend, given, gout)
	return &pulling{prog, to}, err
}

// recorded is all that a small call leaves on the tape, in one piece of memory.
type recorded struct {
	node  Node
	call  call
	next  [3]Edge
	saved [3]*device.Buffer
}

// forward runs the function and records it on the tape where an input requires a gradient.
func (c *compiled) forward(dev device.Device, owner *Arena, in []*Tensor) ([]*Tensor, error) {
	var few [4]*device.Buffer
	bufs := few[:0]
	defer func() { releaseAll(bufs) }()
	for i, t := range in {
		if j := slices.Index(in[:i], t); j >= 0 { // one value, also where an update comes between
			bufs = append(bufs, bufs[j].Retain())
			continue
		}
		b, err := owner.acquire(t)
		if err != nil {
			return nil, err
		}
		bufs = append(bufs, b)
	}
	began := owner.now()
	var some [4]*device.Buffer
	results := append(some[:0], make([]*device.Buffer, len(c.fwd.Types()))...)
	if err := c.fwd.Run(dev, bufs, results); err != nil {
		return nil, err
	}
	took := since(began)
	outs := make([]*Tensor, len(c.out))
	for i := range outs {
		outs[i] = newTensor(c.fwd.Types()[i], results[i], owner)
	}
	if !c.grads {
		return outs, nil
	}
	r := &recorded{}
	call, n := &r.call, &r.node
	call.node, call.fn, call.dev, call.saved = n, c, dev, r.saved[:0]
	for _, i := range c.reads {
		call.saved = append(call.saved, bufs[i].Retain())
	}
	call.saved = append(call.saved, results[len(c.out):]...)
	n.name, n.outs, n.at, n.of, n.call, n.next = c.name, c.fwd.Types()[:len(c.out)], c.sites.here(), owner, call, r.next[:0]
	n.took = took
	for _, t := range in {
		n.next = append(n.next, t.edge)
	}
	if owner == nil {
		for _, b := range results[len(c.out):] {
			b.Disown()
		}
	} else if err := owner.adopt(call, 0); err != nil {
		call.free()
		return nil, err
	}
	for i, t := range outs {
		if c.tracked[i] && t.err == nil {
			t.requiresGrad, t.edge = true, Edge{n, i}
		}
	}
	return outs, nil
}

func releaseAll(bufs []*device.Buffer) {
	for _, b := range bufs {
		_ = b.Release() // references that the caller holds
	}
}
