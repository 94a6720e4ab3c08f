package autodiff

import (
	"fmt"
	"io"
	"strings"

	"github.com/weft-project/weft/autodiff/program"
)

// Explain prints the programs that calls with such inputs run: the forward and, where one of the
// inputs requires a gradient, what it saves and the backward of all results. Each instruction has a
// line, with the ops that were fused into it. Nothing is computed.
func (f *Func) Explain(w io.Writer, in ...*Tensor) error {
	c, back, err := f.served(in)
	if err != nil {
		return err
	}
	if err := c.fwd.Explain(w); err != nil || back == nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "saved for the backward: %s\n\n", c.saves()); err != nil {
		return err
	}
	return back.Explain(w)
}

// Dot draws the programs that Explain prints, one graph after the other, for Graphviz.
func (f *Func) Dot(w io.Writer, in ...*Tensor) error {
	c, back, err := f.served(in)
	if err != nil {
		return err
	}
	if err := c.fwd.Dot(w); err != nil || back == nil {
		return err
	}
	return back.Dot(w)
}

// served finds the programs for some inputs; the backward is nil where none has a gradient.
func (f *Func) served(in []*Tensor) (c *compiled, back *program.Program, err error) {
	in, err = f.checked(in)
	if err != nil {
		return nil, nil, opError(f.name, err)
	}
	dev, _, err := common(in)
	if err == nil {
		c, err = f.programs(dev, in)
	}
	if err != nil {
		return nil, nil, opError(f.name, err)
	}
	if !c.grads {
		return c, nil, nil
	}
	all := uint64(0)
	for k, tracked := range c.tracked {
		if tracked {
			all |= 1 << k
		}
	}
	p, err := c.backward(all)
	if err != nil {
		return nil, nil, opError(f.name, err)
	}
	return c, p.prog, nil
}

// saves lists what the forward keeps for the backward: inputs by their place, which cost nothing,
// and the values that it has computed.
func (c *compiled) saves() string {
	var names []string
	for _, i := range c.reads {
		names = append(names, fmt.Sprintf("input %d", i))
	}
	bytes, shared := 0, 0
	for k, t := range c.fwd.Types()[len(c.out):] {
		if bytes += t.Bytes(); k >= len(c.kept)-len(c.factors) {
			shared += t.Bytes()
		}
	}
	if bytes > 0 {
		names = append(names, c.fwd.Results(len(c.out)))
	}
	if len(names) == 0 {
		return "nothing"
	}
	text := fmt.Sprintf("%s; %.1f KiB beside the inputs", strings.Join(names, ", "), float64(bytes)/1024)
	if shared > 0 {
		text += fmt.Sprintf(", of which calls that wait for their backward share %.1f KiB, their weights as bfloat16", float64(shared)/1024)
	}
	return text
}
