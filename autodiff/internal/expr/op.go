package expr

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// Op is an instruction as a node of a Gorgonia graph. It knows the types of its operands, which
// makes its Hindley–Milner type, its shape and its hash exact. Two ops are never equal, not even
// with equal parameters: Gorgonia merges nodes by a 32-bit hash, and merging is the compiler's
// business.
type Op struct {
	Instr kernels.Instr
	In    []kernels.Type
	Out   kernels.Type
	// Result says which of the instruction's results this is: an instruction with several is as
	// many nodes with the same operands.
	Result int

	graph *Graph
	id    uint32 // unique in the graph; the results of one instruction follow one another
}

var _ gorgonia.SDOp = (*Op)(nil)

// Arity is the number of operands.
func (o *Op) Arity() int { return len(o.In) }

// Type is the op's function type over concrete tensor types. Gorgonia wants a fresh one at every
// call.
func (o *Op) Type() hm.Type {
	ts := make([]hm.Type, 0, len(o.In)+1)
	for _, t := range o.In {
		ts = append(ts, nodeType(t))
	}
	return hm.NewFnType(append(ts, nodeType(o.Out))...)
}

// InferShape gives the shape that the instruction inferred from its operands' types.
func (o *Op) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	if len(in) != len(o.In) {
		return nil, fmt.Errorf("%w: %v takes %d operands, not %d", kernels.ErrOperands, o.Instr, len(o.In), len(in))
	}
	return tensor.Shape(o.Out.Shape.Clone()), nil
}

// Do computes on host values, for use on Gorgonia's own machines; programs do not come here.
func (o *Op) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if len(in) != len(o.In) {
		return nil, fmt.Errorf("%w: %v takes %d operands, not %d", kernels.ErrOperands, o.Instr, len(o.In), len(in))
	}
	host := device.Host()
	b, err := backend.For(host)
	if err != nil {
		return nil, err
	}
	k, err := b.Prepare(o.Instr, o.In)
	if err != nil {
		return nil, err
	}
	bufs := make([]*device.Buffer, 0, len(in)+1)
	defer func() {
		for _, b := range bufs {
			_ = b.Release() // each holds the one reference from Alloc
		}
	}()
	for i, v := range in {
		b, err := bufferOf(host, v, o.In[i])
		if err != nil {
			return nil, fmt.Errorf("%v, operand %d: %w", o.Instr, i, err)
		}
		bufs = append(bufs, b)
	}
	outs, err := o.Instr.Infer(o.In)
	if err != nil {
		return nil, err
	}
	for _, t := range outs {
		b, err := host.Alloc(t.Bytes())
		if err != nil {
			return nil, err
		}
		bufs = append(bufs, b)
	}
	if err := k.Run(bufs[len(in):], bufs[:len(in)]); err != nil {
		return nil, err
	}
	return ValueOf(bufs[len(in)+o.Result], o.Out)
}

// ReturnsPtr is true: results are tensors.
func (o *Op) ReturnsPtr() bool { return true }

// CallsExtern is false: Do computes on the host.
func (o *Op) CallsExtern() bool { return false }

// OverwritesInput is -1: operands are read-only.
func (o *Op) OverwritesInput() int { return -1 }

// WriteHash writes everything that makes this op what it is.
func (o *Op) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%v%v.%d#%d", o.Instr, o.In, o.Result, o.id) }

// Hashcode is unique in the graph, so that Gorgonia never takes one op for another.
func (o *Op) Hashcode() uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, "weft")
	return h.Sum32() + o.id*2654435761 // odd factor: one-to-one in id
}

// String prints the instruction with its parameters.
func (o *Op) String() string {
	if o.Result > 0 {
		return fmt.Sprintf("%v.%d", o.Instr, o.Result)
	}
	return o.Instr.String()
}

// DiffWRT says through which operands gradients flow: from a float result to float operands, but
// not through steps. Where the table has no rule, asking for the gradient is an error, never a
// silent zero.
func (o *Op) DiffWRT(n int) []bool {
	wrt := make([]bool, n)
	for i := range wrt {
		wrt[i] = !flat(o.Instr) && o.Out.Dtype.IsFloat() && i < len(o.In) && o.In[i].Dtype.IsFloat()
	}
	return wrt
}

// SymDiff applies the op's gradient rule, for every float operand. grad may be a node of Gorgonia's
// own: such gradients run on Gorgonia's machines.
func (o *Op) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if _, ours := o.graph.types[grad]; !ours {
		o.graph.types[grad] = o.Out
	}
	return o.graph.pullback(o, in, out, grad, o.DiffWRT(len(in)))
}

func nodeType(t kernels.Type) hm.Type {
	if len(t.Shape) == 0 {
		return gorgoniaDtype(t.Dtype)
	}
	return gorgonia.TensorType{Dims: len(t.Shape), Of: gorgoniaDtype(t.Dtype)}
}

func gorgoniaDtype(d device.Dtype) tensor.Dtype {
	switch d {
	case device.Float32:
		return tensor.Float32
	case device.Float64:
		return tensor.Float64
	case device.Int32:
		return tensor.Int32
	}
	return tensor.Int64
}
