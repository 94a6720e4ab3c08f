package optim

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// ErrSparse says that the rule takes no sparse gradients.
var ErrSparse = errors.New("the gradient is sparse")

// sparsely makes of a step by a sparse gradient one of the rows that it has, each by the sum of its
// values, wherever they are: an accelerator puts the ids in order, and nobody waits for them. Rows
// without a gradient keep their value and their state, as with torch: SGD, Adagrad, and Adam with
// the formula of torch.optim.SparseAdam. SGD with momentum moves every row in every step, so there
// the gradient is made dense. The operands are the parameter, the gradient and the state.
func sparsely(u kernels.Update, operands []*autodiff.Tensor) (kernels.Instr, []*autodiff.Tensor, error) {
	switch {
	case u.WeightDecay != 0, u.AMSGrad:
		return nil, nil, fmt.Errorf("%w: weight decay and AMSGrad move every row; step without them, or make the embedding's gradient dense", ErrSparse)
	case u.Rule == kernels.SGD && u.Momentum != 0:
		return u, operands, nil
	case u.Rule == kernels.Adam:
		u.EpsFirst = true
	case u.Rule != kernels.SGD && u.Rule != kernels.Adagrad:
		return nil, nil, fmt.Errorf("%w, and %v takes none; SGD, Adagrad and Adam do, or make the embedding's gradient dense", ErrSparse, u.Rule)
	}
	ids, values, _ := operands[1].Rows()
	if err := errors.Join(ids.Err(), values.Err()); err != nil {
		return nil, nil, err
	}
	rows := append([]*autodiff.Tensor{operands[0], values}, operands[2:]...)
	return kernels.OnRows{Of: u, Sum: true}, append(rows, ids), nil
}

// squares is what to sum for the norm of a gradient: its values where it is sparse.
func squares(g *autodiff.Tensor) *autodiff.Tensor {
	if c := g.Coalesce(); c.IsSparse() {
		_, g, _ = c.Rows()
	} else if c.Err() != nil {
		return c
	}
	return g
}
