package losses

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/names"
)

// ErrRows says that a number of rows cannot be, or that no rank has rows.
var ErrRows = errors.New("bad number of rows")

// MostRows is how many rows a step may have on all ranks together: float32 counts them exactly.
const MostRows = 1 << 24

// Countable says whether each of so many ranks can have so many rows, behind those that it has
// counted before.
func Countable(before, rows, ranks int) error {
	if rows < 0 || rows > MostRows/ranks-before {
		return fmt.Errorf("%w: %d", ErrRows, rows)
	}
	return nil
}

// Of says of which parameters' gradients an error is. Without names it is of what all say of the
// step. It gives nil for nil.
func Of(parameters []string, err error) error {
	switch {
	case err == nil:
		return nil
	case len(parameters) == 0:
		return fmt.Errorf("what all say of the step: %w", err)
	}
	return fmt.Errorf("gradients of %s: %w", names.List(parameters), err)
}

// Scalar says why a tensor is no loss.
func Scalar(loss *autodiff.Tensor) error {
	if loss.Type().Shape.Elems() != 1 {
		return fmt.Errorf("the loss %v %w", loss.Type(), autodiff.ErrNotScalar)
	}
	return nil
}

// Backward runs the backward of a loss times a weight. take gets the gradient of each leaf as soon
// as it is there, and takes it over.
func Backward(loss *autodiff.Tensor, weight float64, take func(leaf, grad *autodiff.Tensor) error) error {
	if err := Scalar(loss); err != nil {
		return err
	}
	by := autodiff.FullLike(loss, weight)
	if err := by.Err(); err != nil {
		return err
	}
	_, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{by}, Take: take}, loss)
	return err
}
