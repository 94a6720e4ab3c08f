package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// View reads a buffer's elements in another order, without a copy: element (i, j, …) lies Offset +
// i·Strides[0] + j·Strides[1] + … elements from the first. A stride may be 0, and none is negative.
type View struct {
	Shape   device.Shape
	Offset  int
	Strides []int
}

// String prints shape, strides and offset.
func (v *View) String() string { return fmt.Sprintf("%v@%d%v", v.Shape, v.Offset, v.Strides) }

// Whole is the view of a contiguous tensor.
func Whole(s device.Shape) *View { return &View{Shape: s, Strides: stride.RowMajor(s)} }

// Equal compares everything.
func (v *View) Equal(o *View) bool {
	return v.Offset == o.Offset && v.Shape.Equal(o.Shape) && slices.Equal(v.Strides, o.Strides)
}

// within says whether every element lies among the first n.
func (v *View) within(n int) bool {
	if len(v.Strides) != len(v.Shape) || v.Offset < 0 || v.Shape.Check() != nil {
		return false
	}
	if v.Shape.Elems() == 0 {
		return true
	}
	left := n - 1 - v.Offset // elements after the last one of the axes so far
	for k, s := range v.Strides {
		if s < 0 || left < 0 || v.Shape[k] > 1 && s > left/(v.Shape[k]-1) {
			return false
		}
		left -= s * (v.Shape[k] - 1)
	}
	return left >= 0
}

// Viewed is an instruction that reads some operands through views, so that slices and transposes
// need no copy. Of is a Map, a MatMul, a MatMulThen, an Attention or its gradient, or a move: with
// Reshape it is a copy of what a view shows, with Concat it puts pieces together that lie anywhere
// (zeros as a view of one zero, with strides 0).
type Viewed struct {
	Of Instr
	In []*View // one per operand; nil: as it is
}

// Unviewed is an instruction without its views.
func Unviewed(i Instr) Instr {
	if v, ok := i.(Viewed); ok {
		return v.Of
	}
	return i
}

func (i Viewed) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v on", i.Of)
	for k, v := range i.In {
		if v != nil {
			fmt.Fprintf(&b, " %d:%v", k, v)
		}
	}
	return b.String()
}

// Infer takes the buffers' types; views must lie within them.
func (i Viewed) Infer(in []Type) ([]Type, error) {
	switch i.Of.(type) {
	case Map, MatMul, MatMulThen, Attention, AttentionGrad, BroadcastTo, Reshape, Transpose, Slice, Pad, Concat:
	default:
		return nil, refuse(i, in, "only maps, products, attention and moves read through views")
	}
	if err := expect(i, in, len(i.In)); err != nil {
		return nil, err
	}
	for k, v := range i.In {
		if v != nil && !v.within(in[k].Shape.Elems()) {
			return nil, refuse(i, in, "the view does not lie within operand %d", k)
		}
	}
	if last := len(in) - 1; last >= 0 && i.In[last] != nil && drops(i.Of) {
		return nil, refuse(i, in, "a key is read as it is")
	}
	out, err := i.Of.Infer(i.Seen(in))
	if err != nil {
		return nil, refuse(i, in, "%v", err)
	}
	return out, nil
}

func (i Viewed) overwrites(in, out []Type, result, operand int) bool {
	return i.In[operand] == nil && overwrites(i.Of, i.Seen(in), out, result, operand)
}

// drops says whether attention, or its gradient, has a key.
func drops(i Instr) bool {
	switch i := i.(type) {
	case Attention:
		return i.Drop != 0
	case AttentionGrad:
		return i.Drop != 0
	}
	return false
}

// Seen are the types that the instruction sees.
func (i Viewed) Seen(in []Type) []Type {
	seen := slices.Clone(in)
	for k, v := range i.In {
		if v != nil {
			seen[k].Shape = v.Shape
		}
	}
	return seen
}
