package autodiff

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Transient is a tensor that nobody frees but its holder, with [Release]: a gradient on its way
// between engines. It takes over the caller's reference to buf.
func Transient(typ kernels.Type, buf *device.Buffer) *Tensor { return manual(typ, buf) }

// Release frees transient tensors; nil ones are skipped.
func Release(ts ...*Tensor) { freeAll(ts) }

// PullWith computes the gradients of the node's inputs, nil for none, from those of its results
// (nil: none). The caller keeps gys and must Release what it gets. Hooks on the results run first,
// and may replace what gys holds. The error is a [NodeError], a [HookError] or an [AnomalyError].
func (n *Node) PullWith(gys []*Tensor, how Pull) ([]*Tensor, error) {
	if err := n.RunHooks(gys); err != nil {
		return nil, err
	}
	outs, err := n.run(gys, how)
	if err != nil {
		return nil, &NodeError{Node: n, Err: err}
	}
	if how.Anomaly {
		if err := n.inspect(gys, outs); err != nil {
			freeAll(outs)
			return nil, err
		}
	}
	return outs, nil
}

// pullInto is PullWith into outs, one for each input and nil so far. It may use gys up: what it has
// used is nil then.
func (n *Node) pullInto(gys []*Tensor, how Pull, outs []*Tensor) error {
	if n.fn == nil || n.rare != nil && n.rare.gather != nil || how.Anomaly {
		found, err := n.PullWith(gys, how)
		copy(outs, found)
		return err
	}
	if err := n.RunHooks(gys); err != nil {
		return err
	}
	if err := n.backward(gys, how.Retain, true, outs); err != nil {
		return &NodeError{Node: n, Err: err}
	}
	return nil
}
