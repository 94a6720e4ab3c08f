package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// What can go wrong on any rank.
var (
	ErrParameters = errors.New("bad parameters")
	ErrFailed     = errors.New("a rank has failed")
	ErrNotFinite  = errors.New("a gradient is not finite")
)

// Offer is what a rank brings: parameters, one line each, and what else must be the same on all.
type Offer struct {
	List   []string
	Config []string // one line each, too
	Err    error    // why it cannot take part
}

// brought is what a rank tells the others of its offer.
type brought struct {
	Digest uint64
	Failed string
}

// Compare fails on all ranks where offers differ between any.
func Compare(c context.Context, g *collective.Group, mine Offer) error {
	digest := fnv.New64a()
	fmt.Fprintf(digest, "%q %q", mine.List, mine.Config)
	told := brought{Digest: digest.Sum64()}
	if mine.Err != nil {
		told.Failed = mine.Err.Error()
	}
	all, err := collective.Agree(c, g, told)
	if err != nil {
		return err
	}
	differ := false
	for rank, b := range all {
		if b.Failed != "" {
			return Failure(g, rank, b.Failed, mine.Err)
		}
		differ = differ || b.Digest != all[0].Digest
	}
	if !differ {
		return nil
	}
	lists, err := collective.Agree(c, g, mine.List)
	if err != nil {
		return err
	}
	configs, err := collective.Agree(c, g, mine.Config)
	if err != nil {
		return err
	}
	return cmp.Or(Difference(g, lists), Difference(g, configs))
}

// told is why a rank has failed; without a Worker it has not.
type told struct {
	Rank                    int
	Worker, Text, Parameter string // the parameter is that whose gradient is not finite
}

// Outcome is the same on all ranks: nil where no rank has failed, and else what the first one says.
// What another group has found to be its outcome stays what it is. It returns when all ranks know
// it, so that the one that has failed may end at once.
func Outcome(c context.Context, g *collective.Group, own error) error {
	var mine told
	var found *FailureError
	var bad *NotFiniteError
	switch {
	case errors.As(own, &bad):
		mine = told{bad.Rank, bad.Worker, own.Error(), bad.Parameter}
	case errors.As(own, &found):
		mine = told{Rank: found.Rank, Worker: found.Worker, Text: found.Text}
	case own != nil:
		mine = told{Rank: g.Rank(), Worker: g.Members()[g.Rank()].Worker, Text: own.Error()}
	}
	all, err := collective.Agree(c, g, mine)
	_ = g.Barrier(c) // where it fails all know already, or some never will
	if err != nil {
		return cmp.Or(own, err)
	}
	for _, first := range all {
		switch {
		case first.Parameter != "":
			return &NotFiniteError{Rank: first.Rank, Worker: first.Worker, Parameter: first.Parameter}
		case first.Worker != "":
			return &FailureError{Rank: first.Rank, Worker: first.Worker, Text: first.Text, cause: own}
		}
	}
	return nil
}

// DifferenceError says in which parameter, or setting, a rank differs from rank 0.
type DifferenceError struct {
	Rank          int
	Here, There   string // what rank 0 has, and that rank; empty: there is none
	Worker, Other string // whose rank 0 is, and that rank
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("%v: rank 0, %s, has %q where rank %d, %s, has %q", ErrParameters, e.Worker, e.Here, e.Rank, e.Other, e.There)
}

// Unwrap gives ErrParameters.
func (e *DifferenceError) Unwrap() error { return ErrParameters }

// Difference is the [DifferenceError] of what the ranks have, by rank; nil where all have the same.
func Difference(g *collective.Group, lists [][]string) error {
	members := g.Members()
	for rank, list := range lists {
		for i := range max(len(list), len(lists[0])) {
			e := DifferenceError{Rank: rank, Worker: members[0].Worker, Other: members[rank].Worker}
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
	return nil
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

// Failure is a [FailureError] of a rank of the group, with what has failed on this one, or nil.
func Failure(g *collective.Group, rank int, text string, own error) error {
	return &FailureError{Rank: rank, Worker: g.Members()[rank].Worker, Text: text, cause: own}
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

// NotFinite is a [NotFiniteError] of this member of the group.
func NotFinite(g *collective.Group, parameter string) error {
	return &NotFiniteError{Rank: g.Rank(), Worker: g.Members()[g.Rank()].Worker, Parameter: parameter}
}

// Finite says whether all elements are numbers.
func Finite(mem []byte, d device.Dtype) bool {
	if d == device.Float64 {
		return allFinite(device.As[float64](mem))
	}
	return allFinite(device.As[float32](mem))
}

func allFinite[E float32 | float64](x []E) bool {
	for _, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}
