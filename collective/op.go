package collective

import (
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/device"
)

// Op makes one element of those of all members, in the order of ranks.
type Op struct{ of fold.Op }

// The operations. And, Or and Xor are for integers, Mean and Scaled for floats. Mean divides the
// sum, once. Min and Max are NaN where an element is.
var (
	Sum  = Op{fold.Op{Fn: fold.Sum}}
	Mean = Op{fold.Op{Fn: fold.Mean}}
	Prod = Op{fold.Op{Fn: fold.Prod}}
	Min  = Op{fold.Op{Fn: fold.Min}}
	Max  = Op{fold.Op{Fn: fold.Max}}
	And  = Op{fold.Op{Fn: fold.And}}
	Or   = Op{fold.Op{Fn: fold.Or}}
	Xor  = Op{fold.Op{Fn: fold.Xor}}
)

// Scaled is the sum of f times each element.
func Scaled(f float64) Op { return Op{fold.Op{Fn: fold.Scaled, Factor: f}} }

func (o Op) String() string { return o.of.String() }

// Weight is w where the operation adds up w times the element of each of so many members. ok is
// false where it is no such sum.
func (o Op) Weight(members int) (w float64, ok bool) {
	switch o.of.Fn {
	case fold.Sum:
		return 1, true
	case fold.Mean:
		return 1 / float64(members), true
	case fold.Scaled:
		return o.of.Factor, true
	}
	return 0, false
}

// Check says what is wrong with the operation on elements of a dtype.
func (o Op) Check(d device.Dtype) error { return fold.Check(o.of, d) }

// Fold makes one array of those of all members, in the order of ranks, as the operations of a group
// do. All have as many bytes as dst, which may be the first of them and shares no memory with the
// others. Check has found nothing wrong.
func (o Op) Fold(d device.Dtype, dst []byte, from ...[]byte) { fold.Into(dst, o.of, d, from...) }
