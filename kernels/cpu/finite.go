package cpu

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/finite"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

func nonFiniteBody(d device.Dtype) parallel.Body {
	if d == device.Float32 {
		return finiteness[float32]
	}
	return finiteness[float64]
}

func finiteness[T device.Float](outs, ins [][]byte) error {
	o, x, found := device.As[int32](outs[0]), device.As[T](ins[0]), kernels.AllFinite
	if !finite.All(x) {
		found = kernels.HasInfinity
		for _, v := range x {
			if v != v {
				found = kernels.HasNaN
				break
			}
		}
	}
	o[0] = int32(found)
	return nil
}
