package cpu

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func cpuf32(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }
func cpui32(s ...int) kernels.Type { return kernels.Type{Dtype: device.Int32, Shape: s} }
func cpui64(s ...int) kernels.Type { return kernels.Type{Dtype: device.Int64, Shape: s} }

// cpuGeluOfBias is x+b, its gelu, and the sums of that by column and by row.
func cpuGeluOfBias(s device.Shape) kernels.Map {
	return kernels.Map{Shape: s, Steps: []kernels.Step{
		{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, {Op: kernels.Unary{Fn: kernels.Gelu}, Args: [2]int{2}},
	}, Outs: []kernels.Out{{Reg: 2}, {Reg: 3}, {Reg: 3, Fold: &kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}}, {Reg: 3, Fold: &kernels.Reduce{Fn: kernels.Max, Axes: []int{len(s) - 1}}}}}
}
