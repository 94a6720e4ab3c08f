package compile

import (
	"slices"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/autodiff/internal/program"
)

// WithCopies finds or compiles the forward that is given rounded copies of factors, and makes none:
// a loop with one call at a time never asks for it.
func (c *Function) WithCopies() (p *program.Program, err error) {
	if p := c.Shared.Load(); p != nil {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.Shared.Load(); p != nil {
		return p, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = panicked("compiling "+c.Name, r)
		}
	}()
	if err := expr.Lock(); err != nil {
		return nil, err
	}
	u, err := c.listForward(true)
	expr.Unlock()
	if err != nil {
		return nil, err
	}
	if p, err = program.Compile(u, c.backend); err != nil {
		return nil, err
	}
	c.Shared.Store(p)
	return p, nil
}

// listForward lists the forward, which makes rounded copies or is given them. The caller holds
// the lock on building.
func (c *Function) listForward(copies bool) (*program.Unit, error) {
	kept := c.kept
	if copies {
		kept = kept[:len(kept)-len(c.Factors)]
	}
	u, err := c.graph.Lower(c.Name, c.in, slices.Concat(c.out, kept))
	if err != nil || c.narrow == nil {
		return u, err
	}
	u.NarrowResults = slices.Concat(make([]bool, len(c.out)), c.narrow[:len(kept)])
	u.WideResults = make([]bool, len(c.out))
	for _, n := range kept {
		u.WideResults = append(u.WideResults, c.graph.IsGradient(n))
	}
	if copies {
		u.NarrowGiven = make([]bool, len(c.in))
		for _, i := range c.Factors {
			u.NarrowGiven[i] = true
		}
	}
	return u, nil
}
