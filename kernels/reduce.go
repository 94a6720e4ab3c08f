package kernels

import (
	"github.com/weft-project/weft/kernels/vec"
)

func reduceBody[T vec.Float](i Reduce, in Type) body {
	return mapBody[T](Map{Shape: in.Shape, Outs: []Out{{Fold: &i}}}, []Type{in}, nil)
}

// maxGradBody is two maps: how many tie for each maximum, and then gy/ties where x is the maximum.
func maxGradBody[T vec.Float](i MaxGrad, x Type) body {
	fold, _ := newFold(Reduce{Axes: i.Axes, Keep: true}, x.Shape)
	y := Type{x.Dtype, fold.kept}
	is := Step{Binary{Fn: Equal}, [2]int{0, 1}}
	count := planMap[T](Map{x.Shape, []Step{is}, []Out{{2, &Reduce{Axes: i.Axes}}}}, []Type{x, y}, nil, false)
	share := planMap[T](Map{x.Shape, []Step{is, {Binary{Fn: Div}, [2]int{2, 3}}, {Binary{Fn: ReluGrad}, [2]int{4, 5}}}, []Out{{Reg: 6}}},
		[]Type{x, y, y, y}, nil, false)
	count.steps[0].two, share.steps[0].two = areMax[T], areMax[T]
	return func(outs, ins [][]byte) error {
		s := take[tiles[T]](count.tiles)
		s.mem = grown(s.mem, fold.n)
		r := count.begin(nil, ins[:2], count.parts)
		r.outs = append(r.outs, s.mem)
		r.all()
		r = share.begin(outs, ins, share.parts)
		r.ins = append(r.ins, s.mem)
		r.all()
		count.tiles.Put(s)
		return nil
	}
}

// areMax writes 1 where x is the maximum y, and 0 elsewhere; a NaN is the maximum where there is one.
func areMax[T vec.Float](o, x, y []T) {
	for k := range o {
		is := T(0)
		if x[k] == y[k] || x[k] != x[k] && y[k] != y[k] {
			is = 1
		}
		o[k] = is
	}
}
