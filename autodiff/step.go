package autodiff

import (
	"errors"
	"fmt"
	"slices"
)

// Step runs one ready node of a task and delivers what comes out. A leaf's gradient goes to leaf,
// which takes it over. It says whether there was anything to run.
func (t *Task) Step(how Pull, leaf func(of, grad *Tensor) error) (bool, error) {
	w := t.take()
	if w == nil {
		return false, nil
	}
	n, gys := w.node, w.grads
	if n.Leaf() != nil {
		g := gys[0]
		gys[0] = nil
		if g == nil {
			return true, nil
		}
		return true, leaf(n.Leaf(), g)
	}
	count := len(n.Next())
	t.outs = slices.Grow(t.outs[:0], count)[:count]
	clear(t.outs)
	err := n.pullInto(gys, how, t.outs)
	freeAll(gys)
	clear(gys)
	if err != nil {
		freeAll(t.outs)
		return true, err
	}
	return true, t.finish(w, t.outs)
}

// Finish delivers the gradients of a node's inputs along its edges; it takes them over. outs may be
// nil: none anywhere.
func (t *Task) Finish(n *Node, outs []*Tensor) error {
	at, _ := t.look(n)
	if at < 0 {
		freeAll(outs)
		return &Error{Op: n.Name(), Err: fmt.Errorf("%w: it takes no part in this backward", ErrGradient)}
	}
	return t.finish(&t.nodes[at], outs)
}

func (t *Task) finish(w *waiting, outs []*Tensor) error {
	var errs []error
	for i, e := range w.node.Next() {
		var g *Tensor
		if outs != nil {
			g = outs[i]
		}
		if e.Node == nil {
			g.free()
			continue
		}
		if err := t.deliver(t.paths[int(w.paths)+i], e, g); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
