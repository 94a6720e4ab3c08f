package nccl

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// DataType is NCCL's number for a type of elements.
type DataType int32

// The types of elements. The last two are NCCL 2.24's.
const (
	Int8 DataType = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E5M2
)

var dataTypes = [...]struct {
	name string
	size int
}{{"int8", 1}, {"uint8", 1}, {"int32", 4}, {"uint32", 4}, {"int64", 8}, {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8},
	{"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}}

func (d DataType) known() bool { return d >= 0 && int(d) < len(dataTypes) }

// Size is how many bytes an element has; 0 of an unknown type.
func (d DataType) Size() int {
	if !d.known() {
		return 0
	}
	return dataTypes[d].size
}

func (d DataType) String() string {
	if !d.known() {
		return fmt.Sprintf("DataType(%d)", int32(d))
	}
	return dataTypes[d].name
}

// TypeOf is NCCL's number for a type of tensors.
func TypeOf(d device.Dtype) (DataType, bool) {
	t, ok := map[device.Dtype]DataType{device.Float32: Float32, device.Float64: Float64, device.Int32: Int32, device.Int64: Int64}[d]
	return t, ok
}

// RedOp is how elements are joined: one of these, or what PreMulSum made.
type RedOp int32

// The operations that every communicator has.
const (
	Sum RedOp = iota
	Prod
	Max
	Min
	Avg
	ownOps // the first number of those that a communicator made
)

func (o RedOp) String() string {
	if o < 0 || o >= ownOps {
		return fmt.Sprintf("RedOp(%d)", int32(o))
	}
	return [...]string{"sum", "prod", "max", "min", "avg"}[o]
}

// Kind is what a Call does.
type Kind int

// The kinds of calls.
const (
	AllReduce Kind = iota
	Reduce
	Broadcast
	AllGather
	ReduceScatter
	Send
	Recv
)

func (k Kind) String() string {
	if k < 0 || k > Recv {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return [...]string{"AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv"}[k]
}

// Sums says whether a kind uses Op.
func (k Kind) Sums() bool { return k == AllReduce || k == Reduce || k == ReduceScatter }

// Rooted says whether a kind uses Root.
func (k Kind) Rooted() bool { return k == Reduce || k == Broadcast }

// Paired says whether a kind is between this rank and Peer alone.
func (k Kind) Paired() bool { return k == Send || k == Recv }

// Call is one operation. Count is what NCCL counts: of AllGather what each rank sends, of
// ReduceScatter what each receives, else the whole.
type Call struct {
	Kind  Kind
	Send  uintptr // not of Recv
	Recv  uintptr // not of Send; where it is Send, the operation is in place
	Count int
	Type  DataType
	Op    RedOp
	Root  int
	Peer  int
}

// Check says what cannot be of a call on a communicator of so many ranks.
func (c Call) Check(size int) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %v: %s", ErrArgument, c.Kind, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Kind < 0 || c.Kind > Recv:
		return bad("there is no such kind")
	case !c.Type.known():
		return bad("there is no %v", c.Type)
	case c.Count < 0:
		return bad("%d elements", c.Count)
	case c.Kind.Sums() && c.Op < 0:
		return bad("there is no %v", c.Op)
	case c.Kind.Rooted() && (c.Root < 0 || c.Root >= size):
		return bad("root %d; the communicator has ranks 0 to %d", c.Root, size-1)
	case c.Kind.Paired() && (c.Peer < 0 || c.Peer >= size):
		return bad("peer %d; the communicator has ranks 0 to %d", c.Peer, size-1)
	}
	return nil
}

func (c Call) String() string {
	s := fmt.Sprintf("%v of %d %v", c.Kind, c.Count, c.Type)
	switch {
	case c.Kind.Rooted():
		s += fmt.Sprintf(" with root %d", c.Root)
	case c.Kind.Paired():
		s += fmt.Sprintf(" with rank %d", c.Peer)
	}
	if c.Kind.Sums() {
		s += fmt.Sprintf(", %v", c.Op)
	}
	return s
}
