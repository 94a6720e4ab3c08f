package compile

import (
	"fmt"
	"runtime"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// Input is what a program is made for of an input.
type Input struct {
	Type  kernels.Type
	Need  bool // it requires a gradient
	Param bool // it is a parameter
}

// Spec says which function is to be compiled, and for what.
type Spec struct {
	Name   string
	OneOp  bool // it is named after its op where that is all it does
	Device device.Device
	In     []Input
	Wrap   func(op string, err error) error // adds the op and the user's line to a mistake in the body
	Body   func(g *expr.Graph, in []*gorgonia.Node) []*gorgonia.Node
	Pieces expr.Pieces
}

// New builds the graph of the body, and then, when others may build theirs, its programs.
func New(s Spec) (*Function, error) {
	c, u, err := s.draw()
	if err != nil {
		return nil, err
	}
	return c, c.compileForward(u)
}

// draw builds the graph and lists the forward. A panic in the body, or in Gorgonia, becomes an
// error.
func (s Spec) draw() (c *Function, u *program.Unit, err error) {
	if err := expr.Lock(); err != nil {
		return nil, nil, err
	}
	defer expr.Unlock()
	g := expr.NewBare(s.Wrap)
	defer func() {
		if r := recover(); r != nil {
			err = g.Err() // a nil node that the body went on to use is the consequence, not the cause
			if err == nil {
				err = panicked("building the graph", r)
			}
		}
	}()
	b, err := backend.For(s.Device)
	if err != nil {
		return nil, nil, err
	}
	c = &Function{Name: s.Name, graph: g, spec: s, backend: b, Home: HomeOf(s.Device)}
	if c.Home.Pads != nil {
		g.PadRows(c.Home.Pads.PadsTo)
	}
	for _, x := range s.In {
		c.in = append(c.in, g.Input(x.Type))
		c.Given = append(c.Given, x.Type)
		c.Need = append(c.Need, x.Need)
		if c.Home.Narrows {
			c.Params = append(c.Params, x.Param)
		}
	}
	c.out = g.Build(s.Body, c.in)
	if g.Err() != nil {
		return nil, nil, g.Err()
	}
	for i, o := range c.out {
		if !g.Has(o) {
			return nil, nil, fmt.Errorf("result %d: %w", i, expr.Foreign(i, o))
		}
	}
	if c.out = g.InPieces(s.Pieces, c.Home.Kind, c.out); g.Err() != nil {
		return nil, nil, g.Err()
	}
	if s.OneOp && len(c.out) == 1 && len(g.Nodes()) == len(c.in)+1 { // a primitive is called what it does
		if op, ok := c.out[0].Op().(*expr.Op); ok {
			c.Name = op.Instr.String()
		}
	}
	u, err = c.prepare()
	return c, u, err
}

// panicked is the error of a panic, with the line where it happened. Call it where the panic is
// recovered.
func panicked(doing string, r any) error {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for at := false; ; {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if at && !inRuntime {
			return fmt.Errorf("%w: panic while %s: %v, at %s:%d", expr.ErrFunction, doing, r, f.File, f.Line)
		}
		at = at || inRuntime
		if !more {
			return fmt.Errorf("%w: panic while %s: %v", expr.ErrFunction, doing, r)
		}
	}
}
