package gorgonia

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// imageTaker is takerOf for the ops of neural networks.
func imageTaker(kind string) taker {
	switch kind {
	case "upsampleOp":
		return takeUpsample
	case "globalAveragePoolOp":
		return always(func(g *autodiff.Graph, in []node) node {
			return g.Apply(kernels.Reduce{Fn: kernels.Mean, Axes: []int{2, 3}, Keep: true}, in[0])
		})
	case "GroupNormOp":
		return takeGroupNorm
	case "BatchNormOp":
		return takeBatchNorm
	case "dropoutOp":
		return takeDropout
	case "im2colOp":
		return func(o *opNode) (builder, error) {
			over := o.columns()
			return func(g *autodiff.Graph, in []node) node {
				return g.Apply(kernels.Im2col{Window: over, Rows: true}, in[0])
			}, nil
		}
	case "maxPoolOp":
		return func(o *opNode) (builder, error) {
			over := o.pool()
			return func(g *autodiff.Graph, in []node) node { return g.MaxPool2d(in[0], over) }, nil
		}
	case "avgPoolOp":
		return takeAvgPool
	}
	return nil
}

// columns is the window of an im2colOp.
func (o *opNode) columns() kernels.Window {
	pad := [2]int{o.int("padH"), o.int("padW")}
	return kernels.Window{Kernel: [2]int{o.int("h"), o.int("w")}, Stride: [2]int{o.int("strideH"), o.int("strideW")}, Before: pad, After: pad,
		Dilation: [2]int{o.int("dilationH"), o.int("dilationW")}}
}

// pool is the window of a pooling. Where all four paddings are given, Gorgonia begins with those of
// the south and the east.
func (o *opNode) pool() kernels.Window {
	w := kernels.Window{Kernel: [2]int{o.int("h"), o.int("w")}, Stride: [2]int{o.int("strideH"), o.int("strideW")},
		Before: [2]int{o.int("padNorth"), o.int("padWest")}, After: [2]int{o.int("padSouth"), o.int("padEast")}}
	if o.bool("explicitPadding") {
		w.Before, w.After = w.After, w.Before
	}
	return w
}

// takeAvgPool: Gorgonia divides the sum of what the window sees by the width of the images.
func takeAvgPool(o *opNode) (builder, error) {
	over := o.pool()
	if len(o.in[0].Shape) != 4 || o.in[0].Shape[3] == 0 {
		return nil, fmt.Errorf("%w: %v is not images", kernels.ErrOperands, o.in[0])
	}
	scale := float64(over.Kernel[0]*over.Kernel[1]) / float64(o.in[0].Shape[3])
	return func(g *autodiff.Graph, in []node) node { return g.Scale(g.AvgPool2d(in[0], over, false), scale) }, nil
}

// takeDropout: Gorgonia's op knows whether it is in training.
func takeDropout(o *opNode) (builder, error) {
	p := o.float("probability")
	if p == 0 || !o.bool("isTraining") {
		return func(_ *autodiff.Graph, in []node) node { return in[0] }, nil
	}
	o.keyed = true
	return func(g *autodiff.Graph, in []node) node { return g.Dropout(in[0], in[1], p) }, nil
}

// takeBatchNorm only normalises: scale and bias are ops of their own in Gorgonia.
func takeBatchNorm(o *opNode) (builder, error) {
	x, eps := o.in[0].Shape, o.float("epsilon")
	if len(x) < 2 || x.Elems() == 0 {
		return nil, fmt.Errorf("%w: %v has no channels", kernels.ErrOperands, o.in[0])
	}
	over := []int{0}
	for a := 2; a < len(x); a++ {
		over = append(over, a)
	}
	if o.bool("training") {
		return func(g *autodiff.Graph, in []node) node {
			mean := kernels.Reduce{Fn: kernels.Mean, Axes: over, Keep: true}
			d := g.Sub(in[0], g.Apply(mean, in[0]))
			return g.Div(d, g.Sqrt(g.Shift(g.Apply(mean, g.Mul(d, d)), eps)))
		}, nil
	}
	mean, variance := o.op.(*gorgonia.BatchNormOp).Stats()
	for _, v := range []tensor.Tensor{mean, variance} {
		t := FromValue(v)
		if t.Err() != nil {
			return nil, t.Err()
		}
		o.held = append(o.held, t)
	}
	return func(g *autodiff.Graph, in []node) node {
		d := g.Sub(in[0], perChannel(g, in[1], in[0]))
		return g.Div(d, perChannel(g, g.Sqrt(g.Shift(in[2], eps)), in[0]))
	}, nil
}

// convolution recognises what gorgonia.Conv2d builds: the columns of images times kernels, laid out
// as images again. No part of it may be an input.
func (r *reader) convolution(n *gorgonia.Node) (args []*gorgonia.Node, over kernels.Window, ok bool) {
	step := func(n *gorgonia.Node, kind string, operand int) *gorgonia.Node {
		if n == nil || kindOf(n.Op()) != kind {
			return nil
		}
		cs := childrenOf(n)
		if operand >= len(cs) {
			return nil
		}
		if _, given := r.slot[n]; given {
			return nil
		}
		return cs[operand]
	}
	back := step(n, "transposeOp", 0)
	product := step(back, "reshapeOp", 0)
	if product == nil || kindOf(product.Op()) != "linAlgBinOp" || product.Op().String() != "A × Bᵀ" {
		return nil, over, false
	}
	columns := step(step(product, "linAlgBinOp", 0), "reshapeOp", 0)
	images, filter := step(columns, "im2colOp", 0), step(step(product, "linAlgBinOp", 1), "reshapeOp", 0)
	if images == nil || filter == nil {
		return nil, over, false
	}
	over = (&opNode{op: columns.Op()}).columns()
	perm := (&opNode{op: n.Op()}).ints("pattern")
	x, w, at := r.typ[images].Shape, r.typ[filter].Shape, r.typ[columns].Shape
	if len(x) != 4 || len(w) != 4 || len(at) != 4 || !slices.Equal(perm, []int{0, 3, 1, 2}) ||
		w[1] != x[1] || over.Kernel != [2]int{w[2], w[3]} || !r.typ[back].Shape.Equal(device.Shape{x[0], at[1], at[2], w[0]}) {
		return nil, over, false
	}
	return []*gorgonia.Node{images, filter}, over, true
}

// takeUpsample repeats each element of an image in both directions.
func takeUpsample(o *opNode) (builder, error) {
	n, s := o.int("stride")+1, o.in[0].Shape
	if len(s) != 4 {
		return nil, fmt.Errorf("%w: %v is not images", kernels.ErrOperands, o.in[0])
	}
	return func(g *autodiff.Graph, in []node) node {
		x := reshapeTo(g, in[0], device.Shape{s[0], s[1], s[2], 1, s[3], 1})
		return g.BroadcastTo(x, s[0], s[1], s[2], n, s[3], n)
	}, nil
}

// takeGroupNorm normalises groups of channels of each image.
func takeGroupNorm(o *opNode) (builder, error) {
	groups, eps, s := o.int("numGroups"), o.float("epsilon"), o.in[0].Shape
	if len(s) < 2 || groups < 1 || s[1]%groups != 0 || s.Elems() == 0 {
		return nil, fmt.Errorf("%w: %d groups of the channels of %v", kernels.ErrOperands, groups, o.in[0])
	}
	rows := device.Shape{s[0] * groups, s.Elems() / (s[0] * groups)}
	return func(g *autodiff.Graph, in []node) node {
		return g.Apply(kernels.Normalize{Eps: eps}, reshapeTo(g, in[0], slices.Clone(rows)))
	}, nil
}
