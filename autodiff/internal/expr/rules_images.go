package expr

import "github.com/weft-project/weft/kernels"

// imageRule is ruleOf for the instructions of convolutional nets. A convolution and its two
// gradients are linear in each operand, and the gradients of each are the other two.
func imageRule(i kernels.Instr) rule {
	switch i := i.(type) {
	case kernels.Conv2d:
		return both(func(v *vjp) node { return v.gradX(i.Window, v.in[0], v.in[1], v.gy) },
			func(v *vjp) node { return v.Apply(kernels.Conv2dGradW{Window: i.Window}, v.in[0], v.gy) })
	case kernels.Conv2dGradX: // (w, gy) → x
		return both(func(v *vjp) node { return v.Apply(kernels.Conv2dGradW{Window: i.Window}, v.gy, v.in[1]) },
			func(v *vjp) node { return v.Apply(kernels.Conv2d{Window: i.Window}, v.gy, v.in[0]) })
	case kernels.Conv2dGradW: // (x, gy) → w
		return both(func(v *vjp) node { return v.gradX(i.Window, v.in[0], v.gy, v.in[1]) },
			func(v *vjp) node { return v.Apply(kernels.Conv2d{Window: i.Window}, v.in[0], v.gy) })
	case kernels.Im2col:
		return one(func(v *vjp) node {
			x := v.types[v.in[0]].Shape
			return v.Apply(kernels.Col2im{Im2col: i, Channels: x[1], Height: x[2], Width: x[3]}, v.gy)
		})
	case kernels.Col2im:
		return one(func(v *vjp) node { return v.Apply(i.Im2col, v.gy) })
	case kernels.MaxPool2d:
		return one(func(v *vjp) node { return v.Apply(kernels.MaxPool2dGrad(i), v.in[0], v.gy) })
	case kernels.AvgPool2d:
		return one(func(v *vjp) node {
			x := v.types[v.in[0]].Shape
			return v.Apply(kernels.AvgPool2dGrad{AvgPool2d: i, Height: x[2], Width: x[3]}, v.gy)
		})
	case kernels.AvgPool2dGrad:
		return one(func(v *vjp) node { return v.Apply(i.AvgPool2d, v.gy) })
	case kernels.Dropout: // the same elements are kept again
		return one(func(v *vjp) node { return v.Apply(i, v.gy, v.in[1]) })
	}
	return nil
}

// gradX is the gradient of images x from kernels w and the result's gradient.
func (v *vjp) gradX(w kernels.Window, x, filter, gy node) node {
	s := v.types[x].Shape
	return v.Apply(kernels.Conv2dGradX{Window: w, Height: s[2], Width: s[3]}, filter, gy)
}

// both is for rules with two differentiable operands.
func both(fs ...func(v *vjp) node) rule {
	return func(v *vjp) []node {
		d := make([]node, len(fs))
		for j, f := range fs {
			if v.need[j] {
				d[j] = f(v)
			}
		}
		return d
	}
}
