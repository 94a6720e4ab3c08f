package kernels

import "github.com/weft-project/weft/device"

func cpuf32(s ...int) Type { return Type{device.Float32, s} }
func cpui32(s ...int) Type { return Type{device.Int32, s} }
func cpui64(s ...int) Type { return Type{device.Int64, s} }

// cpuGeluOfBias is x+b, its gelu, and the sums of that by column and by row.
func cpuGeluOfBias(s device.Shape) Map {
	return Map{Shape: s, Steps: []Step{
		{Op: Binary{Fn: Add}, Args: [2]int{0, 1}}, {Op: Unary{Fn: Gelu}, Args: [2]int{2}},
	}, Outs: []Out{{Reg: 2}, {Reg: 3}, {Reg: 3, Fold: &Reduce{Fn: Sum, Axes: []int{0}}}, {Reg: 3, Fold: &Reduce{Fn: Max, Axes: []int{len(s) - 1}}}}}
}
