package kernels

// Cost is an estimate of what running an instruction takes.
type Cost struct {
	Flops int // operations on numbers: a multiplication and an addition are two, a function of one element is one
	Bytes int // read and written, each once; what is read through a view counts as much as the view shows without repeating
}

// Plus adds two costs.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Flops + d.Flops, c.Bytes + d.Bytes} }

// CostOf estimates an instruction with operands of types in, which Infer accepts with results of
// types out.
func CostOf(i Instr, in, out []Type) Cost {
	var views []*View
	stored := in
	if n, ok := i.(Narrow); ok {
		i, in = n.Of, Widened(in)
	}
	if v, ok := i.(Viewed); ok {
		i, in, views = v.Of, v.Seen(in), v.In
	}
	c := Cost{Flops: flops(i, in, out)}
	for _, t := range out {
		c.Bytes += t.Bytes()
	}
	for k, t := range stored {
		if views != nil && views[k] != nil {
			c.Bytes += views[k].distinct() * t.Dtype.Size()
		} else {
			c.Bytes += t.Bytes()
		}
	}
	switch i.(type) {
	case Reshape:
		if views == nil { // nothing moves
			c.Bytes = 0
		}
	case Slice:
		c.Bytes = 2 * out[0].Bytes()
	case Gather:
		c.Bytes = 2*out[0].Bytes() + in[1].Bytes()
	case OnRows: // the rows of each table are read and written, those of the gradient read
		c.Bytes = 2*len(out)*in[1].Bytes() + in[1].Bytes() + in[len(in)-1].Bytes()
	}
	return c
}

// distinct is how many elements a view shows, each counted once.
func (v *View) distinct() int {
	n := 1
	for k, d := range v.Shape {
		if v.Strides[k] != 0 || d == 0 {
			n *= d
		}
	}
	return n
}

// flops counts the operations of an instruction that is not [Viewed]; none for moves.
func flops(i Instr, in, out []Type) int {
	elems := func(ts []Type, k int) int { return ts[k].Shape.Elems() }
	switch i := i.(type) {
	case Unary, Binary, Random, Dropout, AvgPool2dGrad:
		return elems(out, 0)
	case Reduce, NonFinite, Col2im, MaxPool2dGrad:
		return elems(in, 0)
	case ScatterAdd:
		return elems(in, 1)
	case SumSquares:
		return 2 * elems(in, 0)
	case MaxGrad:
		return 2 * elems(in, 0)
	case Softmax, SoftmaxGrad, CrossEntropy, CrossEntropyGrad: // of each element: maximum, difference, exponential, sum, quotient, or as much
		return 5 * elems(in, 0)
	case Normalize:
		return 7 * elems(in, 0)
	case NormalizeGrad:
		return 11 * elems(in, 0)
	case LayerNorm:
		return 9 * elems(in, 0)
	case LayerNormGrad:
		return 15 * elems(in, 0)
	case MatMul:
		_, k := matrixDims(in[0].Shape, i.TransA)
		return 2 * k * elems(out, 0)
	case MatMulThen:
		c, err := i.MatMul.Infer(in[:2])
		if err != nil {
			return 0
		}
		return flops(i.MatMul, in[:2], c) + flops(i.Then, append(c, in[2:]...), out)
	case Map:
		folds := 0
		for _, o := range i.Outs {
			if o.Fold != nil {
				folds++
			}
		}
		return (len(i.Steps) + folds) * i.Shape.Elems()
	case Attention: // two products, and the softmax of a score as above
		return (4*in[0].Shape[3] + 5) * scores(in, i.Causal)
	case AttentionGrad: // five products
		return (10*in[0].Shape[3] + 5) * scores(in, i.Causal)
	case Conv2d:
		return 2 * elems(out, 0) * in[1].Shape[1:].Elems()
	case Conv2dGradX:
		return 2 * elems(in, 1) * in[0].Shape[1:].Elems()
	case Conv2dGradW:
		return 2 * elems(in, 1) * out[0].Shape[1:].Elems()
	case MaxPool2d:
		return elems(out, 0) * i.Kernel[0] * i.Kernel[1]
	case AvgPool2d:
		return elems(out, 0) * i.Kernel[0] * i.Kernel[1]
	case Update: // a handful for each number that is kept
		return 4 * len(out) * elems(in, 0)
	case UpdateMany:
		total := 0
		for k := range out {
			total += 4 * elems(out, k)
		}
		return total
	case OnRows:
		return 4 * len(out) * elems(in, 1)
	}
	return 0
}

// scores is how many products of a query and a key attention takes.
func scores(in []Type, causal bool) int {
	q, s := in[0].Shape, in[1].Shape[1]
	n := q[1] * s
	if causal {
		n -= q[1] * (q[1] - 1) / 2
	}
	return q[0] * q[2] * n
}
