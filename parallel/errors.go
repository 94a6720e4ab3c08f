package parallel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// DifferenceError says in which parameter a rank differs from rank 0.
type DifferenceError struct {
	Rank        int
	Here, There string // the parameter on rank 0, and on that rank; empty: there is none
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("%v: rank 0 has %q where rank %d has %q", ErrParameters, e.Here, e.Rank, e.There)
}

// Unwrap gives ErrParameters.
func (e *DifferenceError) Unwrap() error { return ErrParameters }

func firstDifference(lists [][]string) error {
	for rank, list := range lists {
		for i := range max(len(list), len(lists[0])) {
			e := DifferenceError{Rank: rank}
			if i < len(lists[0]) {
				e.Here = lists[0][i]
			}
			if i < len(list) {
				e.There = list[i]
			}
			if e.Here != e.There {
				return &e
			}
		}
	}
	return fmt.Errorf("%w: Config differs between ranks", ErrParameters)
}

// FailureError says which rank was the first that failed, and why. It wraps what has failed on this
// rank, if anything has.
type FailureError struct {
	Rank   int
	Worker string
	Text   string
	cause  error
}

func (e *FailureError) Error() string {
	return fmt.Sprintf("%v: rank %d, %s: %s", ErrFailed, e.Rank, e.Worker, e.Text)
}

// Unwrap gives ErrFailed, and what has failed on this rank.
func (e *FailureError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrFailed}
	}
	return []error{ErrFailed, e.cause}
}

func (r *Replicas) failure(rank int, text string, own error) error {
	return &FailureError{Rank: rank, Worker: r.g.Members()[rank].Worker, Text: text, cause: own}
}

// told is why a rank has failed; empty where it has not.
type told struct{ Text, NotFinite string }

// whoFailed is what all ranks say when one has failed.
func (s *step) whoFailed(c context.Context, own error) error {
	var mine told
	var bad *NotFiniteError
	if errors.As(own, &bad) {
		mine.NotFinite = bad.Parameter
	}
	if own != nil {
		mine.Text = own.Error()
	}
	all, err := collective.Agree(c, s.g, mine)
	if err != nil {
		return cmp.Or(own, err)
	}
	for rank, why := range all {
		if why.NotFinite != "" {
			return &NotFiniteError{Rank: rank, Worker: s.g.Members()[rank].Worker, Parameter: why.NotFinite}
		}
		if why.Text != "" {
			return s.failure(rank, why.Text, own)
		}
	}
	return ErrFailed
}

// NotFiniteError names a gradient that is NaN or infinite, and the first rank that has one. It is
// the same on all ranks.
type NotFiniteError struct {
	Rank              int
	Worker, Parameter string
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("%v: that of parameter %s on rank %d, %s", ErrNotFinite, e.Parameter, e.Rank, e.Worker)
}

// Unwrap gives ErrNotFinite.
func (e *NotFiniteError) Unwrap() error { return ErrNotFinite }

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
	defer b.Release() //nolint:errcheck // ours
	raw, err := b.Host()
	if err != nil {
		raw = make([]byte, b.Len())
		if b.Device().Download(raw, b, 0) != nil {
			return false
		}
	}
	if grad.Dtype() == device.Float64 {
		return allFinite(device.As[float64](raw[:b.Len()]))
	}
	return allFinite(device.As[float32](raw[:b.Len()]))
}

func allFinite[E float32 | float64](x []E) bool {
	for _, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}
