package parallel

import (
	"cmp"
	"context"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// DifferenceError says in which parameter a rank differs from rank 0.
type DifferenceError = peers.DifferenceError

// FailureError says which rank was the first that failed, and why. It wraps what has failed on this
// rank, if anything has.
type FailureError = peers.FailureError

// NotFiniteError names a gradient that is NaN or infinite, and the first rank that has one. It is
// the same on all ranks.
type NotFiniteError = peers.NotFiniteError

// whoFailed is what all ranks say when one has failed.
func (s *step) whoFailed(c context.Context, own error) error {
	return cmp.Or(peers.Outcome(c, s.g, own), ErrFailed)
}

// finite says whether all elements are numbers.
func finite(grad *autodiff.Tensor) bool {
	if ids, values, sparse := grad.Rows(); sparse {
		defer autodiff.Release(ids, values)
		grad = values
	}
	b, err := grad.Acquire()
	if err != nil {
		return false
	}
	defer host.Release(b)
	raw, err := b.Host()
	if err != nil {
		raw = make([]byte, b.Len())
		err = b.Device().Download(raw, b, 0)
	}
	return err == nil && peers.Finite(raw, grad.Dtype())
}
