package kernels

import "fmt"

// UpdateMany steps many parameters by one rule, in one run: the operands of [Update] for each, one
// after another, and so the results. All have one dtype, and each parameter a shape of its own.
type UpdateMany struct{ Of Update }

func (i UpdateMany) String() string { return fmt.Sprintf("UpdateMany(%v)", i.Of) }

// Width is how many operands and results each parameter has.
func (i UpdateMany) Width() (ins, outs int) {
	return i.Of.Width()
}

// Infer takes the operands of Update, once or more.
func (i UpdateMany) Infer(in []Type) ([]Type, error) {
	if err := i.Of.runnable(); err != nil {
		return nil, refuse(i, in, "%v", err)
	}
	ins, outs := i.Width()
	if len(in) == 0 || len(in)%ins != 0 {
		return nil, refuse(i, in, "expected %d operands for each parameter", ins)
	}
	var self Instr = i
	if err := expect(self, in, len(in)); err != nil {
		return nil, err
	}
	out := make([]Type, 0, len(in)/ins*outs)
	for at := 0; at < len(in); at += ins {
		floats, err := i.Of.counted(self, in[at:at+ins], in)
		if err != nil {
			return nil, err
		}
		if err := sameFloats(self, in, floats); err != nil {
			return nil, err
		}
		if floats[0].Dtype != in[0].Dtype {
			return nil, refuse(self, in, "the dtypes differ; cast one of them")
		}
		if err := sameShapes(self, in, floats); err != nil {
			return nil, err
		}
		out = append(append(out, in[at]), in[at+2:at+ins]...)
	}
	return out, nil
}

func (i UpdateMany) flops(in, out []Type) int {
	total := 0
	for k := range out {
		total += 4 * elems(out, k)
	}
	return total
}

// overwrites says whether a result replaces an operand.
func (i UpdateMany) overwrites(_, _ []Type, result, operand int) bool {
	ins, outs := i.Width()
	return result/outs == operand/ins && operand%ins == Replaced(result%outs)
}
