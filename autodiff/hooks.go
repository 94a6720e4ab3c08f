package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/internal/callsite"
)

// hook is user code that a backward runs at a node.
type hook struct {
	slot int                         // the result whose gradient it sees
	grad func(g *Tensor) *Tensor     // before the node runs; or
	done func(leaf, g *Tensor) error // after a leaf's gradient was accumulated
	at   Site                        // where it was registered
}

// OnGrad registers a hook that sees the gradient of t once it is complete, in every backward in
// which t gets one, before it goes on: into the function that made t, to the worker that t came
// from, or into t's accumulated gradient. What it returns replaces the gradient, with the same
// dtype, shape and device; nil leaves it as it is, and a tensor that carries an error ends the
// backward. Hooks run in the order in which they were registered.
//
// g, and what is computed from it, is freed when the hook returns. An error or a panic ends the
// backward with a [HookError]. A hook on a parameter runs for every pass that uses the parameter,
// at the same time for passes that run at the same time.
func (t *Tensor) OnGrad(do func(g *Tensor) *Tensor) (remove func(), err error) {
	if do == nil {
		return nil, opError("OnGrad", errNoHook)
	}
	return t.register("OnGrad", &hook{grad: do})
}

// OnAccumulated registers a hook that runs once per backward in which the leaf t gets a gradient,
// when g, the sum over that backward, stands in its [Gradients]. Ownership, errors and concurrency
// are those of [Tensor.OnGrad]. In a pass the gradients of a backward are added to those of earlier
// ones when all of it has succeeded, which is after the hook.
func (t *Tensor) OnAccumulated(do func(leaf, g *Tensor) error) (remove func(), err error) {
	if do == nil {
		return nil, opError("OnAccumulated", errNoHook)
	}
	if !t.IsLeaf() {
		return nil, opError("OnAccumulated", fmt.Errorf("%w: it is a %v", ErrNotLeaf, t))
	}
	return t.register("OnAccumulated", &hook{done: do})
}

var errNoHook = fmt.Errorf("%w: the hook is nil", ErrFunction)

func (t *Tensor) register(op string, h *hook) (remove func(), err error) {
	if err := t.Err(); err != nil {
		return nil, opError(op, err)
	}
	if !t.requiresGrad {
		return nil, opError(op, errNoGrad(t))
	}
	n := t.edge.Node
	h.slot, h.at = t.edge.Slot, callsite.Outside()
	n.editHooks(func(hs []*hook) []*hook { return append(slices.Clone(hs), h) })
	return func() {
		n.editHooks(func(hs []*hook) []*hook {
			return slices.DeleteFunc(slices.Clone(hs), func(have *hook) bool { return have == h })
		})
	}, nil
}

// editHooks replaces the hooks; a backward that is under way keeps to those that it found.
func (n *Node) editHooks(edit func([]*hook) []*hook) {
	for {
		old := n.hooks.Load()
		var have []*hook
		if old != nil {
			have = *old
		}
		next := edit(have)
		if n.hooks.CompareAndSwap(old, &next) {
			return
		}
	}
}

// RunHooks lets the hooks on the results' tensors see and replace the gradients of the node's
// results, in place: the caller frees what gys holds afterwards. [Node.PullWith] and
// [Gradients.AccumulateWith] call it; who does neither with a node's gradients, because they leave
// this worker, calls it himself. The error is a [HookError].
func (n *Node) RunHooks(gys []*Tensor) error {
	hs := n.hooks.Load()
	if hs == nil {
		return nil
	}
	for _, h := range *hs {
		if h.grad == nil || gys[h.slot] == nil {
			continue
		}
		err := n.runHook(h, gys[h.slot], func(g *Tensor) error {
			to := h.grad(g)
			if to == nil || to == g {
				return nil
			}
			if err := to.Err(); err != nil {
				return err
			}
			if to.dev != g.dev || !to.typ.Equal(*g.typ) {
				return fmt.Errorf("%w: %v on %v in place of %v on %v", ErrGradient, to.typ, to.dev.ID(), g.typ, g.dev.ID())
			}
			next, err := to.share()
			if err != nil {
				return err
			}
			gys[h.slot].free()
			gys[h.slot] = next
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// accumulated runs the hooks of a leaf whose gradient stands in gs.
func (n *Node) accumulated(gs *Gradients, leaf *Tensor) error {
	hs := n.hooks.Load()
	if hs == nil {
		return nil
	}
	for _, h := range *hs {
		if h.done == nil {
			continue
		}
		if err := n.runHook(h, gs.of[leaf], func(g *Tensor) error { return h.done(leaf, g) }); err != nil {
			return err
		}
	}
	return nil
}

// runHook calls f with a view of g that lasts as long as the call.
func (n *Node) runHook(h *hook, g *Tensor, f func(g *Tensor) error) (err error) {
	scope := newScope("a hook", n.of)
	defer scope.Free()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		if err != nil {
			at := n.Site()
			err = &HookError{Function: n.what(), File: at.File, Line: at.Line, Hook: h.at.String(), Text: err.Error(), err: err}
		}
	}()
	view, err := g.share()
	if err != nil {
		return err
	}
	return f(view.owned("hook", scope))
}

// what names the node's function in an error.
func (n *Node) what() string {
	if n.Leaf() != nil {
		return "the leaf " + n.Leaf().typ.String()
	}
	return n.Name()
}

// HookError says which hook ended a backward.
type HookError struct {
	Function string // that made the hook's tensor; for a leaf, its type
	File     string // where the function was called; empty where it is not known, as for a leaf
	Line     int
	Hook     string // file:line where the hook was registered
	Text     string // what went wrong
	err      error  // itself; nil where the hook ran on another worker
}

func (e *HookError) Error() string {
	return fmt.Sprintf("%s: hook on the gradient of %s%s: %v", e.Hook, e.Function, Site{File: e.File, Line: e.Line}.CalledAt(), e.Text)
}

// Unwrap lets errors.Is find the cause, where the hook ran on this worker.
func (e *HookError) Unwrap() error { return e.err }
