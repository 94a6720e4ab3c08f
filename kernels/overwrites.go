package kernels

import "slices"

// Overwrites says whether a result of an instruction may be written over an operand: they have one
// type then, and the instruction has read an element before it writes it. A memory planner asks
// this; [Kernel.Run] and routines hold to it.
func Overwrites(i Instr, in []Type, result, operand int) bool {
	out, err := i.Infer(in)
	return err == nil && overwrites(i, in, out, result, operand)
}

func overwrites(i Instr, in, out []Type, result, operand int) bool {
	switch i := i.(type) {
	case Narrow: // elements of one size lie at the same places
		return in[operand].Dtype == out[result].Dtype && overwrites(i.Of, Widened(in), Widened(out), result, operand)
	case Map:
		return i.overwrites(in, result, operand)
	case Viewed:
		return i.In[operand] == nil && overwrites(i.Of, i.Seen(in), out, result, operand)
	case MatMulThen:
		then := append([]Type{{in[0].Dtype, i.Then.Shape}}, in[2:]...)
		return operand >= 2 && i.Then.overwrites(then, result, operand-1)
	case OnRows, Update: // the table or state that it replaces
		return operand == Replaced(result) && in[operand].Equal(out[result])
	case UpdateMany:
		return i.overwrites(result, operand)
	case Unary, Binary, SumSquares, Dropout, Softmax, SoftmaxGrad, Normalize, NormalizeGrad:
		return in[operand].Equal(out[result])
	case LayerNorm, CrossEntropyGrad: // row by row; what all rows read must stay
		return operand == 0
	case LayerNormGrad:
		return result == 0 && operand != 1
	}
	return false
}

// overwrites says whether result may lie where an operand does, which is read in place: no step
// reads the operand after the one that writes the result.
func (i Map) overwrites(in []Type, result, operand int) bool {
	n, o := len(in), i.Outs[result]
	if o.Fold != nil || o.Reg < n || !in[operand].Shape.Equal(i.Shape) {
		return false
	}
	first := slices.IndexFunc(i.Outs, func(p Out) bool { return p.Fold == nil && p.Reg == o.Reg })
	return first == result && i.LastReads(n)[operand] <= o.Reg-n
}
