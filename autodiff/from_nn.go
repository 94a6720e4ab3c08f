package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// imageTaker is takerOf for the ops of neural networks.
func imageTaker(kind string) taker {
	switch kind {
	case "upsampleOp":
		return takeUpsample
	case "globalAveragePoolOp":
		return always(func(g *Graph, in []node) node {
			return g.Apply(kernels.Reduce{Fn: kernels.Mean, Axes: []int{2, 3}, Keep: true}, in[0])
		})
	case "GroupNormOp":
		return takeGroupNorm
	}
	return nil
}

// takeUpsample repeats each element of an image in both directions.
func takeUpsample(o *opNode) (builder, error) {
	n, s := o.int("stride")+1, o.in[0].Shape
	if len(s) != 4 {
		return nil, fmt.Errorf("%w: %v is not images", kernels.ErrOperands, o.in[0])
	}
	return func(g *Graph, in []node) node {
		x := g.reshapeTo(in[0], device.Shape{s[0], s[1], s[2], 1, s[3], 1})
		return g.BroadcastTo(x, s[0], s[1], s[2], n, s[3], n)
	}, nil
}

// takeGroupNorm normalises groups of channels of each image.
func takeGroupNorm(o *opNode) (builder, error) {
	groups, eps, s := o.int("numGroups"), o.field("epsilon").Float(), o.in[0].Shape
	if len(s) < 2 || groups < 1 || s[1]%groups != 0 || s.Elems() == 0 {
		return nil, fmt.Errorf("%w: %d groups of the channels of %v", kernels.ErrOperands, groups, o.in[0])
	}
	rows := device.Shape{s[0] * groups, s.Elems() / (s[0] * groups)}
	return func(g *Graph, in []node) node {
		return g.Apply(kernels.Normalize{Eps: eps}, g.reshapeTo(in[0], slices.Clone(rows)))
	}, nil
}
