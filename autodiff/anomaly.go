package autodiff

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff/internal/rows"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// AnomalyError says which recorded call first turned gradients into something that is not finite.
type AnomalyError struct {
	Function string // that was recorded
	File     string // where the user called it; empty where that is not known
	Line     int
	What     string // "NaN" or "infinity"
	Input    int    // of the function, whose gradient it is; −1: it came so, as the gradient of a result
	Result   int    // that result, where Input is −1
}

func (e *AnomalyError) Error() string {
	of := fmt.Sprintf("made %s in the gradient of input %d", e.What, e.Input)
	if e.Input < 0 {
		of = fmt.Sprintf("was given %s as the gradient of result %d, by a hook, by the backward's caller, or by adding up finite ones", e.What, e.Result)
	}
	return fmt.Sprintf("backward of %s%s: %v: it %s", e.Function, Site{File: e.File, Line: e.Line}.CalledAt(), ErrAnomaly, of)
}

// Unwrap is [ErrAnomaly].
func (e *AnomalyError) Unwrap() error { return ErrAnomaly }

// ErrAnomaly is what every AnomalyError is.
var ErrAnomaly = errors.New("a gradient is not finite")

// inspect looks for what is not finite in the gradients that a node made, and then in those that it
// was given.
func (n *Node) inspect(gys, outs []*Tensor) error {
	made, what, err := firstAnomaly(outs)
	if err != nil || made < 0 {
		return err
	}
	at := n.Site()
	e := &AnomalyError{Function: n.Name(), File: at.File, Line: at.Line, What: what, Input: made}
	given, what, err := firstAnomaly(gys)
	if err != nil {
		return err
	}
	if given >= 0 {
		e.Input, e.Result, e.What = -1, given, what
	}
	return e
}

// inspectLeaf looks for what is not finite in the sum that a leaf has.
func inspectLeaf(leaf, sum *Tensor) error {
	if sum.IsSparse() {
		r, err := sum.acquireRows()
		if err != nil {
			return err
		}
		defer r.Release()
		if !r.Distinct { // the rows of one id may be finite and their sum not
			one, err := r.Coalesced(*sum.typ)
			if err != nil {
				return err
			}
			sum = sparse(*sum.typ, one)
			defer sum.free()
		}
	}
	what, err := anomalyOf(sum)
	if err != nil || what == "" {
		return err
	}
	return &AnomalyError{Function: "the leaf " + leaf.typ.String(), What: what, Input: -1}
}

// firstAnomaly is the first gradient that is not finite, −1 for none.
func firstAnomaly(gs []*Tensor) (at int, what string, err error) {
	for i, g := range gs {
		if g == nil {
			continue
		}
		what, err := anomalyOf(g)
		if err != nil || what != "" {
			return i, what, err
		}
	}
	return -1, "", nil
}

// anomalyOf is "NaN", "infinity" or nothing.
func anomalyOf(g *Tensor) (string, error) {
	typ, b, err := g.kept()
	if err != nil {
		return "", err
	}
	defer b.Release() //nolint:errcheck // ours
	found, err := backend.Run(b.Device(), kernels.NonFinite{}, []kernels.Type{typ}, b)
	if err != nil {
		return "", err
	}
	defer found.Release() //nolint:errcheck // ours alone
	var v [1]int32
	if err := b.Device().Download(device.Bytes(v[:]), found, 0); err != nil {
		return "", err
	}
	switch kernels.Finiteness(v[0]) {
	case kernels.HasNaN:
		return "NaN", nil
	case kernels.HasInfinity:
		return "infinity", nil
	}
	return "", nil
}

// kept is what there is of a gradient: of a sparse one its rows, as the others are zero. The caller
// owns the reference.
func (t *Tensor) kept() (kernels.Type, *device.Buffer, error) {
	if !t.sparse {
		b, err := t.acquire()
		return *t.typ, b, err
	}
	r, err := t.acquireRows()
	if err != nil {
		return *t.typ, nil, err
	}
	_ = r.IDs.Release() // ours
	return rows.ValuesType(*t.typ, r.N), r.Values, nil
}
