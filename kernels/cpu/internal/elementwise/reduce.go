package elementwise

import (
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// reduce folds some axes.
func reduce[T vec.Float](i kernels.Reduce, in kernels.Type) parallel.Body {
	return Map[T](kernels.Map{Shape: in.Shape, Outs: []kernels.Out{{Fold: &i}}}, []kernels.Type{in}, nil)
}

// maxGrad is two maps: how many tie for each maximum, and then gy/ties where x is the maximum.
func maxGrad[T vec.Float](i kernels.MaxGrad, x kernels.Type) parallel.Body {
	fold, _ := newFold(kernels.Reduce{Axes: i.Axes, Keep: true}, x.Shape)
	y := kernels.Type{Dtype: x.Dtype, Shape: fold.kept}
	is := kernels.Step{Op: kernels.Binary{Fn: kernels.Equal}, Args: [2]int{0, 1}}
	ties := kernels.Out{Reg: 2, Fold: &kernels.Reduce{Axes: i.Axes}}
	count := NewPlan[T](kernels.Map{Shape: x.Shape, Steps: []kernels.Step{is}, Outs: []kernels.Out{ties}}, []kernels.Type{x, y}, nil, false)
	div := kernels.Step{Op: kernels.Binary{Fn: kernels.Div}, Args: [2]int{2, 3}}
	only := kernels.Step{Op: kernels.Binary{Fn: kernels.ReluGrad}, Args: [2]int{4, 5}}
	share := NewPlan[T](kernels.Map{Shape: x.Shape, Steps: []kernels.Step{is, div, only}, Outs: []kernels.Out{{Reg: 6}}},
		[]kernels.Type{x, y, y, y}, nil, false)
	count.steps[0].two, share.steps[0].two = areMax[T], areMax[T]
	return func(outs, ins [][]byte) error {
		s := take[tiles[T]](count.tiles)
		s.mem = grown(s.mem, fold.n)
		r := count.Begin(nil, ins[:2], count.parts)
		r.outs = append(r.outs, s.mem)
		r.all()
		r = share.Begin(outs, ins, share.parts)
		r.ins = append(r.ins, s.mem)
		r.all()
		count.tiles.Put(s)
		return nil
	}
}

// areMax writes 1 where x is the maximum y, and 0 elsewhere; a NaN is the maximum where there is
// one.
func areMax[T vec.Float](o, x, y []T) {
	for k := range o {
		is := T(0)
		if x[k] == y[k] || x[k] != x[k] && y[k] != y[k] {
			is = 1
		}
		o[k] = is
	}
}
